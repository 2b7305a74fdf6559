"""The shared quota cases as worlds of the reference, where they are present."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from .reference_world import CORES, GPUS, MEMORY, Amounts, Model, Node, Profile, Running, Scope, World

SHARED = Path(os.environ.get("LLMGWCTL_SHARED") or Path(__file__).parents[2] / "../shared")
FILE = SHARED / "data/quota-cases/cases.yaml"
UNITS = {GPUS: 1, CORES: 1000, MEMORY: 1024}
"""Whole units (GPUs, millicores, MiB) in one of the case's."""


@dataclass(frozen=True)
class Case:
    """A world and what must come out, with the models' names as the case spells them."""

    id: str
    world: World
    expect: Mapping[str, object]


def cases() -> list[Case]:
    """Return every case, none where the file is absent."""
    if not FILE.exists():
        return []
    return [_case(item) for item in yaml.safe_load(FILE.read_text())["cases"]]


def plain(name: str) -> str:
    """Return a model's name without the number that keeps the order of declaration."""
    return name.partition("-")[2]


def amounts(of: Mapping[str, float] | None) -> Amounts:
    """Return amounts in whole units."""
    return {resource: round(UNITS.get(resource, 1) * amount) for resource, amount in (of or {}).items()}


def counted(items: object) -> dict[str, int]:
    """Return the counts of a case's list of starts or stops by model."""
    found: dict[str, int] = {}
    for item in items or ():
        found[item["model"]] = found.get(item["model"], 0) + item["count"]
    return found


def _case(item: Mapping[str, object]) -> Case:
    names = {wanted["model"]: f"m{number:02}-{wanted['model']}" for number, wanted in enumerate(item["wanted"])}
    only_class = item["nodes"][0]["gpu_class"]
    running = [(names[r["model"]], r["node"]) for r in item["running"] for _ in range(r["count"])]
    return Case(
        item["id"],
        World(
            tuple(
                Node(n["name"], n["gpu_class"], n["gpus"], round(1000 * n["cores"]), round(1024 * n["memory_gb"]))
                for n in item["nodes"]
            ),
            tuple(
                Scope(s["name"], s.get("parent"), amounts(s.get("guarantee")), amounts(s.get("limit")))
                for s in item["scopes"]
            ),
            tuple(
                Model(
                    names[w["model"]],
                    w["owner"],
                    w["class"],
                    w["min"],
                    w["max"],
                    w.get("priority", 0),
                    tuple(_profile(p, only_class) for p in w.get("profiles", [w])),
                )
                for w in item["wanted"]
            ),
            tuple(Running(name, order, 0, (node,)) for order, (name, node) in enumerate(running, 1)),
        ),
        item["expect"],
    )


def _profile(item: Mapping[str, object], only_class: str) -> Profile:
    gpus = item.get("gpus_per_node", item.get("gpus", 0))
    return Profile(
        gpus,
        item.get("nodes", 1),
        round(1000 * item.get("cores", 0)),
        round(1024 * item.get("memory_gb", 0)),
        item.get("gpu_class", only_class) if gpus else None,
    )
