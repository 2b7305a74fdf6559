"""Reads what fabric a host's network cards make: by link layer, never by the word `transport` or by the IP side."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Port:
    device: str
    active: bool
    ethernet: bool


def fabric_of(ports: tuple[Port, ...]) -> str:
    """Name the fabric that the active ports make: InfiniBand where any is (the others are the host's network)."""
    active = [p for p in ports if p.active]
    if any(not p.ethernet for p in active):
        return "infiniband"
    return "roce (Ethernet link layer)" if active else "none"


def read_ibstat(text: str) -> tuple[Port, ...]:
    """Read `ibstat`; it may fail half-way through, and what it printed counts."""
    ports: list[Port] = []
    device, state = "", ""
    for line in text.splitlines():
        if match := re.match(r"CA '([^']+)'", line):
            device = match[1]
        elif match := re.match(r"\s+State:\s*(\S+)", line):
            state = match[1]
        elif match := re.match(r"\s+Link layer:\s*(\S+)", line):
            ports.append(Port(device, state.lower() == "active", match[1].lower() == "ethernet"))
    return tuple(ports)


def read_ibstatus(text: str) -> tuple[Port, ...]:
    """Read `ibstatus`."""
    ports: list[Port] = []
    device, state = "", ""
    for line in text.splitlines():
        if match := re.match(r"Infiniband device '([^']+)'", line):
            device = match[1]
        elif match := re.match(r"\s+state:\s*\d+:\s*(\S+)", line):
            state = match[1]
        elif match := re.match(r"\s+link_layer:\s*(\S+)", line):
            ports.append(Port(device, state.upper() == "ACTIVE", match[1].lower() == "ethernet"))
    return tuple(ports)


def read_ibv_devinfo(text: str) -> tuple[Port, ...]:
    """Read `ibv_devinfo`."""
    ports: list[Port] = []
    device, state = "", ""
    for line in text.splitlines():
        if match := re.match(r"\s*hca_id:\s*(\S+)", line):
            device = match[1]
        elif match := re.match(r"\s+state:\s*(\S+)", line):
            state = match[1]
        elif match := re.match(r"\s+link_layer:\s*(\S+)", line):
            ports.append(Port(device, state == "PORT_ACTIVE", match[1].lower() == "ethernet"))
    return tuple(ports)


@dataclass(frozen=True, slots=True)
class NetDevice:
    device: str
    interface: str
    ip_up: bool


def read_ibdev2netdev(text: str) -> tuple[NetDevice, ...]:
    """Read `ibdev2netdev`; `Down` is only the IP side."""
    matches = (re.match(r"\s*(\S+)\s+port\s+\d+\s+==>\s+(\S+)\s+\((\w+)\)", line) for line in text.splitlines())
    return tuple(NetDevice(m[1], m[2], m[3] == "Up") for m in matches if m)
