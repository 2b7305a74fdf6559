"""Who gives way: the cheapest set of running replicas whose stop lets a minimum replica start (rules R6 and R7)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

from llmgwctl.domain.catalog import Profile
from llmgwctl.planner.ledger import Group, Holding, Ledger
from llmgwctl.planner.placement import Fleet, Nodes
from llmgwctl.planner.potential import rises
from llmgwctl.planner.rooms import Room
from llmgwctl.planner.waits import Place

EXACT_SETS = 4096
"""Sets of victims tried on one node before the search turns greedy; a node of eight replicas has at most 256."""

Coarse = tuple[int, int, int, int]
Rating = tuple[tuple[Coarse, ...], int, int, tuple[tuple[object, ...], ...], int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Tenant:
    """A replica that runs, or is to run, and the room that its stop gives back; `fixed` ones are never victims."""

    holding: Holding
    places: tuple[Place, ...]
    fixed: bool = False

    @property
    def replica(self) -> str:
        """Its name."""
        return self.holding.replica


@dataclass(frozen=True, slots=True)
class Ground:
    """Why a victim gives way: a scope's claim to its guarantee, or a class that goes first."""

    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Take:
    """Stops that let a replica start: on `nodes` (nothing: wherever there is room), with a ground for each victim."""

    profile: Profile
    nodes: tuple[str, ...]
    grounds: Mapping[str, Ground]


def find_take(
    start: Holding,
    profile: Profile,
    ports: int,
    ledger: Ledger,
    fleet: Fleet,
    tenants: Mapping[str, Tenant],
    avoid: Nodes,
) -> Take | None:
    """Return the best valid set for one profile; `start` is what the replica would hold with it."""
    return _Search(start, profile, ports, ledger, fleet, tenants, avoid).best()


class _Search:
    """One search; its candidates are those that may give way at all, by what can be said of each alone."""

    def __init__(
        self,
        start: Holding,
        profile: Profile,
        ports: int,
        ledger: Ledger,
        fleet: Fleet,
        tenants: Mapping[str, Tenant],
        avoid: Nodes,
    ) -> None:
        self.start, self.profile, self.ports, self.avoid = start, profile, ports, avoid
        self.ledger, self.fleet, self.tenants = ledger, fleet, tenants
        self.path = ledger.path(start.owner)
        self.claimable = [
            s for s in self.path if any(start.takes(resource) for resource, _ in ledger.quota(s).guarantee)
        ]
        self.found: tuple[Rating, Take] | None = None
        self.slack: dict[Group, int] = {}
        self.roles: dict[Group, list[Holding]] = {}
        self.coarse: dict[str, Coarse] = {}
        self.usable: dict[str, set[str]] = {}
        self.by_node: dict[str, list[Tenant]] = {}
        with ledger.supposing((), start):
            self.beyond = frozenset(s for s in self.path if ledger.beyond(s))
            self.claims = [s for s in self.claimable if s not in self.beyond]
        for tenant in tenants.values():
            if not tenant.fixed and self._may_give_way(tenant.holding):
                for place in tenant.places:
                    self.by_node.setdefault(place.node, []).append(tenant)

    def best(self) -> Take | None:
        """Return the best valid set of all nodes and node sets."""
        if not self.by_node:
            return None
        hit = self.ledger.limit_hit(self.start.owner, self.start.amount, self.start.gpu_class)
        if hit and self.fleet.finds(self.profile, self.ports, self.avoid):
            beneath = {h.replica for h in self.ledger.beneath(hit.scope)}
            self._greedy([t for t in self._all() if t.replica in beneath], ())
        if self.profile.nodes > 1:
            for rooms in self.fleet.fabrics(self.profile, self.avoid):
                self._gang(rooms)
        else:
            for room in self.fleet.rooms.values():
                if room.name in self.by_node and room.name not in self.avoid:
                    self._node(room)
        return self.found[1] if self.found else None

    # -- what can be said of one replica --------------------------------------------------------------------------

    def _may_give_way(self, victim: Holding) -> bool:
        theirs = self.ledger.path(victim.owner)
        role = self._role(victim.group, 0)
        if not any(s not in theirs for s in self.claimable) and not self._goes_before(role):
            return False
        return self._slack(victim) > 0

    def _role(self, group: Group, number: int) -> Holding:
        """Return the member of a group that is lost when so many went before: its least important one.

        Replicas of a group are interchangeable (R3): whichever is stopped, those that stay take the better ranks.
        """
        if group not in self.roles:
            members = [h for h in self.ledger.of_model(group[0]) if h.profile == group[1]]
            self.roles[group] = members[::-1]
        return self.roles[group][number]

    def _roles(self, chosen: Sequence[Tenant]) -> dict[str, Holding]:
        """Return, for each victim, the member of its group that it stands for."""
        before: Counter[Group] = Counter()
        roles = {}
        for victim in sorted((t.holding for t in chosen), key=lambda v: -self.ledger.rank(v.replica)):
            roles[victim.replica] = self._role(victim.group, before[victim.group])
            before[victim.group] += 1
        return roles

    def _goes_before(self, victim: Holding) -> bool:
        mine, their = self.start.model_class.rank, victim.model_class.rank
        return mine < their or (mine == their and not self.ledger.is_minimum(victim))

    def _slack(self, victim: Holding) -> int:
        """Return how many of a group no scope outside the path covers: only so many may go (R6.2)."""
        if victim.group not in self.slack:
            running = Counter(h.profile for h in self.ledger.of_model(victim.model))[victim.profile]
            outside = [s for s in self.ledger.path(victim.owner) if s not in self.path]
            covered = max((self.ledger.cover_counts(s)[victim.group] for s in outside), default=0)
            self.slack[victim.group] = running - covered
        return self.slack[victim.group]

    def _key(self, victim: Holding) -> Coarse:
        """Return how precious a replica is (R7's k1 to k4), as if it gave way alone."""
        if victim.replica not in self.coarse:
            theirs = self.ledger.path(victim.owner)
            if any(s not in theirs for s in self.claims):
                own = int(self._outermost(theirs) in self.beyond)
            else:
                own = int(victim.owner != self.start.owner)
            level, minimum = self.ledger.covering_level(victim), self.ledger.is_minimum(victim)
            self.coarse[victim.replica] = (int(minimum), own, level, -victim.model_class.rank)
        return self.coarse[victim.replica]

    def _outermost(self, theirs: Collection[str]) -> str:
        """Return the outermost scope of the start that guarantees something and isn't a victim's, too."""
        guaranteed = (s for s in reversed(self.path) if any(amount for _, amount in self.ledger.quota(s).guarantee))
        return next((s for s in guaranteed if s not in theirs), "")

    def _all(self) -> list[Tenant]:
        unique = {t.replica: t for tenants in self.by_node.values() for t in tenants}
        return sorted(unique.values(), key=self._order)

    def _order(self, tenant: Tenant) -> tuple[object, ...]:
        """Return the order in which single replicas are offered: the least precious first."""
        role = self._role(tenant.holding.group, 0)
        return (self._key(role), tenant.holding.amount.gpus, self._single(tenant.holding))

    def _single(self, victim: Holding) -> tuple[object, ...]:
        return (victim.priority, _later_first(victim.model), -self.ledger.rank(victim.replica))

    # -- sets -----------------------------------------------------------------------------------------------------

    def _node(self, room: Room) -> None:
        """Try every set of a node's replicas, by groups; greedily where there are too many."""
        groups: dict[Group, list[Tenant]] = {}
        for tenant in sorted(self.by_node[room.name], key=self._order):
            groups.setdefault(tenant.holding.group, []).append(tenant)
        most = [min(len(g), self.slack[name]) for name, g in groups.items()]
        everything = [t for g, n in zip(groups.values(), most, strict=True) for t in g[:n]]
        if not self._fits(room, everything):
            return
        if prod(n + 1 for n in most) > EXACT_SETS:
            self._greedy(sorted(everything, key=self._order), (room,))
            return
        sets = []
        for counts in product(*(range(n + 1) for n in most)):
            chosen = [t for g, n in zip(groups.values(), counts, strict=True) for t in g[:n]]
            if chosen and self._fits(room, chosen):
                sets.append((self._lower_bound(chosen), chosen))
        for bound, chosen in sorted(sets, key=lambda s: s[0]):
            if self.found and bound > self.found[0][:3]:
                break
            self._consider(chosen, (room,))

    def _gang(self, rooms: Sequence[Room]) -> None:
        names = {r.name for r in rooms}
        self._greedy([t for t in self._all() if any(place.node in names for place in t.places)], rooms)

    def _greedy(self, offered: Sequence[Tenant], rooms: Sequence[Room]) -> None:
        """Add victims in order until the set is valid, then give back in reverse those that it can do without."""
        chosen: list[Tenant] = []
        left = dict(self.slack)
        for tenant in offered:
            if left[tenant.holding.group] <= 0:
                continue
            left[tenant.holding.group] -= 1
            chosen.append(tenant)
            if self._seats(chosen, rooms) is None:
                continue
            # What only stands in the way of a ground is given back first; and what makes no room may be the ground.
            sets = (self._without_idle(chosen, rooms), chosen) if rooms else (chosen,)
            needed = next((s for s in sets if self._grounds(s) is not None), [])
            if needed:
                break
        else:
            return
        for tenant in reversed(tuple(needed)):
            fewer = [t for t in needed if t is not tenant]
            if fewer and self._seats(fewer, rooms) is not None and self._grounds(fewer) is not None:
                needed = fewer
        self._consider(needed, rooms)

    def _without_idle(self, chosen: Sequence[Tenant], rooms: Sequence[Room]) -> list[Tenant]:
        """Return a part of a set that still makes room, the least precious first."""
        needed = list(chosen)
        for tenant in reversed(chosen):
            fewer = [t for t in needed if t is not tenant]
            if fewer and self._seats(fewer, rooms) is not None:
                needed = fewer
        return needed

    def _consider(self, chosen: Sequence[Tenant], rooms: Sequence[Room]) -> None:
        seats = self._seats(chosen, rooms)
        grounds = self._grounds(chosen)
        if seats is None or grounds is None:
            return
        rated = (*self._rating(chosen, grounds), sum(self._free(r, ()) for r in rooms if r.name in seats), seats)
        if self.found is None or rated < self.found[0]:
            self.found = (rated, Take(self.profile, seats, {r: g[0] for r, g in grounds.items()}))

    def _rating(
        self, chosen: Sequence[Tenant], grounds: Mapping[str, tuple[Ground, Coarse]]
    ) -> tuple[tuple[Coarse, ...], int, int, tuple[tuple[object, ...], ...]]:
        # Sorted from the most precious key down, tuples compare as R7 counts: fewer of the most precious, then of
        # the next, and a part of a set before the whole of it.
        keys = tuple(sorted((key for _, key in grounds.values()), reverse=True))
        singles = tuple(sorted(self._single(t.holding) for t in chosen))
        return keys, len(chosen), sum(t.holding.amount.gpus for t in chosen), singles

    def _lower_bound(self, chosen: Sequence[Tenant]) -> tuple[tuple[Coarse, ...], int, int]:
        keys = [self._key(role) for role in self._roles(chosen).values()]
        lowest = tuple(sorted(((k1, 0, k3, k4) for k1, _, k3, k4 in keys), reverse=True))
        return lowest, len(chosen), sum(t.holding.amount.gpus for t in chosen)

    # -- validity -------------------------------------------------------------------------------------------------

    def _seats(self, chosen: Sequence[Tenant], rooms: Sequence[Room]) -> tuple[str, ...] | None:
        """Return the nodes to start on: those with the least free GPUs that fit; () where any has room already."""
        if not rooms:
            return ()
        fitting = sorted((self._free(r, chosen), r.name) for r in rooms if self._fits(r, chosen))
        if len(fitting) < self.profile.nodes:
            return None
        return tuple(sorted(name for _, name in fitting[: self.profile.nodes]))

    def _free(self, room: Room, chosen: Iterable[Tenant]) -> int:
        free = {g.uuid for g in room.free(self.profile.gpu_class, self.profile.engine)}
        usable = self._usable(room)
        freed = {u for t in chosen for p in t.places if p.node == room.name for u in p.gpus if u in usable}
        return len(free | freed)

    def _usable(self, room: Room) -> set[str]:
        if room.name not in self.usable:
            self.usable[room.name] = room.usable(self.profile.gpu_class, self.profile.engine)
        return self.usable[room.name]

    def _fits(self, room: Room, chosen: Sequence[Tenant]) -> bool:
        here = [place for t in chosen for place in t.places if place.node == room.name]
        millicores = sum(p.millicores for p in here)
        memory_mib = sum(p.memory_mib for p in here)
        return (
            self.fleet.could_hold(room, self.profile)
            and self._free(room, chosen) >= self.profile.gpus_per_node
            and (room.millicores is None or self.profile.millicores <= room.millicores + millicores)
            and (room.memory_mib is None or self.profile.memory_mib <= room.memory_mib + memory_mib)
            and room.free_ports(self.ports, self.profile.port, without={p for place in here for p in place.ports})
            is not None
        )

    def _grounds(self, chosen: Sequence[Tenant]) -> dict[str, tuple[Ground, Coarse]] | None:
        """Return each victim's ground with its coarse key; None where the set is not valid (R6)."""
        ledger, start = self.ledger, self.start
        victims = [t.holding for t in chosen]
        names = [v.replica for v in victims]
        touched = {s for v in victims for s in ledger.path(v.owner)}
        covered = {s: ledger.cover_counts(s) for s in touched if s not in self.path}
        covered_before = {s: ledger.cover(s) for s in touched}
        roles = self._roles(chosen)
        level = {replica: ledger.covering_level(role) for replica, role in roles.items()}
        minimum = {replica: ledger.is_minimum(role) for replica, role in roles.items()}
        goes_before = {replica: self._goes_before(role) for replica, role in roles.items()}
        with ledger.supposing(names):
            if ledger.limit_hit(start.owner, start.amount, start.gpu_class):
                return None
            for scope, before in covered.items():
                if any(n in covered_before[scope] for n in names) and before - ledger.cover_counts(scope):
                    return None
        if not rises(ledger, names, start):
            return None
        grounds: dict[str, tuple[Ground, Coarse]] = {}
        with ledger.supposing(names, start):
            within = [s for s in self.claimable if not ledger.beyond(s)]
            for victim in victims:
                theirs = ledger.path(victim.owner)
                claim = next((s for s in within if s not in theirs), None)
                shared = [s for s in theirs if s in self.path and roles[victim.replica].replica in covered_before[s]]
                by_class = goes_before[victim.replica] and all(start.replica in ledger.cover(s) for s in shared)
                if claim is None and not by_class:
                    return None
                if claim is not None:
                    # With that victim alone gone (k2): it is outside of the scope, so nothing there is freed by it.
                    own = int(self._outermost(theirs) in self.beyond)
                    ground = Ground("claim", _claim_text(claim, start, ledger))
                else:
                    own = int(victim.owner != start.owner)
                    ground = Ground("class", _class_text(start, victim, minimum[victim.replica]))
                key = (int(minimum[victim.replica]), own, level[victim.replica], -victim.model_class.rank)
                grounds[victim.replica] = (ground, key)
        return grounds


def _later_first(name: str) -> tuple[int, ...]:
    """Return a key that sorts names from the last to the first."""
    return (*(-ord(c) for c in name), 1)


def _claim_text(scope: str, start: Holding, ledger: Ledger) -> str:
    parts = [
        f"{amount_text(resource, ledger.held(scope, resource) - start.takes(resource))} of "
        f"{amount_text(resource, most)} guaranteed {unit_of(resource)}"
        for resource, most in ledger.quota(scope).guarantee
        if start.takes(resource)
    ]
    needs = ", ".join(
        f"{amount_text(resource, start.takes(resource))} {unit_of(resource)}"
        for resource, _ in ledger.quota(scope).guarantee
        if start.takes(resource)
    )
    return f"claim {scope}: it holds {', '.join(parts)}, and {start.replica} needs {needs}"


def _class_text(start: Holding, victim: Holding, minimum: bool) -> str:
    mine, their = start.model_class.value, victim.model_class.value
    return f"class {mine} > {their}" if mine != their or minimum else f"class {mine} > {their} above its minimum"


def amount_text(resource: str, amount: int) -> str:
    """Return an amount in the unit that people know."""
    value = amount / 1000 if resource == "cores" else amount / 1024 if resource == "memory_gb" else amount
    return f"{value:g}"


def unit_of(resource: str) -> str:
    """Return what an amount is counted in."""
    if resource.startswith("gpu_classes."):
        return f"{resource.partition('.')[2]} GPUs"
    return {"gpus": "GPUs", "cores": "cores", "memory_gb": "GB of memory"}[resource]
