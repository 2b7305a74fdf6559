"""The reference planner itself: it gives what the shared cases and the rules' worked examples say."""

from __future__ import annotations

from dataclasses import replace

import pytest

from .quota_cases import Case, amounts, cases, counted, plain
from .reference import Options, Result, plan
from .reference_world import Model, Node, Profile, Running, Scope, World, cover

READINGS = [Options(), Options(joint=False, anywhere=False)]
"""The rules' words, and their pseudo-code."""


@pytest.mark.skipif(not cases(), reason="the shared quota cases are not here")
@pytest.mark.parametrize("options", READINGS, ids=["words", "pseudo-code"])
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_every_shared_case_comes_out_as_it_says(case: Case, options: Options):
    """Counts, reasons, what scopes hold and cover; planning again finds nothing to do."""
    result = plan(case.world, options)
    expect = case.expect
    assert named(result.starts) == counted(expect["start"])
    assert named(result.stops) == counted(expect["stop"])
    assert named(result.refused) == {r["model"]: r["reason"] for r in expect["refused"]}
    if "headroom_stops" in expect:
        assert named(result.headroom) == {r["model"]: r["reason"] for r in expect["headroom_stops"]}
    for scope, held in expect["held_after"].items():
        assert {r: result.held[scope][r] for r in held} == amounts(held), scope
    covered = {(plain(model), scope): count for (model, scope), count in result.covered.items()}
    assert covered == {(m, s): n for m, of in expect["covered_after"].items() for s, n in of.items()}
    again = plan(replace(case.world, running=result.final), options)
    assert (again.starts, again.stops) == ({}, {})


@pytest.fixture(params=READINGS, ids=["words", "pseudo-code"])
def options(request) -> Options:
    return request.param


def test_borrowed_is_given_back(options):
    """An org's two replicas beyond its guarantee go for another's claim, in the order of starts; no more than that."""
    result = plan_of(
        options,
        [Node("n", gpus=8)],
        [Scope("a", guarantee={"gpus": 4}), Scope("b", guarantee={"gpus": 4})],
        [model("x", "a", 2, min=4), model("y", "b", 2, min=3)],
        ["x"] * 4,
    )
    assert (result.starts, result.stops) == ({"y": 2}, {"x": 2})
    assert result.refused == {"x": "beyond_guarantee", "y": "beyond_guarantee"}
    assert result.covered == {("x", "a"): 2, ("y", "b"): 2}
    assert result.stops_for == {("x", "y"): 2}


def test_a_straddler_is_taken_whole_and_cannot_come_back(options):
    """4 GPUs on a guarantee of 2 are not covered at all; afterwards 2 GPUs stay free."""
    result = plan_of(
        options,
        [Node("n", gpus=4)],
        [Scope("a", guarantee={"gpus": 2}), Scope("b", guarantee={"gpus": 4})],
        [model("x", "a", 4), model("y", "b", 2)],
        ["x"],
    )
    assert (result.starts, result.stops) == ({"y": 1}, {"x": 1})
    assert result.refused == {"x": "beyond_guarantee"}


def test_what_a_team_covers_comes_first_in_its_org(options):
    """The org passes over its other team's critical replica, which is therefore borrowed."""
    result = plan_of(
        options,
        [Node("n", gpus=3)],
        [
            Scope("a", guarantee={"gpus": 2}),
            Scope("ta", "a", {"gpus": 2}),
            Scope("tb", "a"),
            Scope("b", guarantee={"gpus": 1}),
        ],
        [model("x", "ta", min=2), model("c", "tb", model_class="critical"), model("y", "b")],
        ["x", "x", "c"],
    )
    assert (result.starts, result.stops) == ({"y": 1}, {"c": 1})
    assert result.refused == {"c": "beyond_guarantee"}


@pytest.mark.parametrize(("gpus", "stops"), [(2, {"s": 1}), (4, {})])
def test_class_inside_a_scope_takes_what_it_is_covered_for(options, gpus, stops):
    """A critical replica takes its own team's covered one only if the guarantee covers it afterwards."""
    result = plan_of(
        options,
        [Node("n", gpus=max(2, gpus))],
        [Scope("t", guarantee={"gpus": 2})],
        [model("s", "t", 2), model("c", "t", gpus, model_class="critical")],
        ["s"],
    )
    assert result.stops == stops
    assert result.refused == {"s" if stops else "c": "beyond_guarantee"}


def test_class_takes_from_the_same_owner_first(options):
    """The own covered standard replica goes before another owner's uncovered one."""
    result = plan_of(
        options,
        [Node("n", gpus=4)],
        [Scope("t", guarantee={"gpus": 2})],
        [model("s", "t", 2), model("f", None, 2), model("c", "t", 2, model_class="critical")],
        ["s", "f"],
    )
    assert (result.starts, result.stops) == ({"c": 1}, {"s": 1})


def test_a_limit_refuses_though_gpus_are_free(options):
    """Five of six are held, and three of eight are free: a replica of two is refused by the org's limit."""
    result = plan_of(
        options,
        [Node("n", gpus=8)],
        [Scope("o", limit={"gpus": 6}), Scope("t", "o")],
        [model("x", "t", 5), model("y", "t", 2)],
        ["x"],
    )
    assert (result.starts, result.stops) == ({}, {})
    assert result.refused == {"y": "limit:o:gpus"}


def test_a_guaranteed_team_takes_inside_the_limit(options):
    """The shortage is a limit, so a sibling's replica goes although nodes have room, on whatever node."""
    result = plan_of(
        options,
        [Node("n1", gpus=8), Node("n2", gpus=2)],
        [Scope("o", limit={"gpus": 4}), Scope("ta", "o", {"gpus": 2}), Scope("tb", "o")],
        [model("x", "tb", 2, min=2), model("y", "ta", 2)],
        [("x", "n1"), ("x", "n2")],
    )
    assert (result.starts, result.stops) == ({"y": 1}, {"x": 1})
    assert result.refused == {"x": "limit:o:gpus"}


def test_a_limit_on_what_a_replica_does_not_take_cannot_refuse_it(options):
    """A scope far over its GPU limit still starts what needs no GPU."""
    result = plan_of(
        options,
        [Node("n", gpus=4, cores=8)],
        [Scope("o", limit={"gpus": 1})],
        [model("x", "o", 4), Model("cpu", "o", profiles=(Profile(0, cores=4, gpu_class=None),))],
        ["x"],
    )
    assert result.starts == {"cpu": 1}


def test_a_guarantee_speaks_only_of_what_uses_it(options):
    """A guarantee of GPUs neither covers nor lets claim a model without GPUs."""
    small = (Profile(0, cores=8, gpu_class=None),)
    result = plan_of(
        options,
        [Node("n", gpus=4, cores=8)],
        [Scope("a", guarantee={"gpus": 4}), Scope("b", guarantee={"cores": 8})],
        [Model("x", "a", profiles=small), Model("y", "b", profiles=small)],
        ["x"],
    )
    assert (result.starts, result.stops) == ({"y": 1}, {"x": 1})
    assert result.refused == {"x": "beyond_guarantee"}


def test_headroom_starts_in_free_room_and_gives_way_first(options):
    """A minimum of equal class takes uncovered headroom; headroom itself takes nothing."""
    world = [Node("n", gpus=4)], [Scope("a"), Scope("b")]
    filled = plan_of(options, *world, [model("x", "a", min=1, max=9)], [])
    assert (filled.starts, filled.headroom) == ({"x": 4}, {"x": "no_free_capacity"})
    result = plan_of(options, *world, [model("x", "a", min=1, max=9), model("y", "b", 2)], ["x"] * 4)
    assert (result.starts, result.stops) == ({"y": 1}, {"x": 2})
    none = plan_of(options, *world, [model("x", "a"), model("y", "b", min=0, max=4)], ["y"] * 4)
    assert (none.starts, none.stops) == ({"x": 1}, {"y": 1})
    assert plan_of(options, *world, [model("x", "a", 4), model("y", "b", min=0)], ["x"]).stops == {}


def test_class_takes_across_scopes_what_nobody_covers(options):
    """A critical model takes another org's borrowed standard one; priority alone takes nothing."""
    world = [Node("n", gpus=2)], [Scope("a"), Scope("b")]
    result = plan_of(options, *world, [model("x", "a", 2), model("y", "b", 2, model_class="critical")], ["x"])
    assert (result.starts, result.stops) == ({"y": 1}, {"x": 1})
    result = plan_of(options, *world, [model("x", "a", 2), model("y", "b", 2, priority=9)], ["x"])
    assert (result.starts, result.stops, result.refused) == ({}, {}, {"y": "no_guarantee"})


def test_what_a_guarantee_holds_is_admitted_before_a_class(options):
    """The one free place goes to the standard model within its guarantee, not to the borrowing critical one."""
    result = plan_of(
        options,
        [Node("n", gpus=1)],
        [Scope("a", guarantee={"gpus": 1}), Scope("b")],
        [model("s", "a"), model("c", "b", model_class="critical")],
        [],
    )
    assert result.starts == {"s": 1}
    assert result.refused == {"c": "no_guarantee"}


def test_larger_replicas_are_admitted_first_among_equals(options):
    """Names come last: the large one starts although its name is later."""
    result = plan_of(options, [Node("n", gpus=4)], [], [model("a", None), model("b", None, 4)], [])
    assert result.starts == {"b": 1}


def test_a_shared_replica_shields_nothing_and_claims_nothing(options):
    """Its class doesn't help a model without an owner against a claim."""
    world = [Node("n", gpus=1)], [Scope("a", guarantee={"gpus": 1})]
    result = plan_of(options, *world, [model("s", None, model_class="critical"), model("x", "a")], ["s"])
    assert (result.starts, result.stops, result.refused) == ({"x": 1}, {"s": 1}, {"s": "no_guarantee"})


def test_a_gang_takes_on_each_of_its_nodes_or_not_at_all(options):
    """Both nodes' borrowers go for a gang's claim; where one is covered, neither does."""
    nodes = [Node("n1", gpus=2), Node("n2", gpus=2)]
    gang = Model("g", "a", profiles=(Profile(2, 2),))
    borrowers = [model("x", "b", 2), model("y", "b", 2)]
    scopes = [Scope("a", guarantee={"gpus": 4}), Scope("b")]
    result = plan_of(options, nodes, scopes, [gang, *borrowers], [("x", "n1"), ("y", "n2")])
    assert (result.starts, result.stops) == ({"g": 1}, {"x": 1, "y": 1})
    scopes = [Scope("a", guarantee={"gpus": 4}), Scope("b", guarantee={"gpus": 2})]
    result = plan_of(options, nodes, scopes, [gang, *borrowers], [("x", "n1"), ("y", "n2")])
    assert (result.stops, result.refused) == ({}, {"g": "guarantees_full"})


def test_enough_in_pieces_is_fragmented(options):
    """Two nodes with two free each don't hold four, and nothing is stopped for it."""
    result = plan_of(
        options,
        [Node("n1", gpus=4), Node("n2", gpus=4)],
        [Scope("a", guarantee={"gpus": 4}), Scope("b", guarantee={"gpus": 4})],
        [model("x", "b", 2, min=2), model("y", "a", 4)],
        [("x", "n1"), ("x", "n2")],
    )
    assert (result.stops, result.refused) == ({}, {"y": "fragmented"})


def test_a_victim_that_finds_other_room_moves(options):
    """It is stopped and started; the counts say both, and nothing is refused."""
    result = plan_of(
        options,
        [Node("n1", gpus=4), Node("n2", gpus=2)],
        [Scope("a", guarantee={"gpus": 4}), Scope("b")],
        [model("x", "b", 2), model("y", "a", 4)],
        [("x", "n1")],
    )
    assert (result.starts, result.stops, result.refused) == ({"x": 1, "y": 1}, {"x": 1}, {})


def test_a_guarantee_of_one_gpu_class_counts_that_class_only(options):
    """A replica on the class is covered, and one on another class is not."""
    nodes = [Node("n1", "h100", 1), Node("n2", "l4", 1)]
    scopes = [Scope("a", guarantee={"gpu_classes.h100": 1}), Scope("b", guarantee={"gpus": 2})]
    low = Model("l", "a", profiles=(Profile(1, gpu_class="l4"),))
    others = [Model("p", "b", profiles=(Profile(1),)), Model("q", "b", profiles=(Profile(1, gpu_class="l4"),))]
    result = plan_of(options, nodes, scopes, [model("h", "a"), low, *others], [("h", "n1"), ("l", "n2")])
    assert (result.starts, result.stops) == ({"q": 1}, {"l": 1})
    assert result.refused == {"l": "beyond_guarantee", "p": "guarantees_full"}


def test_what_must_not_or_cannot_be_stopped_is_no_victim(options):
    """A protected model, and what runs on a host that doesn't answer, stay although they are borrowed."""
    scopes = [Scope("a", guarantee={"gpus": 2}), Scope("b")]
    kept = [replace(model("x", "b", 2), prevent_stop=True), model("y", "a", 2)]
    result = plan_of(options, [Node("n", gpus=2)], scopes, kept, ["x"])
    assert (result.starts, result.stops) == ({}, {})
    nodes = [Node("n", gpus=2, reachable=False), Node("o", gpus=1)]
    result = plan_of(options, nodes, scopes, [model("x", "b", 2), model("y", "a", 2)], ["x"])
    assert (result.starts, result.stops) == ({}, {})


def test_all_that_fits_at_once_takes_nothing():
    """What this plan starts is packed again before anybody is looked at as a victim."""
    world = (
        [Node("n1", gpus=3), Node("n2", gpus=4)],
        [Scope("a", guarantee={"gpus": 4}), Scope("b")],
        [model("big", "a", 2, model_class="critical"), model("late", "a", 2, min=2), model("old", "b", 1)],
        [("old", "n1")],
    )
    result = plan_of(Options(), *world)
    assert (result.starts, result.stops, result.refused) == ({"big": 1, "late": 2}, {}, {})


def test_cover_is_greedy_with_skip():
    """A large replica that doesn't fit the guarantee hides none behind it."""
    models = [model("big", "t", 2, priority=5), model("small", "t")]
    running = (Running("big", 1, 0, ("n",)), Running("small", 2, 0, ("n",)))
    world = World((Node("n"),), (Scope("t", guarantee={"gpus": 1}),), tuple(models), running)
    assert {r.model for r in cover(world, running)["t"]} == {"small"}


def model(name: str, owner: str | None, gpus: int = 1, **changes: object) -> Model:
    minimum = changes.get("min", 1)
    return Model(name, owner, profiles=(Profile(gpus),), **({"max": max(1, minimum)} | changes))


def plan_of(options: Options, nodes, scopes, models, running) -> Result:
    """Return the plan and check that a second one has nothing to do; a bare name runs on the first node."""
    at = [(r, nodes[0].name) if isinstance(r, str) else r for r in running]
    replicas = tuple(Running(name, order, 0, (place,)) for order, (name, place) in enumerate(at, 1))
    world = World(tuple(nodes), tuple(scopes), tuple(models), replicas)
    result = plan(world, options)
    again = plan(replace(world, running=result.final), options)
    assert (again.starts, again.stops) == ({}, {})
    return result


def named(of):
    return {plain(name): value for name, value in of.items()}
