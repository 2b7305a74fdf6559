"""What must hold of every plan, over generated fleets."""

from __future__ import annotations

import random
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from llmgwctl.domain.catalog import ModelClass, Scaling
from llmgwctl.domain.inventory import Phase
from llmgwctl.domain.plan import ActionKind

from .world import EMPTY, applied, desired, host, lose, model, node, observation, plan_of, profile, see, unreachable

CLASSES = ("h100-80gb", "l4-24gb")


@st.composite
def fleets(draw):
    """Hosts of two classes, some in fabrics, and models of one or two profiles with and without gangs."""
    nodes = []
    for i in range(1, draw(st.integers(1, 4)) + 1):
        seen = node(
            f"a{i}",
            gpus=draw(st.integers(0, 8)),
            gpu_class=draw(st.sampled_from(CLASSES)),
            fabric=draw(st.sampled_from([None, "x"])),
            memory_mib=draw(st.sampled_from([None, 64 * 1024])),
            millicores=draw(st.sampled_from([None, 32000])),
        )
        sick = draw(st.sets(st.integers(0, 7), max_size=2))
        nodes.append(
            replace(seen, gpus=tuple(replace(g, health="gpu_lost") if g.index in sick else g for g in seen.gpus))
        )
    return [host(n.name) for n in nodes], draw(catalogs()), nodes


@st.composite
def catalogs(draw):
    models = []
    for name in draw(st.sets(st.sampled_from(["m", "n", "o", "p/q"]), max_size=4)):
        profiles = [
            profile(
                f"p{number}",
                draw(st.integers(1, 4)),
                gpu_class=draw(st.sampled_from(CLASSES)),
                nodes=draw(st.sampled_from([1, 1, 1, 2])),
                memory_mib=draw(st.sampled_from([0, 20 * 1024])),
                millicores=draw(st.sampled_from([0, 12000])),
                priority=draw(st.integers(0, 2)),
            )
            for number in range(draw(st.integers(1, 2)))
        ]
        low = draw(st.integers(0, 3))
        models.append(
            model(
                name,
                *profiles,
                scaling=Scaling(low, max(1, low + draw(st.integers(0, 2)))),
                model_class=draw(st.sampled_from(list(ModelClass))),
                priority=draw(st.integers(0, 2)),
            )
        )
    return models


@given(fleets())
def test_a_plan_after_an_apply_is_empty(fleet):
    """Planning again from what an apply leaves behind finds nothing to do; plan_of checks the invariants as well."""
    hosts, models, nodes = fleet
    want, seen = desired(hosts, models), observation(*nodes)
    state, seen = applied(plan_of(want, EMPTY, seen), EMPTY, seen)
    again = plan_of(want, state, seen)
    assert again.empty
    assert again.refreshes == ()


@given(fleets(), catalogs(), st.randoms(use_true_random=False))
def test_any_change_of_the_world_settles_in_one_apply(fleet, later, chance):
    """Other models, dead and failed processes: one apply, then nothing to do; nothing healthy and wanted is touched."""
    hosts, models, nodes = fleet
    want, seen = desired(hosts, models), observation(*nodes)
    state, seen = applied(plan_of(want, EMPTY, seen), EMPTY, seen)
    hurt = set()
    for name in sorted(state.replicas):
        fate = chance.random()
        if fate < 0.2:
            seen = lose(seen, name)
            hurt.add(name)
        elif fate < 0.3:
            seen = see(seen, name, phase=Phase.FAILED)
            hurt.add(name)
    plan = plan_of(want, state, seen)
    assert {a.replica for a in plan.changes() if a.before} <= hurt
    changed = desired(hosts, later)
    state, seen = applied(plan_of(changed, state, seen), state, seen)
    assert plan_of(changed, state, seen).empty


@given(fleets(), st.data())
def test_what_is_on_an_unreachable_host_is_never_started_twice(fleet, data):
    """A host that doesn't answer keeps what is recorded there, whatever is declared."""
    hosts, models, nodes = fleet
    want, seen = desired(hosts, models), observation(*nodes)
    state, seen = applied(plan_of(want, EMPTY, seen), EMPTY, seen)
    cut = data.draw(st.sampled_from([n.name for n in nodes]))
    seen = observation(*(unreachable(n) if n.name == cut else n for n in seen.nodes))
    there = {r.id for r in state.replicas.values() if any(m.node == cut for m in r.members)}
    plan = plan_of(want, state, seen)
    assert {a.replica for a in plan.actions if a.kind is ActionKind.DEFER} == there
    assert not any(p.node == cut for a in plan.changes() for p in a.placement)


@given(fleets(), st.integers())
def test_order_of_everything_is_irrelevant(fleet, seed):
    """Shuffled hosts, models and nodes give the same plan, to the byte."""
    hosts, models, nodes = fleet
    shuffle = random.Random(seed).sample
    first = plan_of(desired(hosts, models), EMPTY, observation(*nodes))
    second = plan_of(
        desired(shuffle(hosts, len(hosts)), shuffle(models, len(models))),
        EMPTY,
        observation(*shuffle(nodes, len(nodes))),
    )
    assert first == second


@given(fleets())
def test_a_shortfall_is_never_without_a_cause(fleet):
    """Every wanted minimum replica starts, or is told of with at least one cause and its numbers."""
    hosts, models, nodes = fleet
    plan = plan_of(desired(hosts, models), EMPTY, observation(*nodes))
    started = {a.replica for a in plan.actions if a.starts}
    short = {s.replica for s in plan.shortfalls}
    for item in models:
        wanted = {f"{item.name}/{i}" for i in range(item.scaling.min)}
        assert wanted == {r for r in started | short if r.rpartition("/")[0] == item.name}
    for shortfall in plan.shortfalls:
        assert shortfall.causes
        assert all(c.text for c in shortfall.causes)
