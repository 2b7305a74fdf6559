"""The tenancy tree: parents, limits, and guarantees that protect nothing."""

# ruff: noqa: E501 (a case a line reads better than a case broken up)

import pytest

from .support import desired, problems, warnings

MODEL = (
    "models: [{name: m, source: s, owner: 'team:a', profiles: [{name: p, gpu_class: h, tp: 4, min_memory_gb: 8}]}]\n"
)


def test_amounts_and_order():
    """Amounts are whole GPUs, thousandths of cores and MiB, sorted by resource; an empty entry declares a scope."""
    first, second = desired(
        "quotas: {team:t: , org:o: {guarantee: {gpus: 4, cores: 0.5, gpu_classes: {h: 2}}, limit: {memory_gb: 1.5}}}"
    ).quotas
    assert first.guarantee == (("cores", 500), ("gpu_classes.h", 2), ("gpus", 4))
    assert first.limit == (("memory_gb", 1536),)
    assert (second.scope, second.parent, second.guarantee) == ("team:t", None, ())


@pytest.mark.parametrize(
    ("quotas", "place", "words"),
    [
        ("{org:a: {parent: org:b}, org:b: }", "1:26", "an org has no parent"),
        ("{team:a: {parent: team:b}, team:b: }", "1:27", "a team's parent is an org"),
        ("{project:a: {parent: project:b}, project:b: }", "1:30", "a project's parent is a team or an org"),
        ("{team:a: {parent: org:acm}, org:acme: }", "1:27", "Did you mean `org:acme`?"),
        ("{team:a: {parent: org:x}}", "1:27", "not declared"),
        ("{project:a: {parent: project:b}, project:b: {parent: project:a}}", "1:30", "project:a -> project:b -> project:a"),
        ("{project:a: {parent: project:a}}", "1:30", "project:a -> project:a"),
        ("{org:a: {guarantee: {gpus: 5}, limit: {gpus: 4}}}", "1:36", "guarantee of gpus 5 is above its own limit, gpus 4"),
        ("{org:a: {limit: {cores: 1.5}}, team:b: {parent: org:a}, project:c: {parent: team:b, guarantee: {cores: 2}}}", "1:112", "cores 2 is above the limit of `org:a`, cores 1.5"),
        ("{org:a: {guarantee: {gpu_classes: {h: 5}}, limit: {gpus: 4}}}", "1:47", "`org:a`: the guarantee of gpu_classes.h 5 is above its own limit, gpus 4"),
        ("{org:a: {guarantee: {gpu_classes: {h: 3, i: 3}}, limit: {gpus: 5}}}", "1:43", "guarantees of gpu_classes, 6 together, are above its own limit, gpus 5"),
        ("{org:a: {limit: {gpus: 5}}, team:b: {parent: org:a, guarantee: {gpu_classes: {h: 3, i: 3}}}}", "1:86", "6 together, are above the limit of `org:a`, gpus 5"),
        ("{org:a: {limit: {gpus: 3}}, team:b: {parent: org:a, limit: {gpus: 9}, guarantee: {gpus: 4}}}", "1:97", "gpus 4 is above the limit of `org:a`, gpus 3"),
        ("{org:a: {guarantee: {memory_gb: 2}, limit: {memory_gb: 1}}}", "1:41", "memory_gb 2 is above its own limit, memory_gb 1"),
        ("{org:a: {guarantee: {gpu_classes: {h: 2}}, limit: {gpu_classes: {h: 1}}}}", "1:47", "gpu_classes.h 2 is above its own limit, gpu_classes.h 1"),
        ("{org:a: {guarantee: {gpus: -1}}}", "1:36", "is -1; it has to be at least 0"),
        ("{org:a: {limit: {gpus: -1}}}", "1:32", "is -1; it has to be at least 0"),
        ("{org:a: {guarantee: {gpu_classes: {h: -1}}}}", "1:47", "is -1; it has to be at least 0"),
        ("{org:a: {limit: {cores: -0.5}}}", "1:33", "is -0.5; it has to be at least 0"),
        ("{org:a: {limit: {memory_gb: -1}}}", "1:37", "is -1; it has to be at least 0"),
        ("{org:a: {guarantee: {gpus: 1.5}}}", "1:36", "GPUs are given whole"),
        ("{org:a: {guarantee: {gpu_classes: {h: 0.5}}}}", "1:47", "GPUs are given whole"),
    ],
)  # fmt: skip
def test_refused(quotas, place, words):
    """Wrong levels, circles, undeclared parents and guarantees beyond a limit are refused at their place."""
    found = problems(f"quotas: {quotas}\n")
    assert any(line.startswith(f"a.yaml:{place}") and words in line for line in found), found


def test_levels_may_be_left_out():
    """A team without a parent and a project directly beneath an org are fine."""
    assert problems("quotas: {team:a: , project:b: {parent: org:c}, org:c: , project:d: }\n") == []


def test_gpus_bound_the_classes_beside_them():
    """Beside a guarantee of GPUs, those by class only say which ones they may be."""
    text = "quotas: {org:a: {guarantee: {gpus: 4, gpu_classes: {h: 3, i: 3}}, limit: {gpus: 5}}}\n"
    assert (problems(text), warnings(text)) == ([], [])


def test_children_guaranteed_more_than_their_parent_are_warned_of():
    """The sum of what is guaranteed beneath, through scopes that name nothing, is compared with the parent's."""
    text = (
        "quotas:\n  org:a: {guarantee: {gpus: 4}}\n  team:b: {parent: 'org:a'}\n  project:c: {parent: 'team:b', guarantee: {gpus: 3}}\n"
        "  team:d: {parent: 'org:a', guarantee: {gpus: 2}}\n"
    )
    (line,) = warnings(text)
    assert line.startswith("a.yaml:2:29: warning: Quota `org:a`: the scopes beneath it are guaranteed gpus 5 together")
    assert warnings(text.replace("gpus: 2", "gpus: 1")) == []
    assert "gpus 6 together" in warnings(text.replace("gpus: 2", "gpu_classes: {h: 2, i: 1}"))[0]


@pytest.mark.parametrize(
    ("guarantee", "words"),
    [
        ("{gpus: 3}", "smaller than the smallest replica"),
        ("{gpus: 4, memory_gb: 7}", "smaller than the smallest replica"),
        ("{cores: 8}", "no model beneath it uses what its guarantee names (cores)"),
        ("{gpu_classes: {x: 8}}", "no model beneath it uses"),
        ("{gpus: 4}", None),
        ("{gpus: 4, memory_gb: 8, gpu_classes: {h: 4}}", None),
        ("{gpus: 0}", None),
    ],
)
def test_guarantees_that_cover_no_replica_are_warned_of(guarantee, words):
    """A guarantee that not even the smallest replica beneath it fits, or that none uses, protects nothing."""
    found = warnings(MODEL + f"quotas: {{org:o: {{guarantee: {guarantee}}}, team:a: {{parent: org:o}}}}\n")
    assert [words in line for line in found] == ([True] if words else [])
