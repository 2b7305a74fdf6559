"""A small, slow, literal planner of the quota rules, to judge the real one by."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from .reference_takes import Options, Take
from .reference_world import (
    CLASSES,
    CORES,
    GPUS,
    MEMORY,
    Model,
    Profile,
    Replicas,
    Running,
    World,
    cover,
    free_room,
    held,
    limits_met,
    packings,
    place,
    potential,
    sites,
    take,
    uses,
    within,
)

PSEUDO_CODE = Options(joint=False, anywhere=False)
READINGS = tuple(
    Options(joint, anywhere, interchangeable)
    for interchangeable in (True, False)
    for joint, anywhere in ((True, True), (False, False), (True, False))
)
"""Ways to read the rules; on one node, and with one profile a model, they are the same."""


@dataclass
class Result:
    """What a plan does, in counts by model.

    `stops_for` tells for which model, `limits` every limit that a model meets, `counts` what runs at the end by model
    and profile, `guaranteed` how many replicas some scope covers.
    """

    starts: Counter[str] = field(default_factory=Counter)
    stops: Counter[str] = field(default_factory=Counter)
    stops_for: Counter[tuple[str, str]] = field(default_factory=Counter)
    refused: dict[str, str] = field(default_factory=dict)
    headroom: dict[str, str] = field(default_factory=dict)
    limits: dict[str, set[str]] = field(default_factory=dict)
    held: dict[str, Counter[str]] = field(default_factory=dict)
    covered: Counter[tuple[str, str]] = field(default_factory=Counter)
    counts: Counter[tuple[str, int]] = field(default_factory=Counter)
    guaranteed: Counter[str] = field(default_factory=Counter)
    final: Replicas = ()
    started: Replicas = ()
    stopped: Replicas = ()
    steps: int = 0


Stopped = tuple[tuple[Running, int], ...]
"""What ran before and is stopped, each with the start order of what it is stopped for."""


@dataclass(frozen=True)
class _State:
    replicas: Replicas
    stopped: Stopped = ()


def plan(world: World, options: Options = Options()) -> Result:  # noqa: B008
    """Return the plan, after the check that the potential rises with each step."""
    return _Planner(world, options).plan()


def standing(world: World) -> Result:
    """Return what would be told of a world in which nothing changes."""
    result = Result()
    _Planner(world, Options()).tell(_State(world.running), result)
    return result


class _Planner:
    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.options = options

    def plan(self) -> Result:
        state = _State(self.world.running)
        result = Result()
        while (after := self.step(state)) is not None:
            assert potential(self.world, after.replicas) > potential(self.world, state.replicas), "Φ does not rise"
            state = after
            result.steps += 1
            assert result.steps < 1000, "no end"
        self.tell(state, result)
        return result

    def step(self, state: _State) -> _State | None:
        """Return the state after the first candidate that can start or take (R8, R10)."""
        running = Counter(r.model for r in state.replicas)
        short = [m for m in self.world.models if running[m.name] < m.max]
        for model in sorted(short, key=lambda m: self.admission_key(state, m)):
            minimum = running[model.name] < model.min
            if not minimum and not self.world.fill:
                continue
            after = self.free_start(state, model) or (self.take(state, model) if minimum else None)
            if after is not None:
                return after
        return None

    def admission_key(self, state: _State, model: Model) -> tuple[object, ...]:
        running = sum(r.model == model.name for r in state.replicas)
        size = model.profiles[0].size
        return (
            running >= model.min,
            not any(self.has_room(state.replicas, model, profile) for profile in model.profiles),
            -CLASSES.index(model.model_class),
            -model.priority,
            (-size[GPUS], -size[CORES], -size[MEMORY]),
            model.name,
        )

    def has_room(self, replicas: Replicas, model: Model, profile: Profile) -> bool:
        """Whether one more is within a guarantee of its scopes."""
        for name in self.world.path(model.owner):
            guarantee = self.world.scope(name).guarantee
            if uses(profile.size, guarantee):
                after = held(self.world, replicas, name)
                after.update(profile.size)
                if within(after, guarantee):
                    return True
        return False

    # Starts and takes.

    def free_start(self, state: _State, model: Model) -> _State | None:
        """Try all profiles in order on free room (R5)."""
        for index, profile in enumerate(model.profiles):
            if limits_met(self.world, state.replicas, model, profile):
                continue
            placed = place(self.world, state.replicas, profile, self.options.joint)
            if placed is not None:
                replicas, places = placed
                return replace(state, replicas=(*replicas, self.next_of(state, model, index, places)))
        return None

    def next_of(self, state: _State, model: Model, profile: int, places: tuple[str, ...]) -> Running:
        return Running(model.name, self.next_order(state), profile, places, new=True)

    def next_order(self, state: _State) -> int:
        return max((r.order for r in (*state.replicas, *(v for v, _ in state.stopped))), default=0) + 1

    def take(self, state: _State, model: Model) -> _State | None:
        """Take the best valid set for the first profile that has one (R6, R7)."""
        for index in range(len(model.profiles)):
            order = self.next_order(state)
            takes = [
                Take(self.world, self.options, state.replicas, order, model, index, only)
                for only in self.reach(model, index)
            ]
            found = [best for one in takes if (best := one.best()) is not None]
            if found:
                _, victims, replicas, places = min(found, key=lambda best: best[0])
                after = (*replicas, self.next_of(state, model, index, places))
                return _State(after, self.stopped_after(state, victims, order))
        return None

    def reach(self, model: Model, profile: int) -> list[tuple[str, ...] | None]:
        if self.options.anywhere:
            return [None]
        return [*sites(self.world, model.profiles[profile]), None]

    def stopped_after(self, state: _State, victims: Replicas, order: int) -> Stopped:
        """Return all that is stopped; what one of this plan's own had taken is now taken for who displaces it."""
        displaced = {v.order for v in victims if v.new}
        kept = tuple((v, order if taker in displaced else taker) for v, taker in state.stopped)
        return (*kept, *((v, order) for v in victims if not v.new))

    # What is told.

    def tell(self, state: _State, result: Result) -> None:
        world = self.world
        replicas, stopped = self.settled(state)
        result.started = tuple(replace(r, new=False) for r in replicas if r.new)
        result.stopped = tuple(v for v, _ in stopped)
        result.starts = Counter(r.model for r in result.started)
        result.stops = Counter(v.model for v in result.stopped)
        takers = {r.order: r.model for r in state.replicas}
        result.stops_for = Counter((v.model, takers[order]) for v, order in stopped)
        result.final = tuple(replace(r, new=False) for r in replicas)
        result.counts = Counter((r.model, r.profile) for r in replicas)
        result.held = {s.name: held(world, replicas, s.name) for s in world.scopes}
        covered = cover(world, replicas)
        result.covered = Counter((r.model, scope) for scope, those in covered.items() for r in those)
        result.guaranteed = Counter(r.model for r in {r for those in covered.values() for r in those})
        running = Counter(r.model for r in replicas)
        for model in world.models:
            if running[model.name] < model.min:
                result.refused[model.name] = self.reason(replicas, model, result)
            elif running[model.name] < model.max and world.fill:
                limits = self.limits_of(replicas, model, result)
                result.headroom[model.name] = limits[0] if limits else "no_free_capacity"

    def settled(self, state: _State) -> tuple[Replicas, list[tuple[Running, int]]]:
        """Let as many as possible of what is stopped and started again stay where it was (R10)."""
        new = [r for r in state.replicas if r.new]
        fixed = tuple(r for r in state.replicas if not r.new)
        best: tuple[Replicas, list[tuple[Running, int]]] | None = None
        free = free_room(self.world, fixed)
        for packed in packings(self.world, free, new) if self.options.joint else [tuple(new)]:
            replicas, left = _cancelled(packed, state.stopped)
            if best is None or len(left) < len(best[1]):
                best = (*fixed, *replicas), left
            if not any(v.model == r.model for v, _ in best[1] for r in best[0] if r.new):
                break
        assert best is not None, "what was admitted does not fit"
        return best

    def limits_of(self, replicas: Replicas, model: Model, result: Result) -> list[str]:
        """Return the limits that stop a model: it has to meet one with each profile that some node could hold."""
        met = [limits_met(self.world, replicas, model, p) for p in model.profiles if self.could_fit(p)]
        result.limits[model.name] = {limit for limits in met for limit in limits}
        return met[0] if met and all(met) else []

    def could_fit(self, profile: Profile) -> bool:
        return place(self.world, (), profile, joint=False) is not None

    def reason(self, replicas: Replicas, model: Model, result: Result) -> str:
        """Return the first reason that applies (R11)."""
        if not any(self.could_fit(p) for p in model.profiles):
            return "fits_no_node"
        if limits := self.limits_of(replicas, model, result):
            return limits[0]
        if not any(self.world.scope(name).guarantee for name in self.world.path(model.owner)):
            return "no_guarantee"
        inside = [p for p in model.profiles if self.could_fit(p) and self.has_room(replicas, model, p)]
        if not inside:
            return "beyond_guarantee"
        return "fragmented" if any(self.enough_in_sum(replicas, p) for p in inside) else "guarantees_full"

    def enough_in_sum(self, replicas: Replicas, profile: Profile) -> bool:
        """Whether what is free and what is borrowed would do, were it on one node of the class."""
        reachable = {n.name for n in self.world.nodes if n.reachable}
        free = free_room(self.world, replicas)
        safe = {r for those in cover(self.world, replicas).values() for r in those}
        for replica in replicas:
            if replica not in safe and reachable.issuperset(replica.places):
                take(free, self.world.profile(replica), replica.places, +1)
        total = [sum(free[name][index] for name in reachable) for index in range(3)]
        size = profile.size
        return all(size[r] <= have for r, have in zip((GPUS, CORES, MEMORY), total, strict=True) if size[r] > 0)


def _cancelled(packed: Replicas, stopped: Stopped) -> tuple[Replicas, list[tuple[Running, int]]]:
    """Return what runs and what is stopped once what is started where it was stopped is neither.

    What such a one had taken was taken for the one that had taken its place.
    """
    left, out, heirs = list(stopped), [], {}
    for replica in packed:
        same = [s for s in left if _alike(s[0], replica)]
        if same:
            oldest = min(same, key=lambda s: s[0].order)
            left.remove(oldest)
            heirs[replica.order] = oldest[1]
        out.append(oldest[0] if same else replica)
    for _ in heirs:
        left = [(victim, heirs.get(taker, taker)) for victim, taker in left]
    return tuple(out), left


def _alike(one: Running, other: Running) -> bool:
    return (one.model, one.profile, one.places) == (other.model, other.profile, other.places)
