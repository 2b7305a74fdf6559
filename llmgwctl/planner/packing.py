"""Joint packing: finds places for all new starts of a plan at once, where one after another did not fit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from llmgwctl.domain.catalog import Profile
from llmgwctl.planner.placement import Fleet, Nodes, Seat


@dataclass(frozen=True, slots=True)
class Want:
    """A replica that needs a place: its profiles in the order of preference, each with the ports that it needs.

    `avoid` are nodes that it can't be on.
    """

    replica: str
    profiles: tuple[tuple[Profile, int], ...]
    avoid: Nodes

    @property
    def largest(self) -> Profile:
        """The profile that is hardest to place: the want may come to need it."""
        return max((p for p, _ in self.profiles), key=lambda p: (p.nodes, p.gpus_per_node, p.memory_mib, p.millicores))


Placed = dict[str, tuple[Profile, tuple[Seat, ...]]]


def pack(fleet: Fleet, wants: Sequence[Want]) -> Placed | None:
    """Take room for every want, or for none; several orders are tried, the same ones in the same plan."""
    for order in _ORDERS:
        placed = _try(fleet, sorted(wants, key=order))
        if placed is not None:
            return placed
    return None


def give_back(fleet: Fleet, placed: Iterable[tuple[Profile, int, tuple[Seat, ...]]]) -> None:
    """Return what was taken."""
    for profile, ports, seats in placed:
        for seat in seats:
            uuids = [g.uuid for g in seat.gpus]
            fleet.give_back(
                seat.node, uuids, profile.millicores, profile.memory_mib, range(seat.port, seat.port + ports)
            )


def take_again(fleet: Fleet, placed: Iterable[tuple[Profile, int, tuple[Seat, ...]]]) -> None:
    """Take exactly what was given back."""
    for profile, ports, seats in placed:
        for seat in seats:
            uuids = [g.uuid for g in seat.gpus]
            fleet.take(seat.node, uuids, profile.millicores, profile.memory_mib, range(seat.port, seat.port + ports))


def _try(fleet: Fleet, wants: Sequence[Want]) -> Placed | None:
    placed: Placed = {}
    taken: list[tuple[Profile, int, tuple[Seat, ...]]] = []
    for want in wants:
        for profile, ports in want.profiles:
            seats = fleet.seat(profile, ports, want.avoid)
            if seats:
                placed[want.replica] = (profile, seats)
                taken.append((profile, ports, seats))
                break
        else:
            give_back(fleet, taken)
            return None
    return placed


def _by_size(want: Want) -> tuple[object, ...]:
    """Gangs first, then by GPUs a node; those with fewer choices before those with more."""
    profile = want.largest
    return (-profile.nodes, -profile.gpus_per_node, len(want.profiles), *_rest(profile), want.replica)


def _by_scarcity(want: Want) -> tuple[object, ...]:
    """Those with the fewest choices first."""
    profile = want.largest
    narrow = (len(want.profiles), not profile.node_selector)
    return (*narrow, -profile.nodes, -profile.gpus_per_node, *_rest(profile), want.replica)


def _by_memory(want: Want) -> tuple[object, ...]:
    """Those that take most of a node's cores and memory first."""
    profile = want.largest
    return (-profile.nodes, *_rest(profile), -profile.gpus_per_node, want.replica)


def _rest(profile: Profile) -> tuple[int, int]:
    return (-profile.memory_mib, -profile.millicores)


_ORDERS: tuple[Callable[[Want], tuple[object, ...]], ...] = (_by_size, _by_scarcity, _by_memory)
