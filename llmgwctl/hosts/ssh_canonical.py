"""paramiko's reader of ssh configurations, with CanonicalizeHostname as ssh does it."""

from __future__ import annotations

import ipaddress
from typing import Any

import paramiko


class ClientConfig(paramiko.SSHConfig):
    """An ssh configuration; a name is made canonical after its HostName, which paramiko would lose."""

    def lookup(self, hostname: str) -> paramiko.SSHConfigDict:
        """Return what holds for a host."""
        found = self._look(hostname)
        name = found.setdefault("hostname", hostname)
        if found.get("canonicalizehostname", "no").lower() not in ("yes", "always"):
            return self._look(hostname, found, canonical=False, final=True)
        if _applies(found, name):
            name = found["hostname"] = self._canonical(name, found)
        return self._look(name, found, canonical=True, final=True)

    def _look(self, *args: Any, **options: Any) -> paramiko.SSHConfigDict:
        found: paramiko.SSHConfigDict = self._lookup(*args, **options)  # type: ignore[attr-defined]
        return found

    def _canonical(self, name: str, found: paramiko.SSHConfigDict) -> str:
        domains = [d for d in found.get("canonicaldomains", "").split() if d.lower() != "none"]
        try:
            return self.canonicalize(name, found, domains) or name
        except paramiko.ssh_exception.CouldNotCanonicalize:
            raise ValueError(
                f"{name} is in none of the CanonicalDomains, and CanonicalizeFallbackLocal is no"
            ) from None


def _applies(found: paramiko.SSHConfigDict, name: str) -> bool:
    """Whether the name is to be completed: neither an address nor complete, nor, unless always, a proxy's affair."""
    always = found["canonicalizehostname"].lower() == "always"
    proxied = any(found.get(key, "none").lower() != "none" for key in ("proxycommand", "proxyjump"))
    return (
        (always or not proxied)
        and name.count(".") <= int(found.get("canonicalizemaxdots", 1))
        and not _is_address(name)
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
