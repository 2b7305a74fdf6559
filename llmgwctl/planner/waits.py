"""What each start has to wait for: the replicas whose stop makes exactly the room that it takes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgwctl.planner.rooms import Room


@dataclass(frozen=True, slots=True)
class Place:
    """What one replica takes of one node."""

    node: str
    gpus: tuple[str, ...]
    ports: range
    millicores: int
    memory_mib: int


@dataclass(frozen=True, slots=True)
class Needs:
    """The stops that a start needs: `exactly` for a GPU or a port, `roughly` for cores and memory."""

    exactly: frozenset[str]
    roughly: frozenset[str]


def waits_of(
    starts: Mapping[str, Iterable[Place]], stops: Mapping[str, Iterable[Place]], rooms: Mapping[str, Room]
) -> dict[str, Needs]:
    """Return, for each start, the stops that it needs; `rooms` are as they were before anything is stopped.

    A GPU or a port has one holder. Cores and memory have none: where a node's free ones don't suffice for all that
    start there, each start waits for every stop there.
    """
    by_node: dict[str, list[tuple[str, Place]]] = {}
    for replica, places in stops.items():
        for place in places:
            by_node.setdefault(place.node, []).append((replica, place))
    tight = _tight_nodes(starts, rooms)
    needs = {}
    for replica, places in starts.items():
        there = [(p, other, left) for p in places for other, left in by_node.get(p.node, ()) if other != replica]
        needs[replica] = Needs(
            frozenset(other for place, other, left in there if _overlap(place, left)),
            frozenset(other for place, other, _ in there if place.node in tight),
        )
    return needs


def _overlap(place: Place, left: Place) -> bool:
    ports = place.ports.start < left.ports.stop and left.ports.start < place.ports.stop
    return ports or not set(place.gpus).isdisjoint(left.gpus)


def _tight_nodes(starts: Mapping[str, Iterable[Place]], rooms: Mapping[str, Room]) -> set[str]:
    cores: dict[str, int] = {}
    memory: dict[str, int] = {}
    for places in starts.values():
        for place in places:
            cores[place.node] = cores.get(place.node, 0) + place.millicores
            memory[place.node] = memory.get(place.node, 0) + place.memory_mib
    return {
        node
        for node in cores
        if (rooms[node].millicores is not None and cores[node] > (rooms[node].millicores or 0))
        or (rooms[node].memory_mib is not None and memory[node] > (rooms[node].memory_mib or 0))
    }
