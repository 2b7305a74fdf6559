"""The state file's text: JSON with a format version; read strictly, written in a stable order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmgwctl import __version__
from llmgwctl.domain.state import ReplicaRecord, State
from llmgwctl.errors import StateError
from llmgwctl.store.codec import CodecError, decode, encode

FORMAT_VERSION = "1.0"
_MAJOR = 1


def dump_state(state: State) -> str:
    """Return the state as text: one replica a line, so that a diff shows what changed."""
    head = {
        "format_version": FORMAT_VERSION,
        "tool_version": __version__,
        "lineage": state.lineage,
        "serial": state.serial,
    }
    tail = {
        "runtime_models": state.runtime_models,
        "runtime_quotas": state.runtime_quotas,
        "journal": list(state.journal),
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    records = [
        f"  {json.dumps(name)}: {json.dumps(encode(record), separators=(',', ':'))}"
        for name, record in sorted(state.replicas.items())
    ]
    body = "{\n" + ",\n".join(records) + "\n }" if records else "{}"
    lines.append(f' "replicas": {body}')
    lines += [f" {json.dumps(key)}: {json.dumps(value, sort_keys=True)}" for key, value in tail.items()]
    return "{\n" + ",\n".join(lines) + "\n}\n"


def load_state(text: str, name: str) -> State:
    """Return the state in a text; `name` is the file, for messages. Raises StateError."""
    if not text.strip():
        raise StateError(f"The state file {name} is empty.", _use_backup(name))
    try:
        data = json.loads(text)
    except ValueError as problem:
        raise StateError(f"The state file {name} is damaged: {problem}.", _use_backup(name)) from None
    if not isinstance(data, dict) or "format_version" not in data:
        raise StateError(f"{name} is not a state file: it has no format_version.", _use_backup(name))
    version = str(data["format_version"])
    major = version.partition(".")[0]
    if not major.isdigit() or int(major) > _MAJOR:
        raise StateError(
            f"The state file {name} has format {version}; this llmgwctl {__version__} reads up to {FORMAT_VERSION}.",
            "It is left as it is. Use the llmgwctl that wrote it, or a newer one.",
        )
    try:
        return _state(data)
    except CodecError as problem:
        raise StateError(f"The state file {name} does not fit: {problem}.", _use_backup(name)) from None


def _state(data: Mapping[str, Any]) -> State:
    replicas = data.get("replicas", {})
    if not isinstance(replicas, dict):
        raise CodecError("replicas should be an object")
    serial, lineage = data.get("serial", 0), data.get("lineage")
    if not isinstance(serial, int) or not (lineage is None or isinstance(lineage, str)):
        raise CodecError("serial should be a whole number, and lineage a text")
    return State(
        lineage=lineage,
        serial=serial,
        replicas={k: decode(ReplicaRecord, v, f"replicas[{k!r}]") for k, v in replicas.items()},
        runtime_models=dict(data.get("runtime_models") or {}),
        runtime_quotas=dict(data.get("runtime_quotas") or {}),
        journal=tuple(data.get("journal") or ()),
    )


def _use_backup(name: str) -> str:
    return f"Nothing was changed. The state before the last write is {name}.backup: look at it, and copy it back."
