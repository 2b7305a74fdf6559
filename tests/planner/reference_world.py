"""The words of the quota rules on small abstract worlds: scopes, replicas, held, cover, potential and room."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import combinations

CLASSES = ("opportunistic", "standard", "critical")
"""From the least to the most important."""

GPUS, CORES, MEMORY = "gpus", "cores", "memory_gb"
Amounts = Mapping[str, int]
"""Whole units by resource: gpus, gpu_classes.CLASS, cores, memory_gb."""


@dataclass(frozen=True)
class Node:
    name: str
    gpu_class: str = "h100"
    gpus: int = 8
    cores: int = 10**9
    memory: int = 10**9
    reachable: bool = True


@dataclass(frozen=True)
class Scope:
    """An empty mapping is no guarantee, and no limit."""

    name: str
    parent: str | None = None
    guarantee: Amounts = field(default_factory=dict)
    limit: Amounts = field(default_factory=dict)


@dataclass(frozen=True)
class Profile:
    """What each node of a replica gives to it; without a class of GPU any node will do."""

    gpus: int = 1
    nodes: int = 1
    cores: int = 0
    memory: int = 0
    gpu_class: str | None = "h100"

    @cached_property
    def size(self) -> Counter[str]:
        """What a whole replica takes."""
        size = Counter({GPUS: self.gpus, CORES: self.cores, MEMORY: self.memory})
        if self.gpu_class is not None:
            size[f"gpu_classes.{self.gpu_class}"] = self.gpus
        return Counter({resource: amount * self.nodes for resource, amount in size.items()})


@dataclass(frozen=True)
class Model:
    name: str
    owner: str | None = None
    model_class: str = "standard"
    min: int = 1
    max: int = 1
    priority: int = 0
    profiles: tuple[Profile, ...] = (Profile(),)
    prevent_stop: bool = False


@dataclass(frozen=True)
class Running:
    """One replica: the `profile`-th of its model, started as the `order`-th of all; `new` ones only by this plan."""

    model: str
    order: int
    profile: int
    places: tuple[str, ...]
    new: bool = False


Replicas = tuple[Running, ...]


@dataclass(frozen=True)
class World:
    nodes: tuple[Node, ...]
    scopes: tuple[Scope, ...]
    models: tuple[Model, ...]
    running: Replicas = ()
    fill: bool = True

    @cached_property
    def _models(self) -> dict[str, Model]:
        return {m.name: m for m in self.models}

    @cached_property
    def _scopes(self) -> dict[str, Scope]:
        return {s.name: s for s in self.scopes}

    @cached_property
    def _paths(self) -> dict[str | None, list[str]]:
        paths: dict[str | None, list[str]] = {None: []}
        for scope in self.scopes:
            paths[scope.name] = [scope.name]
            while (parent := self._scopes[paths[scope.name][-1]].parent) is not None:
                paths[scope.name].append(parent)
        return paths

    def model(self, name: str) -> Model:
        return self._models[name]

    def scope(self, name: str) -> Scope:
        return self._scopes[name]

    def path(self, owner: str | None) -> list[str]:
        """Return the owner and its ancestors, the owner first."""
        return self._paths[owner]

    def level(self, scope: str) -> int:
        """Return 1 for an org."""
        return len(self.path(scope))

    def path_of(self, replica: Running) -> list[str]:
        return self.path(self.model(replica.model).owner)

    def profile(self, replica: Running) -> Profile:
        return self.model(replica.model).profiles[replica.profile]

    def size(self, replica: Running) -> Counter[str]:
        return self.profile(replica).size

    def class_of(self, replica: Running) -> int:
        return CLASSES.index(self.model(replica.model).model_class)


def held(world: World, replicas: Replicas, scope: str) -> Counter[str]:
    """Return what the scope and all beneath it hold."""
    total: Counter[str] = Counter()
    for replica in replicas:
        if scope in world.path_of(replica):
            total.update(world.size(replica))
    return total


def within(amounts: Amounts, bound: Amounts) -> bool:
    """Whether no resource that the bound names is exceeded."""
    return all(amounts.get(resource, 0) <= most for resource, most in bound.items())


def uses(size: Amounts, named: Amounts) -> bool:
    """Whether the size takes something of a resource that is named (R1)."""
    return any(size.get(resource, 0) > 0 for resource in named)


def ranks(replicas: Replicas) -> dict[Running, int]:
    """Return each replica's place in its model by start, oldest 1."""
    seen: Counter[str] = Counter()
    found = {}
    for replica in sorted(replicas, key=lambda r: r.order):
        seen[replica.model] += 1
        found[replica] = seen[replica.model]
    return found


def importance(model: Model, rank: int) -> tuple[bool, int, int, str, int]:
    """Return a key that sorts the most important first (R2)."""
    return (rank > model.min, -CLASSES.index(model.model_class), -model.priority, model.name, rank)


def cover(world: World, replicas: Replicas) -> dict[str, set[Running]]:
    """Return which replicas each scope covers: greedy with skip, the deepest scopes first (R3)."""
    rank = ranks(replicas)
    covered: dict[str, set[Running]] = {}
    for scope in sorted(world.scopes, key=lambda s: -world.level(s.name)):
        left = Counter(scope.guarantee)
        covered[scope.name] = set()
        beneath = [r for r in replicas if scope.name in world.path_of(r)]
        deeper = {r for those in covered.values() for r in those}
        beneath.sort(key=lambda r: (r not in deeper, importance(world.model(r.model), rank[r])))
        for replica in beneath:
            size = {resource: world.size(replica)[resource] for resource in scope.guarantee}
            if uses(size, scope.guarantee) and within(size, left):
                left.subtract(size)
                covered[scope.name].add(replica)
    return covered


def potential(world: World, replicas: Replicas) -> tuple[tuple[int, ...], ...]:
    """Return Φ: what each level covers, the deepest first, then what runs, as bits over all slots of replicas."""
    rank = ranks(replicas)
    covered = cover(world, replicas)
    running = Counter(r.model for r in replicas)
    slots = [(m, i) for m in world.models for i in range(1, max(m.max, running[m.name]) + 1)]
    deeper: set[tuple[str, int]] = set()
    strings = []
    for level in range(max((world.level(s.name) for s in world.scopes), default=0), 0, -1):
        here = {(r.model, rank[r]) for name, those in covered.items() if world.level(name) == level for r in those}
        order = sorted(slots, key=lambda s: ((s[0].name, s[1]) not in deeper, importance(*s)))
        strings.append(tuple(int((m.name, i) in here) for m, i in order))
        deeper |= here
    order = sorted(slots, key=lambda s: importance(*s))
    strings.append(tuple(int(i <= running[m.name]) for m, i in order))
    return tuple(strings)


def limits_met(world: World, replicas: Replicas, model: Model, profile: Profile) -> list[str]:
    """Return the limits that one more would exceed, of what it takes (R4)."""
    met = []
    for name in world.path(model.owner):
        now = held(world, replicas, name)
        for resource, most in sorted(world.scope(name).limit.items()):
            wants = profile.size[resource]
            if wants > 0 and now[resource] + wants > most:
                met.append(f"limit:{name}:{resource}")
    return met


# Room on nodes.

Free = dict[str, list[int]]
"""Free GPUs, cores and memory by node."""


def free_room(world: World, replicas: Iterable[Running]) -> Free:
    """Return what those replicas leave of each node."""
    free = {n.name: [n.gpus, n.cores, n.memory] for n in world.nodes}
    for replica in replicas:
        take(free, world.profile(replica), replica.places)
    return free


def take(free: Free, profile: Profile, places: tuple[str, ...], sign: int = -1) -> None:
    for name in places:
        for index, amount in enumerate((profile.gpus, profile.cores, profile.memory)):
            free[name][index] += sign * amount


def sites(world: World, profile: Profile) -> list[tuple[str, ...]]:
    """Return every set of distinct nodes of the class that can be reached, by name."""
    names = sorted(
        n.name for n in world.nodes if n.reachable and (profile.gpu_class is None or n.gpu_class == profile.gpu_class)
    )
    return list(combinations(names, profile.nodes))


def fitting(world: World, free: Free, profile: Profile) -> list[tuple[str, ...]]:
    """Return the sites with room, least free GPUs first, names last."""
    need = (profile.gpus, profile.cores, profile.memory)
    found = [
        site
        for site in sites(world, profile)
        if all(have >= want for name in site for have, want in zip(free[name], need, strict=True))
    ]
    return sorted(found, key=lambda site: (sum(free[name][0] for name in site), site))


def place(
    world: World, replicas: Replicas, profile: Profile, joint: bool, only: tuple[str, ...] | None = None
) -> tuple[Replicas, tuple[str, ...]] | None:
    """Return the replicas, what this plan starts re-packed where that is needed, and the places of one more.

    What ran before stays where it is. `joint` off re-packs nothing; `only` allows one site for the one more.
    """
    for site in fitting(world, free_room(world, replicas), profile):
        if only in (None, site):
            return replicas, site
    movable = [r for r in replicas if r.new] if joint else []
    if not movable:
        return None
    fixed = tuple(r for r in replicas if not r.new)
    free = free_room(world, fixed)
    for site in fitting(world, free, profile):
        if only in (None, site):
            take(free, profile, site)
            packed = next(packings(world, free, movable), None)
            take(free, profile, site, +1)
            if packed is not None:
                return fixed + packed, site
    return None


def packings(world: World, free: Free, replicas: list[Running]) -> Iterator[Replicas]:
    """Yield every way to place the replicas in the free room; of like ones only one order."""
    ordered = sorted(replicas, key=lambda r: (_largest_first(world.profile(r)), r.order))

    def rest(index: int, done: Replicas) -> Iterator[Replicas]:
        if index == len(ordered):
            yield done
            return
        profile = world.profile(ordered[index])
        like = index > 0 and world.profile(ordered[index - 1]) == profile
        for site in sorted(fitting(world, free, profile)):
            if like and site < done[-1].places:
                continue
            take(free, profile, site)
            yield from rest(index + 1, (*done, replace(ordered[index], places=site)))
            take(free, profile, site, +1)

    return rest(0, ())


def _largest_first(profile: Profile) -> tuple[object, ...]:
    size = profile.size
    return (-size[GPUS], -size[CORES], -size[MEMORY], profile.nodes, profile.gpu_class or "")
