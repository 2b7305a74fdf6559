"""Finds nodes, GPUs and ports for a replica that is to start."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from llmgwctl.domain.catalog import Profile
from llmgwctl.domain.inventory import Gpu
from llmgwctl.planner.rooms import Room

Nodes = frozenset[str]


@dataclass(frozen=True, slots=True)
class Seat:
    """Room for one member."""

    node: str
    gpus: tuple[Gpu, ...]
    port: int


@dataclass(slots=True)
class Fleet:
    """All rooms, indexed so that a search looks at few of them.

    Within one plan free room shrinks while replicas are seated; a node that failed a request once is therefore
    skipped for the same request until room is given back.
    """

    rooms: dict[str, Room]
    _buckets: dict[tuple[str, bool], list[dict[str, None]]] = field(default_factory=dict)
    _counts: dict[tuple[str, bool], dict[str, int]] = field(default_factory=dict)
    _failed: dict[tuple[object, ...], set[str]] = field(default_factory=dict)

    def seat(self, profile: Profile, ports_needed: int, avoid: Nodes = frozenset()) -> tuple[Seat, ...] | None:
        """Take room for a whole replica, or nothing; None where it does not fit now, `avoid` left out."""
        nodes = self._find(profile, ports_needed, avoid)
        return self._take(profile, nodes, ports_needed) if nodes else None

    def reseat(
        self, profile: Profile, places: Iterable[tuple[str, tuple[str, ...], int]], ports_needed: int
    ) -> tuple[Seat, ...] | None:
        """Take exactly the given nodes, GPUs (UUIDs) and ports; None where the profile no longer fits there."""
        seats = []
        for node, uuids, port in places:
            room = self.rooms.get(node)
            if room is None or not room.open or len(uuids) != profile.gpus_per_node:
                return None
            free = {g.uuid: g for g in room.free(profile.gpu_class, profile.engine)}
            wanted = profile.port if profile.port is not None else port
            if (
                any(u not in free for u in uuids)
                or not room.fits_host(profile)
                or not room.has_label(profile.node_selector)
                or any(wanted + i in room.ports for i in range(ports_needed))
            ):
                return None
            seats.append(Seat(node, tuple(free[u] for u in uuids), wanted))
        if len(seats) != profile.nodes:
            return None
        for seat in seats:
            self._seat_one(profile, seat, ports_needed)
        return tuple(seats)

    def finds(self, profile: Profile, ports_needed: int, avoid: Nodes) -> bool:
        """Whether there is room for a whole replica now."""
        return bool(self._find(profile, ports_needed, avoid))

    def seat_on(self, profile: Profile, nodes: Iterable[str], ports_needed: int) -> tuple[Seat, ...]:
        """Take room on nodes that are known to have it."""
        return self._take(profile, nodes, ports_needed)

    def could_hold(self, room: Room, profile: Profile) -> bool:
        """Whether a node would take a member if it were empty of ours."""
        return (
            room.open
            and profile.engine not in room.missing_engines
            and room.has_label(profile.node_selector)
            and len(room.usable(profile.gpu_class, profile.engine)) >= profile.gpus_per_node
        )

    def has_pieces(self, profile: Profile) -> bool:
        """Whether all free room together would be enough: where it isn't, no packing helps."""
        rooms = [r for r in self.rooms.values() if r.open and r.has_label(profile.node_selector)]
        size = profile.size
        return (
            sum(len(r.free(profile.gpu_class, profile.engine)) for r in rooms) >= size.gpus
            and (any(r.millicores is None for r in rooms) or sum(r.millicores or 0 for r in rooms) >= size.millicores)
            and (any(r.memory_mib is None for r in rooms) or sum(r.memory_mib or 0 for r in rooms) >= size.memory_mib)
        )

    def fabrics(self, profile: Profile, avoid: Nodes) -> list[list[Room]]:
        """Return the nodes that could hold a member, by fabric, where there are enough of them."""
        found: dict[str, list[Room]] = {}
        for room in self.rooms.values():
            if room.fabric and room.name not in avoid and self.could_hold(room, profile):
                found.setdefault(room.fabric, []).append(room)
        return [rooms for _, rooms in sorted(found.items()) if len(rooms) >= profile.nodes]

    def give_back(self, node: str, gpus: Iterable[str], millicores: int, memory_mib: int, ports: Iterable[int]) -> None:
        """Return the room of a member that stops."""
        if node in self.rooms:
            self.rooms[node].give_back(gpus, millicores, memory_mib, ports)
            self._failed.clear()
            self._reindex(node)

    def take(self, node: str, gpus: Iterable[str], millicores: int, memory_mib: int, ports: Iterable[int]) -> None:
        """Count a member that runs and stays."""
        if node in self.rooms:
            self.rooms[node].take(gpus, millicores, memory_mib, ports)
            self._reindex(node)

    def _find(self, profile: Profile, ports: int, avoid: Nodes) -> list[str] | None:
        return self._one_node(profile, ports, avoid) if profile.nodes == 1 else self._gang(profile, ports, avoid)

    def _one_node(self, profile: Profile, ports: int, avoid: Nodes) -> list[str] | None:
        """Return the node with the least free GPUs that fits; for no GPUs, the one with the fewest, then most cores."""
        failed = self._failed.setdefault(_request(profile, ports), set())
        if profile.gpus_per_node == 0:
            fitting = [
                r
                for r in self.rooms.values()
                if r.name not in failed and r.name not in avoid and self._fits(r, profile, ports, failed)
            ]
            best = min(
                fitting,
                key=lambda r: (sum(r.whole_gpus.values()), -(r.millicores or 0), -(r.memory_mib or 0), r.name),
                default=None,
            )
            return [best.name] if best else None
        for bucket in self._index(profile)[profile.gpus_per_node :]:
            for name in bucket:
                if name not in failed and name not in avoid and self._fits(self.rooms[name], profile, ports, failed):
                    return [name]
        return None

    def _gang(self, profile: Profile, ports: int, avoid: Nodes) -> list[str] | None:
        """Return distinct nodes of one fabric, from the fabric with the least free room that fits."""
        failed = self._failed.setdefault(_request(profile, ports), set())
        fabrics: dict[str, list[Room]] = {}
        for bucket in self._index(profile)[profile.gpus_per_node :]:
            for name in bucket:
                room = self.rooms[name]
                if (
                    room.fabric
                    and name not in failed
                    and name not in avoid
                    and self._fits(room, profile, ports, failed)
                ):
                    fabrics.setdefault(room.fabric, []).append(room)
        fitting = [(len(rooms), fabric) for fabric, rooms in fabrics.items() if len(rooms) >= profile.nodes]
        if not fitting:
            return None
        rooms = fabrics[min(fitting)[1]]
        return sorted(r.name for r in rooms[: profile.nodes])

    def _fits(self, room: Room, profile: Profile, ports: int, failed: set[str]) -> bool:
        fits = (
            room.open
            and profile.engine not in room.missing_engines
            and room.has_label(profile.node_selector)
            and room.fits_host(profile)
            and len(room.free(profile.gpu_class, profile.engine)) >= profile.gpus_per_node
            and room.free_ports(ports, profile.port) is not None
        )
        if not fits:
            failed.add(room.name)
        return fits

    def _take(self, profile: Profile, nodes: Iterable[str], ports: int) -> tuple[Seat, ...]:
        seats = []
        for name in nodes:
            room = self.rooms[name]
            port = room.free_ports(ports, profile.port)
            if port is None:
                raise AssertionError(f"{name} was chosen without a free port")
            gpus = tuple(_close(room.free(profile.gpu_class, profile.engine), profile.gpus_per_node))
            seat = Seat(name, gpus, port)
            self._seat_one(profile, seat, ports)
            seats.append(seat)
        return tuple(seats)

    def _seat_one(self, profile: Profile, seat: Seat, ports: int) -> None:
        self.rooms[seat.node].take(
            [g.uuid for g in seat.gpus],
            profile.millicores,
            profile.memory_mib,
            range(seat.port, seat.port + ports),
        )
        self._reindex(seat.node)

    def _index(self, profile: Profile) -> list[dict[str, None]]:
        """Return, for the profile's class, the open nodes by their number of free GPUs."""
        key = ((profile.gpu_class or "").lower(), profile.engine == "sim")
        if key not in self._buckets:
            counts = {n: len(r.free(key[0], "sim" if key[1] else "")) for n, r in sorted(self.rooms.items()) if r.open}
            buckets: list[dict[str, None]] = [{} for _ in range(max(counts.values(), default=0) + 1)]
            for name, count in counts.items():
                buckets[count][name] = None
            self._buckets[key], self._counts[key] = buckets, counts
        return self._buckets[key]

    def _reindex(self, node: str) -> None:
        room = self.rooms[node]
        for key, counts in self._counts.items():
            if node not in counts:
                continue
            count = len(room.free(key[0], "sim" if key[1] else ""))
            if count != counts[node]:
                buckets = self._buckets[key]
                del buckets[counts[node]][node]
                while len(buckets) <= count:
                    buckets.append({})
                buckets[count][node] = None
                counts[node] = count


def _request(profile: Profile, ports: int) -> tuple[object, ...]:
    """Return what decides whether a node fits."""
    return (
        profile.gpu_class,
        profile.engine,
        profile.gpus_per_node,
        profile.nodes > 1,
        profile.millicores,
        profile.memory_mib,
        profile.node_selector,
        profile.port,
        ports,
    )


def _close(gpus: list[Gpu], count: int) -> list[Gpu]:
    """Return `count` GPUs, from one NUMA node where that is possible (its fullest one that suffices)."""
    by_numa: dict[int | None, list[Gpu]] = {}
    for gpu in gpus:
        by_numa.setdefault(gpu.numa_node, []).append(gpu)
    enough = [(len(g), g[0].index, g) for numa, g in by_numa.items() if numa is not None and len(g) >= count]
    if enough and count:
        return min(enough, key=lambda e: e[:2])[2][:count]
    return gpus[:count]
