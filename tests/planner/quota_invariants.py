"""What must hold of every plan of a world with quotas, whoever made it; numbered as the rules number them."""

from __future__ import annotations

from collections import Counter

from .reference import Result
from .reference_world import (
    CLASSES,
    World,
    cover,
    free_room,
    held,
    limits_met,
    potential,
    take,
    uses,
    within,
)


def i01_capacity(world: World, result: Result) -> None:
    """Check that no node holds more than it has; a gang is on distinct nodes of its class."""
    for name, room in free_room(world, result.final).items():
        assert min(room) >= 0, f"1: {name} is overbooked: {room}"
    classes = {n.name: n.gpu_class for n in world.nodes}
    for replica in result.final:
        profile = world.profile(replica)
        assert len(set(replica.places)) == profile.nodes, f"1: {replica}"
        assert profile.gpu_class is None or {classes[p] for p in replica.places} == {profile.gpu_class}, f"1: {replica}"


def i02_sums(world: World, result: Result) -> None:
    """Check that what a scope holds is its own models' replicas and its children's; shared ones count nowhere."""
    for scope in world.scopes:
        own: Counter[str] = Counter()
        for replica in result.final:
            if world.model(replica.model).owner == scope.name:
                own.update(world.size(replica))
        for child in world.scopes:
            if child.parent == scope.name:
                own.update(result.held[child.name])
        assert +own == +result.held[scope.name], f"2: {scope.name}"


def i03_limit(world: World, result: Result) -> None:
    """Check that what a start takes is within every limit above it at the end."""
    for replica in result.started:
        for name in world.path_of(replica):
            holds = held(world, result.final, name)
            for resource, most in world.scope(name).limit.items():
                if world.size(replica)[resource] > 0:
                    assert holds[resource] <= most, f"3: {name} holds {holds[resource]} {resource} of {most}"


def i04_protection(world: World, result: Result) -> None:
    """Check that in a scope without a start, nothing that it covers is stopped."""
    before = cover(world, world.running)
    running = Counter((r.model, r.profile) for r in world.running)
    stopped = Counter((r.model, r.profile) for r in result.stopped)
    for name in _without_start(world, result):
        for group, count in Counter((r.model, r.profile) for r in before[name]).items():
            assert stopped[group] <= running[group] - count, f"4: {name} covers {count} of {group}"


def i05_keep(world: World, result: Result) -> None:
    """Check that a scope without a start covers at least what it covered."""
    before, after = cover(world, world.running), cover(world, result.final)
    for name in _without_start(world, result):
        was = Counter((r.model, r.profile) for r in before[name])
        now = Counter((r.model, r.profile) for r in after[name])
        assert not was - now, f"5: {name} covered {was}, and now {now}"


def i07_termination(world: World, result: Result) -> None:
    """Check that there are no more starts than all maxima together."""
    assert len(result.started) <= sum(m.max for m in world.models), "7"


def i08_potential(world: World, result: Result) -> None:
    """Check that the potential rises, or nothing changes."""
    if any(len(m.profiles) > 1 for m in world.models):
        return  # the order of starts inside a model, which a plan doesn't tell, counts as well
    before, after = potential(world, world.running), potential(world, result.final)
    moved = result.starts == result.stops and before == after
    assert after > before or moved or not (result.started or result.stopped), "8"


def i09_cause(world: World, result: Result) -> None:
    """Check that each stop names a minimum replica that starts in the same plan."""
    assert sum(result.stops_for.values()) == len(result.stopped), "9"
    kept = Counter(r.model for r in world.running) - result.stops
    for (victim, taker), _ in result.stops_for.items():
        assert result.starts[taker] > 0, f"9: {victim} makes room for {taker or 'nothing'}, which doesn't start"
        assert kept[taker] < world.model(taker).min, f"9: {victim} makes room for headroom of {taker}"


def i10_no_needless_stop(world: World, result: Result) -> None:
    """Check that what is stopped could not run on where it was."""
    free = free_room(world, result.final)
    running = Counter(r.model for r in result.final)
    for victim in result.stopped:
        model = world.model(victim.model)
        if running[victim.model] >= (model.max if world.fill else model.min):
            continue
        profile = world.profile(victim)
        take(free, profile, victim.places)
        fits = all(min(free[name]) >= 0 for name in victim.places)
        take(free, profile, victim.places, +1)
        assert not fits or limits_met(world, result.final, model, profile), f"10: {victim} could stay"


def i12_headroom(world: World, result: Result) -> None:
    """Check that replicas above the minimum start only where they are asked for, and never above the maximum."""
    running = Counter(r.model for r in result.final)
    for name in result.starts:
        model = world.model(name)
        assert running[name] <= (model.max if world.fill else max(model.min, running[name] - result.starts[name])), "12"


def i13_no_direct_return(world: World, result: Result) -> None:
    """Check that what is stopped and not started again is within no guarantee of a scope without a start."""
    running = Counter(r.model for r in result.final)
    quiet = _without_start(world, result)
    for victim in result.stopped:
        if running[victim.model] >= world.model(victim.model).min:
            continue
        for name in world.path_of(victim):
            guarantee = world.scope(name).guarantee
            if name in quiet and uses(world.size(victim), guarantee):
                holds = held(world, result.final, name)
                holds.update(world.size(victim))
                assert not within(holds, guarantee), f"13: {victim} could come back at {name}"


def i19_only_class_without_quotas(world: World, result: Result) -> None:
    """Check that where no scope of the taker has a guarantee, it takes lower classes, or headroom of its own."""
    running = Counter(r.model for r in (*world.running, *result.started))
    for victim, taker in result.stops_for:
        if any(world.scope(s).guarantee for s in world.path(world.model(taker).owner)):
            continue
        one, other = (CLASSES.index(world.model(m).model_class) for m in (taker, victim))
        headroom = running[victim] > world.model(victim).min
        assert one > other or (one == other and headroom), f"19, 20: {taker} takes {victim}"


def covers_as_told(world: World, result: Result) -> None:
    """Check that what is told to be guaranteed is what some scope covers."""
    if any(len(m.profiles) > 1 for m in world.models):
        return
    covered = {r for those in cover(world, result.final).values() for r in those}
    assert result.guaranteed == Counter(r.model for r in covered), "guaranteed"


INVARIANTS = (
    i01_capacity,
    i02_sums,
    i03_limit,
    i04_protection,
    i05_keep,
    i07_termination,
    i08_potential,
    i09_cause,
    i10_no_needless_stop,
    i12_headroom,
    i13_no_direct_return,
    i19_only_class_without_quotas,
    covers_as_told,
)


def _without_start(world: World, result: Result) -> set[str]:
    """Return the scopes beneath which nothing starts."""
    busy = {name for replica in result.started for name in world.path_of(replica)}
    return {s.name for s in world.scopes} - busy
