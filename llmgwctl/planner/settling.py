"""A victim that found room on the very nodes it had to leave simply stays: its stop and its start cancel out (R10)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llmgwctl.domain.catalog import Profile
from llmgwctl.domain.inventory import Gpu
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.planner.placement import Fleet, Seat

Seated = tuple[Profile, int, tuple[Seat, ...]]
"""A start's profile, the ports that it needs, and its seats."""


def stays(
    replica: str, record: ReplicaRecord, starts: Mapping[str, Seated], fleet: Fleet
) -> dict[str, tuple[Seat, ...]] | None:
    """Return what the other starts get so that a victim keeps its GPUs and port; None where they can't do without.

    The others take the GPUs that the victim would have got on the node, as many and of the same class.
    """
    profile, ports, seats = starts[replica]
    if profile.name != record.profile or [s.node for s in seats] != [m.node for m in record.members]:
        return None
    if ports != record.members[0].launch.ports:
        return None
    changed: dict[str, tuple[Seat, ...]] = {}
    for seat, member in zip(seats, record.members, strict=True):
        room = fleet.rooms[seat.node]
        old, new = set(member.gpus), {g.uuid: g for g in seat.gpus}
        if not old <= room.usable(profile.gpu_class, profile.engine):
            return None
        swap = dict(zip(sorted(old - new.keys()), [new[u] for u in sorted(new.keys() - old)], strict=True))
        for other, (theirs, count, their_seats) in starts.items():
            if other == replica:
                continue
            exchanged = tuple(
                _exchanged(s, swap, seat, member.port, ports, count) if s.node == seat.node else s
                for s in changed.get(other, their_seats)
            )
            usable = room.usable(theirs.gpu_class, theirs.engine)
            if any(s.node == seat.node and any(g.uuid not in usable for g in s.gpus) for s in exchanged):
                return None
            if theirs.port is not None and [s.port for s in exchanged] != [s.port for s in their_seats]:
                return None
            if exchanged != their_seats:
                changed[other] = exchanged
            if any(
                s.node == seat.node and _meet(s.port, count, member.port, ports)
                for s in changed.get(other, their_seats)
            ):
                return None
    return changed


def _exchanged(seat: Seat, swap: Mapping[str, Gpu], victims: Seat, old_port: int, ports: int, count: int) -> Seat:
    """Return a seat with the victim's old GPUs and port given back for the new ones."""
    gpus = tuple(sorted((swap.get(g.uuid, g) for g in seat.gpus), key=lambda g: g.index))
    port = victims.port if seat.port == old_port and ports == count and victims.port != old_port else seat.port
    return replace(seat, gpus=gpus, port=port)


def _meet(first: int, first_count: int, second: int, second_count: int) -> bool:
    return first < second + second_count and second < first + first_count
