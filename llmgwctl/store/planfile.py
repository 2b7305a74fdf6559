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
from llmgwctl.store.codec import CodecError, decode, encode, kind_of
from llmgwctl.store.documents import DocumentError, parse, read_text, too_deep, version_of
from llmgwctl.store.files import write_output
from llmgwctl.store.records import REPLICA_ID, record_of

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
    """Write a plan file, readable by its owner alone; a link is followed. Raises OSError."""
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
    write_output(path, json.dumps(data, separators=(",", ":")) + "\n", mode=0o600)


def read_plan(path: Path) -> SavedPlan:
    """Return a saved plan. Raises LlmgwctlError naming what is wrong with the file.

    A newer minor version is refused too: a plan is carried out exactly, so nothing in it may be passed over.
    """
    try:
        data = parse(read_text(path))
    except (FileNotFoundError, DocumentError) as problem:
        reason = "there is no such file" if isinstance(problem, FileNotFoundError) else str(problem)
        raise LlmgwctlError(f"The plan {path} can't be read: {reason}.") from None
    if not isinstance(data, dict) or data.get("kind") != KIND:
        raise LlmgwctlError(f"{path} is not a saved plan.", "Make one with: llmgwctl plan --out FILE")
    version = data.get("format_version")
    if version_of(version) != version_of(FORMAT_VERSION):
        raise LlmgwctlError(
            f"The plan {path} has format {kind_of(version)}; this llmgwctl reads {FORMAT_VERSION}.",
            "Use the llmgwctl that made it, or make a new plan.",
        )
    try:
        saved = SavedPlan(
            plan=decode(Plan, data["plan"], "plan"),
            hosts=decode(tuple[Host, ...], data["hosts"], "hosts"),
            settings=decode(Settings, data["settings"], "settings"),
            document=decode(dict[str, object], data["document"], "document"),
            refused=decode(bool, data["refused"], "refused"),
        )
        _must_be_possible(saved)
    except KeyError as problem:
        raise LlmgwctlError(f"The plan {path} does not fit: it lacks {problem.args[0]}.") from None
    except CodecError as problem:
        raise LlmgwctlError(f"The plan {path} does not fit: {problem}.") from None
    return saved


def _must_be_possible(saved: SavedPlan) -> None:
    """Refuse what no plan of ours holds. Raises CodecError."""
    if too_deep(saved.document):
        raise CodecError("document is nested too deeply")
    declared = {h.name for h in saved.hosts}
    for number, action in enumerate(saved.plan.actions):
        place = f"plan.actions[{number}]"
        if REPLICA_ID.fullmatch(action.replica) is None:
            raise CodecError(f"{place}.replica should be MODEL/INDEX, not {kind_of(action.replica)}")
        if action.starts:
            if not action.placement or len(action.launches) != len(action.placement):
                raise CodecError(f"{place} should have a launch for each of its places")
            unknown = [p.node for p in action.placement if p.node not in declared]
            if unknown:
                raise CodecError(f"{place}.placement names {unknown[0]!r}, which is none of the hosts")
        if action.before is not None and not action.before.members:
            raise CodecError(f"{place}.before.members should be a list of at least one member")
    for number, refresh in enumerate(saved.plan.refreshes):
        record_of(refresh.record.id, encode(refresh.record), f"plan.refreshes[{number}].record")
