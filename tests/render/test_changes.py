"""What a replacement changes is told option by option."""

from __future__ import annotations

import pytest
from planner.world import desired, host, model, node, plan_of, profile, running

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.render.changes import launch_changes


def changes(old: dict, new: dict) -> list[str]:
    """Return the lines for a replica whose profile changes."""
    state, seen = running(desired([host("a1")], [model("m", profile(**old))]), node("a1"))
    plan = plan_of(desired([host("a1")], [model("m", profile(**new))]), state, seen)
    (action,) = plan.actions
    return list(launch_changes(action))


@pytest.mark.parametrize(
    ("old", "new", "lines"),
    [
        ({"args": ("--seed", "1")}, {"args": ("--seed", "2")}, ["~ --seed 1 -> 2"]),
        ({"args": ()}, {"args": ("--seed", "-1")}, ["+ --seed -1"]),
        ({"args": ("--enforce-eager",)}, {"args": ()}, ["- --enforce-eager"]),
        ({"args": ("--seed=1",)}, {"args": ("--seed=2",)}, ["~ --seed 1 -> 2"]),
        ({"args": ("--seed", "a\nb")}, {"args": ("--seed", "")}, ["~ --seed a\\nb -> (none)"]),
        ({"args": ("--x", "1", "--y", "2")}, {"args": ("--y", "2", "--x", "1")}, ["~ the same words in another order"]),
        ({"args": ("--x", "1", "--x", "2")}, {"args": ("--x", "1", "--x", "3")}, ["~ --x 1 2 -> 1 3"]),
        ({"env": (("A", "1"), ("B", "1"))}, {"env": (("A", "2"), ("C", "1"))}, ["~ A=1 -> 2", "- B=1", "+ C=1"]),
        ({"env": (("a['b']", "1"),)}, {"env": (("a['b']", "2"),)}, ["~ a['b']=1 -> 2"]),
        ({"gpus": 1}, {"gpus": 2}, ["~ --tensor-parallel-size 1 -> 2", "~ CUDA_VISIBLE_DEVICES=0 -> 0,1"]),
    ],
)
def test_lines(old, new, lines):
    """An option with its values is one line; repeated, joined by = or by a space, it is still that option."""
    assert changes(old, new) == lines


def test_a_secret_is_a_word():
    """Only that it is another secret can be seen."""
    old = {"env": (("T", "plain"),)}
    new = {"env": (("T", SecretRef("from_env", ("HF_TOKEN",))),)}
    assert changes(old, new) == ["~ T=plain -> (sensitive)"]


def test_a_start_from_nothing_changes_nothing():
    """Without a record there is nothing to compare with."""
    plan = plan_of(desired([host("a1")], [model("m")]), *running(desired([host("a1")], []), node("a1")))
    assert [list(launch_changes(a)) for a in plan.actions] == [[]]
