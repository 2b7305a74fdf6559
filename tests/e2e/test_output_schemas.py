"""What programs read is as its JSON Schema says, with every key described."""

from __future__ import annotations

import json
from enum import Enum
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from llmgwctl.config.schema import schema_path
from llmgwctl.diagnostics import Severity
from llmgwctl.domain.inventory import Phase
from llmgwctl.domain.plan import ActionKind, Condition, ReasonCode, Standing

from .program import Program
from .test_simulated import host, model

NAMES = ("apply", "config", "inventory", "plan", "state", "status", "validate")


def schema(name: str) -> dict[str, Any]:
    return json.loads(schema_path(name).read_text(encoding="utf-8"))


def closed(part: Any) -> Any:
    """Return a schema that refuses keys which it doesn't describe: readers ignore them, we must not forget them."""
    if isinstance(part, list):
        return [closed(p) for p in part]
    if not isinstance(part, dict):
        return part
    described = {key: closed(value) for key, value in part.items()}
    if isinstance(part.get("properties"), dict) and "type" in part:
        described.setdefault("additionalProperties", False)
    return described


def problems(name: str, document: Any) -> list[str]:
    found = jsonschema.Draft202012Validator(closed(schema(name))).iter_errors(document)
    return [f"{e.json_path}: {e.message}" for e in found]


@pytest.fixture
def fleet(tmp_path):
    """Return a fleet that shows much: quotas, several nodes, a secret, a shortfall, a host that can't be reached."""
    (tmp_path / "fleet").mkdir()
    program = Program(tmp_path / "fleet", {"HF_TOKEN_HERE": "planted"})
    spread = model("spread", 1, 16, nodes=2, gpus_per_node=8)
    secret = model("secret", 1, 1, env={"HF_TOKEN": {"from_env": "HF_TOKEN_HERE"}, "A": "b"}) | {"owner": "team:a"}
    pretended = {"name": "p", "engine": "sim", "gpu_class": "h100-80gb"}
    sim = {"name": "tried", "source": "tried", "profiles": [pretended], "scaling": {"min": 1, "max": 9}}
    too_big = model("big", 1, 16) | {"owner": "team:a"}
    document = {
        "hosts": [host("s1") | {"fabric": "f"}, host("s2") | {"fabric": "f"}, host("s3"), host("s4")],
        "models": [spread, secret, sim | {"owner": "team:a"}, too_big],
        "quotas": {
            "org:o": {"guarantee": {"gpus": 4, "memory_gb": 0.5, "gpu_classes": {"h100-80gb": 1}}},
            "team:a": {"parent": "org:o", "limit": {"cores": 8, "gpus": 3}},
        },
    }
    program.write(document)
    program.document = document
    return program


@pytest.mark.parametrize("name", NAMES)
def test_each_is_a_schema_that_says_what_it_is_of(name):
    """Drafts 2020-12, with an identity and words for people."""
    document = schema(name)
    jsonschema.Draft202012Validator.check_schema(document)
    assert document["$id"] == f"urn:llmgwctl:schema:{name}"
    assert document["description"]


def test_every_schema_is_named_here():
    """A new schema gets its tests."""
    assert sorted(p.name for p in schema_path("plan").parent.iterdir()) == [f"{n}.schema.json" for n in NAMES]


def test_the_main_job_in_json(fleet):
    """Each document that the commands print while a fleet comes, changes and goes is as its schema says."""
    fresh = fleet.json("plan", "--fill")
    assert problems("plan", fresh) == []
    assert fresh["shortfalls"]
    assert fresh["headroom_stops"]
    assert fresh["quotas"]
    assert any("members" in (a["after"] or {}) for a in fresh["actions"])

    events = fleet.run("apply", "--auto-approve", "--json").stdout.splitlines()
    assert [p for e in events for p in problems("apply", json.loads(e))] == []
    assert json.loads(events[-1])["type"] == "summary"
    state = json.loads((Path(fleet.directory) / "llmgwctl.state.json").read_text())
    assert problems("state", state) == []
    assert len(state["replicas"]) == 3

    fleet.document["hosts"][3]["simulate"]["unreachable"] = True
    del fleet.document["models"][1]
    fleet.write(fleet.document)
    world = Path(fleet.directory) / "llmgwctl.simulated.json"
    world.write_text(world.read_text().replace("tried", "gone"))
    assert problems("plan", fleet.json("plan")) == []
    assert problems("status", fleet.json("status")) == []
    assert problems("inventory", fleet.json("inventory")) == []
    assert problems("plan", fleet.json("plan", "--destroy")) == []

    fleet.run("plan", "--out", str(fleet.directory / "p.plan"))
    shown = fleet.json("show", str(fleet.directory / "p.plan"))
    assert problems("plan", shown) == []
    assert shown["drift"]
    done = fleet.run("destroy", "--auto-approve", "--json").stdout.splitlines()
    nothing = fleet.run("destroy", "--auto-approve", "--json").stdout.splitlines()
    assert [p for e in done + nothing for p in problems("apply", json.loads(e))] == []
    assert len(nothing) == 1


def test_failures_and_what_waited_for_them_in_json(fleet):
    """The events of an apply that goes wrong are as the schema says."""
    fleet.run("apply", "--auto-approve")
    for entry in fleet.document["hosts"]:
        entry["simulate"]["fail_start"] = ["secret", "spread"]
    for entry in fleet.document["models"]:
        entry["profiles"][0]["args"] = ["--max-num-seqs", "7"] if entry["name"] != "tried" else []
    fleet.write(fleet.document)
    events = [json.loads(e) for e in fleet.run("apply", "--auto-approve", "--json", code=7).stdout.splitlines()]
    assert [p for e in events for p in problems("apply", e)] == []
    assert {"begun", "failed", "summary"} <= {e["type"] for e in events}


def test_this_machine_in_json(tmp_path):
    """A real host's inventory is as the schema says."""
    program = Program(tmp_path)
    program.write({"hosts": [{"name": "here", "connection": "local", "simulate": {"gpus": 1, "gpu_class": "demo"}}]})
    assert problems("inventory", program.json("inventory")) == []


def test_problems_of_a_configuration_in_json(tmp_path):
    """A configuration's problems are as the schema says, with and without a place."""
    program = Program(tmp_path)
    program.write({"hosts": [{"nme": "x"}], "models": 3})
    found = program.json("validate", code=3)
    assert problems("validate", found) == []
    assert found["error_count"] == len(found["diagnostics"]) > 1


PROMISED = {
    "plan": "format_version tool_version base inventory_taken_at summary actions shortfalls headroom_stops quotas "
    "drift diagnostics",
    "plan.base": "lineage serial",
    "plan.summary": "start stop replace move keep forget defer shortfall",
    "plan#action": "action replica model profile engine owner class standing placement before after reason waits_for",
    "plan#action.reason": "code text for",
    "plan#placement": "node gpus gpu_indices port",
    "plan#launched": "argv env",
    "plan#cause": "code text",
    "plan#quota": "scope resource guarantee limit held_before held_after borrowed_after",
    "plan#diagnostic": "severity summary detail file line column",
    "status": "replicas hosts",
    "status#replica": "replica model profile engine node gpus port phase endpoint since owner class standing simulated "
    "source",
    "inventory": "format_version taken_at nodes",
    "inventory#node": "name reachable",
    "inventory#gpu": "index uuid",
    "inventory#replica": "id",
    "validate#diagnostic": "severity summary detail file line column",
}


@pytest.mark.parametrize("place", PROMISED)
def test_promised_keys_are_required(place):
    """A document that lacks a promised key does not fit; what a snapshot from elsewhere may leave out is let be."""
    name, _, path = place.replace("#", ".$defs.").partition(".")
    part = schema(name)
    for step in filter(None, path.split(".")):
        part = part[step] if step == "$defs" else (part.get("properties") or part).get(step) or part[step]
    assert set(PROMISED[place].split()) <= set(part["required"])


@pytest.mark.parametrize(
    ("name", "path", "kind"),
    [
        ("plan", ("$defs", "action", "properties", "action"), ActionKind),
        ("plan", ("$defs", "action", "properties", "standing"), Standing),
        ("plan", ("$defs", "action", "properties", "reason", "properties", "code"), ReasonCode),
        ("plan", ("properties", "drift", "items", "properties", "condition"), Condition),
        ("plan", ("$defs", "diagnostic", "properties", "severity"), Severity),
        ("status", ("$defs", "replica", "properties", "phase"), Phase),
        ("inventory", ("$defs", "replica", "properties", "phase"), Phase),
    ],
)
def test_words_in_the_schemas_are_the_programs(name: str, path: tuple[str, ...], kind: type[Enum]):
    """No schema lacks a word that the program may print."""
    place = schema(name)
    for step in path:
        place = place[step]
    assert place["enum"] == [member.value for member in kind]
