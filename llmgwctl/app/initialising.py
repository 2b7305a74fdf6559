"""The use case `init`: a configuration from what this machine, or the given hosts, really are."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from llmgwctl.app.gathering import gather_fleet
from llmgwctl.config.scaffold import scaffold
from llmgwctl.domain.desired import Connection, Desired, Host, Settings
from llmgwctl.errors import UnreachableError, UsageError
from llmgwctl.hosts.sessions import Sessions

_TARGET = re.compile(r"(?:(?P<user>[^@\s]+)@)?(?P<address>\[[0-9A-Fa-f:.]+\]|[^@:\s]+)(?::(?P<port>\d+))?")


def initial_configuration(directory: Path, targets: Sequence[str], host_keys: str) -> str:
    """Return the text of a configuration. Raises UnreachableError where a given host can't be looked at."""
    hosts = _hosts(targets) if targets else (Host("this-machine", "127.0.0.1", connection=Connection.LOCAL),)
    settings = Settings()
    settings = replace(settings, ssh=replace(settings.ssh, host_keys=host_keys))
    desired = Desired(hosts=hosts, settings=settings)
    with Sessions(hosts, settings, directory, directory / "unused") as sessions:
        observation = gather_fleet(desired, sessions, None)
    failed = [n for n in observation.nodes if not n.reachable]
    if failed:
        raise UnreachableError(
            "Not every host could be looked at, so nothing was written.",
            "\n".join(f"{n.name}: {n.error}" for n in failed),
        )
    return scaffold(observation.nodes, hosts)


def _hosts(targets: Sequence[str]) -> tuple[Host, ...]:
    hosts: dict[str, Host] = {}
    for target in targets:
        match = _TARGET.fullmatch(target)
        if match is None or match["address"].startswith("-"):
            raise UsageError(f"--host {target!r}: write user@address, or user@address:port.")
        address = match["address"].strip("[]")
        name = re.sub(r"[^A-Za-z0-9._-]", "-", address)
        if name in hosts:
            name = f"{name}-{len(hosts) + 1}"
        hosts[name] = Host(name, address, port=int(match["port"]) if match["port"] else None, user=match["user"])
    return tuple(sorted(hosts.values(), key=lambda h: h.name))
