"""The real planner and the literal one on random worlds."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given

from .real_world import planned
from .reference import READINGS, Result, plan, standing
from .reference_world import World
from .worlds import worlds


@given(worlds(nodes=1, gangs=False, resources=False))
def test_on_one_node_with_gpus_alone_both_do_and_say_the_same(world: World):
    """The same starts, stops, takers and reasons: nothing is left open."""
    _agree(planned(world)[0], plan(world))


@given(worlds(nodes=1, gangs=False))
def test_on_one_node_with_all_resources_both_do_and_say_the_same(world: World):
    """Cores, memory and GPU classes are measured too."""
    _agree(planned(world)[0], plan(world))


@given(worlds(gangs=False, resources=False))
def test_on_several_nodes_the_same_replicas_run(world: World):
    """What runs at the end is what one reading of the rules gives; packing and which of its like stops are free."""
    _agree_with_a_reading(world)


@given(worlds())
def test_with_gangs_and_all_resources_the_same_replicas_run(world: World):
    """So it is with replicas on two nodes, classes of GPU, cores and memory."""
    _agree_with_a_reading(world)


@given(worlds())
def test_reasons_are_those_of_where_the_plan_ends(world: World):
    """Whatever was chosen, each reason and number is the one that the rules give for what then runs."""
    result, _, _ = planned(world)
    told = standing(replace(world, running=result.final))
    _same_reasons(result.refused, told.refused, told)
    _same_reasons(result.headroom, told.headroom, told)
    assert {s: +h for s, h in result.held.items()} == {s: +h for s, h in told.held.items()}


def _agree(real: Result, wanted: Result) -> None:
    assert (real.starts, real.stops) == (wanted.starts, wanted.stops)
    assert real.stops_for == wanted.stops_for
    assert real.counts == wanted.counts
    assert real.guaranteed == wanted.guaranteed
    _same_reasons(real.refused, wanted.refused, wanted)
    _same_reasons(real.headroom, wanted.headroom, wanted)


def _agree_with_a_reading(world: World) -> None:
    result, _, _ = planned(world)
    first = plan(world)
    if result.counts != first.counts:
        assert result.counts in [plan(world, options).counts for options in READINGS[1:]], first


def _same_reasons(real: dict[str, str], wanted: dict[str, str], told: Result) -> None:
    """Compare reasons; where several limits stop a model, any of them will do."""
    assert real.keys() == wanted.keys()
    for model, reason in wanted.items():
        assert real[model] == reason or (reason.startswith("limit:") and real[model] in told.limits[model]), model
