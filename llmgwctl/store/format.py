"""The state file's text: JSON with a format version; read strictly, written in a stable order."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from llmgwctl import __version__
from llmgwctl.domain.state import State
from llmgwctl.errors import StateError
from llmgwctl.store.codec import CodecError, encode, kind_of, unknown_keys
from llmgwctl.store.documents import DocumentError, parse, too_deep, version_of
from llmgwctl.store.records import record_of

FORMAT_VERSION = "1.0"
_VERSION = (1, 0)
_NEEDED = ("lineage", "serial", "replicas")
_KNOWN = ("format_version", "tool_version", *_NEEDED, "runtime_models", "runtime_quotas", "journal")


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
    """Return the state in a text; `name` is the file, for messages. Raises StateError.

    Only what a write can have left is a state: one that lost its contents must not pass for none, or second copies
    of everything would be started.
    """
    if not text.strip():
        raise StateError(f"The state file {name} is empty.", use_backup(name))
    try:
        data = parse(text)
    except DocumentError as problem:
        raise StateError(f"The state file {name} is damaged: {problem}.", use_backup(name)) from None
    if not isinstance(data, dict) or "format_version" not in data:
        raise StateError(f"{name} is not a state file: it has no format_version.", use_backup(name))
    version = version_of(data["format_version"])
    if version is not None and version > _VERSION:
        raise StateError(
            f"The state file {name} has format {data['format_version']}; "
            f"this llmgwctl {__version__} reads up to {FORMAT_VERSION}.",
            "It is left as it is. Use the llmgwctl that wrote it, or a newer one.",
        )
    if version != _VERSION:
        shown = kind_of(data["format_version"])
        raise StateError(f"The state file {name} is damaged: format_version is {shown}.", use_backup(name))
    missing = [key for key in _NEEDED if key not in data]
    if missing:
        raise StateError(f"{name} is not a whole state file: it lacks {', '.join(missing)}.", use_backup(name))
    try:
        return _state(data)
    except CodecError as problem:
        raise StateError(f"The state file {name} does not fit: {problem}.", use_backup(name)) from None


def use_backup(name: str) -> str:
    """Say what to do about a state file that can't be used."""
    return f"Nothing was changed. {name}.backup is the state before the last write: look at it, and copy it back."


def _state(data: Mapping[str, Any]) -> State:
    if not data.keys() <= set(_KNOWN):
        raise CodecError(unknown_keys(data, _KNOWN, "it"))
    lineage, serial = data["lineage"], data["serial"]
    if not isinstance(lineage, str) or not lineage:
        raise CodecError(f"lineage should be the text that every written state has, not {kind_of(lineage)}")
    if not isinstance(serial, int) or isinstance(serial, bool) or serial < 1:
        raise CodecError(f"serial should be a whole number from 1 on, not {kind_of(serial)}")
    if not isinstance(data.get("tool_version", ""), str):
        raise CodecError("tool_version should be a text")
    journal = data.get("journal", [])
    if not isinstance(journal, list) or too_deep(journal):
        raise CodecError(f"journal should be a list, not {kind_of(journal)}")
    replicas = _object(data["replicas"], "replicas")
    return State(
        lineage=lineage,
        serial=serial,
        replicas={k: record_of(k, v, f"replicas[{k!r}]") for k, v in replicas.items()},
        runtime_models=_added(data.get("runtime_models", {}), "runtime_models"),
        runtime_quotas=_added(data.get("runtime_quotas", {}), "runtime_quotas"),
        journal=tuple(journal),
    )


def _added(value: object, place: str) -> dict[str, Any]:
    """Return what was added at run time, as it stands there."""
    entries = _object(value, place)
    for name, entry in entries.items():
        where = f"{place}[{name!r}]"
        _object(_object(entry, where).get("definition"), f"{where}.definition")
        for key in ("created_at", "created_by"):
            if not isinstance(entry.get(key, ""), str):
                raise CodecError(f"{where}.{key} should be a text, not {kind_of(entry[key])}")
        if too_deep(entry):
            raise CodecError(f"{where} is nested too deeply")
    return entries


def _object(value: object, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CodecError(f"{place} should be an object, not {kind_of(value)}")
    return value
