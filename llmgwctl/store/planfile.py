"""A saved plan: everything that apply needs, without the configuration and without a secret."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llmgwctl import __version__
from llmgwctl.domain.desired import Host, Settings
from llmgwctl.domain.plan import Plan
from llmgwctl.errors import LlmgwctlError
from llmgwctl.store.codec import CodecError, decode, encode
from llmgwctl.store.files import write_atomically

KIND = "llmgwctl plan"
FORMAT_VERSION = "1.0"


@dataclass(frozen=True, slots=True)
class SavedPlan:
    """`document` is the plan as `plan --json` prints it; `refused` plans are kept to be shown only."""

    plan: Plan
    hosts: tuple[Host, ...]
    settings: Settings
    document: dict[str, Any]
    refused: bool = False


def write_plan(path: Path, saved: SavedPlan) -> None:
    """Write a plan file, readable by its owner alone. Raises OSError."""
    data = {
        "kind": KIND,
        "format_version": FORMAT_VERSION,
        "tool_version": __version__,
        "refused": saved.refused,
        "plan": encode(saved.plan),
        "hosts": encode(saved.hosts),
        "settings": encode(saved.settings),
        "document": saved.document,
    }
    write_atomically(path, json.dumps(data, separators=(",", ":")) + "\n")


def read_plan(path: Path) -> SavedPlan:
    """Return a saved plan. Raises LlmgwctlError naming what is wrong with the file."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        reason = problem.strerror if isinstance(problem, OSError) else "it is no JSON"
        raise LlmgwctlError(f"The plan {path} can't be read: {reason}.") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise LlmgwctlError(f"{path} is not a saved plan.", "Make one with: llmgwctl plan --out FILE")
    if str(data.get("format_version")).partition(".")[0] != "1":
        raise LlmgwctlError(f"The plan {path} has format {data.get('format_version')}; this llmgwctl reads 1.x.")
    try:
        return SavedPlan(
            plan=decode(Plan, data["plan"], "plan"),
            hosts=decode(tuple[Host, ...], data["hosts"], "hosts"),
            settings=decode(Settings, data["settings"], "settings"),
            document=data["document"],
            refused=bool(data["refused"]),
        )
    except (CodecError, KeyError) as problem:
        raise LlmgwctlError(f"The plan {path} does not fit: {problem}.") from None
