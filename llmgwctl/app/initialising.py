"""The use case `init`: a configuration from what this machine, or the given hosts, really are."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import AddressValueError, IPv6Address
from pathlib import Path

from llmgwctl.app.gathering import gather_fleet, words_of
from llmgwctl.config.documents import yaml_files
from llmgwctl.config.machines import machine_of
from llmgwctl.config.nodes import node_of
from llmgwctl.config.scaffold import SCHEMA_FILE, scaffold
from llmgwctl.config.schema import accepts, schema_path
from llmgwctl.domain.desired import Connection, Desired, Host, Settings
from llmgwctl.errors import LlmgwctlError, UnreachableError, UsageError
from llmgwctl.hosts.sessions import Sessions

_PLACE = re.compile(r"(?:\[(?P<ipv6>[^\[\]]+)\]|(?P<name>\w[\w.+-]*))(?::(?P<port>[0-9]{1,9}))?")
_LAST_PORT = 65535
_LONGEST_NAME = 100


def must_be_free(directory: Path) -> None:
    """Raise LlmgwctlError where a configuration is present, or where none could be written."""
    must_be_writable(directory)
    if directory.exists() and (present := yaml_files(str(directory))):
        raise LlmgwctlError(
            f"{directory.absolute()} has a configuration already ({present[0].name!r}): it is left as it is."
        )


def must_be_writable(directory: Path) -> None:
    """Raise LlmgwctlError where no configuration or schema can be written."""
    folder = next(f for f in (directory, *directory.absolute().parents) if os.path.exists(f))
    if not folder.is_dir():
        raise LlmgwctlError(f"{folder.absolute()} is not a directory: no configuration can be written there.")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise LlmgwctlError(f"{folder.absolute()} can't be written: no configuration can be written there.")
    schema = directory / SCHEMA_FILE
    if os.path.lexists(schema) and not _is_ours(schema):
        raise LlmgwctlError(f"{schema.absolute()} is no schema of llmgwctl, so it is left as it is.", "Rename it.")


def editors_schema() -> str:
    """Return the text of the schema that stands beside a configuration, for editors."""
    return schema_path("config").read_text(encoding="utf-8")


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
        told = [words_of(n) for n in failed]
        if any("host_keys: accept-new" in line for line in told):
            told.append("A setting isn't there yet: here it is --host-keys accept-new.")
        raise UnreachableError("Not every host could be looked at, so nothing was written.", "\n".join(told))
    return scaffold(observation.nodes, hosts)


def _is_ours(schema: Path) -> bool:
    """Whether this is the schema of some version of llmgwctl."""
    try:
        document = json.loads(schema.read_bytes())
    except (OSError, ValueError):
        return False
    return isinstance(document, dict) and document.get("$id") == json.loads(editors_schema())["$id"]


def _hosts(targets: Sequence[str]) -> tuple[Host, ...]:
    """Return the hosts that are meant; the same one twice counts once."""
    hosts: dict[object, Host] = {}
    for target in targets:
        user, address, port = _parts(target)
        host = Host("", address, port=port, user=user)
        machine = machine_of(host, None)
        known = hosts.setdefault(machine, host)
        if known.user != user:
            raise UsageError(f"--host {target!r}: this host is given twice, with different users.")
    named: dict[str, Host] = {}
    for host in hosts.values():
        name = _name(host, named)
        named[name] = replace(host, name=name)
    return tuple(sorted(named.values(), key=lambda h: h.name))


def _parts(target: str) -> tuple[str | None, str, int | None]:
    """Return user, address and port of `user@address:port`. Raises UsageError."""
    user, at, place = target.rpartition("@")
    if place.count(":") > 1 and not place.startswith("["):
        place = f"[{place}]"
    match = _PLACE.fullmatch(place)
    if match is None or not _usable_address(match) or (at and not _usable_user(user)):
        raise UsageError(
            f"--host {target!r}: write user@address, or user@address:port.",
            "An IPv6 address with a port goes into brackets: user@[2001:db8::1]:22.",
        )
    port = int(match["port"]) if match["port"] else None
    if port is not None and not 1 <= port <= _LAST_PORT:
        raise UsageError(f"--host {target!r}: a port is a number from 1 to {_LAST_PORT}.")
    return user or None, match["name"] or match["ipv6"], port


def _usable_address(match: re.Match[str]) -> bool:
    if match["ipv6"]:
        try:
            IPv6Address(match["ipv6"])
        except AddressValueError:
            return False
    return accepts(node_of({"name": "x", "address": match["name"] or match["ipv6"]}), "host")


def _usable_user(user: str) -> bool:
    # What begins with - could be taken for an option; a colon is a password or a scheme.
    return ":" not in user and user.isprintable() and accepts(node_of({"name": "x", "user": user}), "host")


def _name(host: Host, taken: dict[str, Host]) -> str:
    """Return the address where it can be a name, else what is nearest to it."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", host.address)
    if not accepts(node_of({"name": name}), "host"):
        name = f"host-{name.lstrip('-.')[:_LONGEST_NAME]}"
    if name in taken and host.port is not None:
        name = f"{name}-{host.port}"
    number = 2
    unique = name
    while unique in taken:
        unique, number = f"{name}-{number}", number + 1
    return unique
