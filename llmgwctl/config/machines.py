"""Which hosts are one machine: two names for it would have its GPUs given out twice."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import Report
from llmgwctl.config.wording import quoted
from llmgwctl.domain.desired import Connection, Host

SSH_PORT = 22


def machine_of(host: Host, ssh_port: int | None) -> tuple[str | int, ...] | None:
    """Return what two names of one machine have in common; None for a simulated host, which is one by itself.

    `ssh_port` is the settings'. An alias of `~/.ssh/config` can't be seen through here.
    """
    match host.connection:
        case Connection.SIMULATED:
            return None
        case Connection.LOCAL:
            return ("local",)
        case Connection.SSH:
            return ("ssh", host.jump or "", _address(host.address), host.port or ssh_port or SSH_PORT)


def check_machines(hosts: Iterable[Host], entries: Mapping[str, Node], ssh_port: int | None, report: Report) -> None:
    """Refuse a machine that is declared under two names."""
    first: dict[tuple[str | int, ...], Host] = {}
    for host in sorted(hosts, key=lambda h: h.name):
        machine = machine_of(host, ssh_port)
        if machine is None:
            continue
        other = first.setdefault(machine, host)
        if other is host:
            continue
        entry = entries[host.name]
        local = host.connection is Connection.LOCAL
        written = entry.get("connection" if local else "address") or entry.get("port") or entry
        report.about(f"Host `{quoted(host.name)}`").error(
            f"it is the same machine as the host `{quoted(other.name)}`, at {other.at}: {_how(host, machine)}.",
            "Its GPUs would be given out twice. Take one of them out"
            + ("." if local else ", or write another `address`, `port` or `jump`."),
            written.at,
        )


def _how(host: Host, machine: tuple[str | int, ...]) -> str:
    if host.connection is Connection.LOCAL:
        return "both are this one (`connection: local`)"
    jump = f" through {quoted(host.jump)}" if host.jump else ""
    return f"both are reached at {quoted(str(machine[-2]))}, port {machine[-1]}{jump}"


def _address(text: str) -> str:
    """Return an address in the one form that all of its spellings share."""
    name = text.removeprefix("[").removesuffix("]").rstrip(".").lower()
    try:
        return str(ipaddress.ip_address(name))
    except ValueError:
        return name
