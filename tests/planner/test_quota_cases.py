"""The shared quota cases through the real planner, where they are present."""

from __future__ import annotations

import pytest

from .quota_cases import Case, amounts, cases, counted, plain
from .real_world import planned, planned_again, with_kinds


@pytest.mark.skipif(not cases(), reason="the shared quota cases are not here")
@pytest.mark.parametrize("case", cases(), ids=lambda case: case.id)
def test_every_shared_case_comes_out_as_it_says(case: Case):
    """Counts, reasons and what scopes hold; after an apply there is nothing to do."""
    world, names = with_kinds(case.world)
    result, plan, given = planned(world)
    expect = case.expect
    assert named(result.starts) == counted(expect["start"])
    assert named(result.stops) == counted(expect["stop"])
    assert told(result.refused, names) == {r["model"]: r["reason"] for r in expect["refused"]}
    if "headroom_stops" in expect:
        assert told(result.headroom, names) == {r["model"]: r["reason"] for r in expect["headroom_stops"]}
    for scope, held in expect["held_after"].items():
        real = next(new for new, old in names.items() if old == scope)
        assert {r: result.held[real][r] for r in held} == amounts(held), scope
    for model, scopes in expect["covered_after"].items():
        assert named(result.guaranteed).get(model, 0) >= max(scopes.values()), model
    again = planned_again(plan, given)
    assert not list(again.changes())


def named(of):
    return {plain(name): value for name, value in of.items()}


def told(reasons, names):
    """Return the reasons with the scopes' names as the case spells them."""
    return {model: plain_reason(reason, names) for model, reason in named(reasons).items()}


def plain_reason(reason, names):
    if not reason.startswith("limit:"):
        return reason
    scope, _, resource = reason.removeprefix("limit:").rpartition(":")
    return f"limit:{names[scope]}:{resource}"
