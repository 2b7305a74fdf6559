"""A saved plan is carried out exactly, so one that was damaged, or is newer, is refused in words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from e2e.program import Program

from llmgwctl.errors import LlmgwctlError
from llmgwctl.render.plan_text import plan_text
from llmgwctl.render.text import Style
from llmgwctl.store.planfile import read_plan

from .test_damaged_state import places


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> dict[str, Any]:
    """Return a plan that starts, stops and has a shortfall."""
    folder = tmp_path_factory.mktemp("fleet")
    program = Program(folder)
    profile = {"name": "p", "engine": "sim", "gpu_class": "demo"}
    hosts = [{"name": "h", "connection": "simulated", "simulate": {"gpus": 2, "gpu_class": "demo"}}]
    program.write({"hosts": hosts, "models": [{"name": "old", "source": "s", "profiles": [profile]}]})
    program.run("apply", "--auto-approve", "--fill")
    models = [{"name": "m", "source": "s", "scaling": {"min": 3}, "profiles": [profile]}]
    program.write({"hosts": hosts, "models": models, "quotas": {"org:o": {"guarantee": {"gpus": 1}}}})
    program.run("plan", "--out", str(folder / "p"))
    return json.loads((folder / "p").read_text())


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> Any:
        (tmp_path / "p").write_text(text)
        return read_plan(tmp_path / "p")

    return read


def change(data: dict[str, Any], path: tuple[Any, ...], value: Any) -> str:
    copy = json.loads(json.dumps(data))
    place = copy
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return json.dumps(copy)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "can't be read: Expecting value"),
        ("[" * 200_000, "nested too deeply"),
        ('{"kind": Infinity}', "Infinity"),
        ("[]", "is not a saved plan"),
        ('{"format_version": "1.0", "lineage": "x", "serial": 1, "replicas": {}}', "is not a saved plan"),
        ('{"kind": "llmgwctl plan", "format_version": "1.1"}', "has format '1.1'"),
        ('{"kind": "llmgwctl plan"}', "has format null"),
        ('{"kind": "llmgwctl plan", "format_version": "1.0"}', "lacks plan"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_is_no_plan(read, text, words):
    """What is wrong is said, with the file."""
    with pytest.raises(LlmgwctlError) as problem:
        read(text)
    assert words in problem.value.message


def test_a_plan_that_can_t_be_carried_out(read, good):
    """Each place needs its launch, and each of them its host."""
    number = next(i for i, a in enumerate(good["plan"]["actions"]) if a["kind"] == "start")
    for path, value, words in (
        (("plan", "actions", number, "launches"), [], "a launch for each of its places"),
        (("plan", "actions", number, "placement", 0, "node"), "x", "names 'x', which is none of the hosts"),
        (("plan", "actions", number, "replica"), "m", "should be MODEL/INDEX, not 'm'"),
        (("document",), [], "document should be an object, not a list"),
    ):
        with pytest.raises(LlmgwctlError) as problem:
            read(change(good, path, value))
        assert words in problem.value.message


def test_no_damage_ends_in_a_fault_of_ours(read, good):
    """Whatever stands anywhere in a plan: it is refused in words, or it can be shown."""
    refused = accepted = 0
    for path in places(good):
        for value in (None, -1, "x", [3], {}):
            if not path or path[0] == "document":
                continue
            try:
                saved = read(change(good, path, value))
            except LlmgwctlError:
                refused += 1
            else:
                accepted += 1
                assert plan_text(saved.plan, Style(), verbose=True)
    assert refused > 300
    assert accepted > 100
