"""The steps since a large state was last written whole: a line each, synced before the call returns."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from llmgwctl.domain.state import ReplicaRecord, State
from llmgwctl.errors import StateError
from llmgwctl.store.codec import CodecError, encode, kind_of
from llmgwctl.store.documents import DocumentError, parse, read_text
from llmgwctl.store.files import sync_folder
from llmgwctl.store.records import record_of

_KEYS = ("lineage", "record", "replica", "serial")


class StepsFile:
    """The file beside the state; what is in it counts until the state is written whole again."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._handle: int | None = None

    def replay(self, state: State, backup: Path) -> State:
        """Return a state with the steps of an apply that did not live to write it. Raises StateError."""
        try:
            text = read_text(self.path, regular=True)
        except FileNotFoundError:
            return state
        except DocumentError as problem:
            raise StateError(f"The steps file {self.path} can't be read: {problem}.", self._advice(backup)) from None
        # A crash may have torn the last line: it was not promised yet. Every other one was.
        lines = text.split("\n")[:-1]
        replicas = dict(state.replicas)
        serial = state.serial
        for number, line in enumerate(lines, start=1):
            try:
                step = _step(line)
                if step["lineage"] != state.lineage or step["serial"] <= serial:
                    continue  # of another state, or already in this one
                if step["serial"] != serial + 1:
                    raise CodecError(f"serial is {step['serial']}, and {serial + 1} should come next")
                name, data = step["replica"], step["record"]
                if data is None:
                    replicas.pop(name, None)
                else:
                    replicas[name] = record_of(name, data, "record")
                serial += 1
            except (DocumentError, CodecError) as problem:
                message = f"The steps file {self.path} is damaged in line {number}: {problem}."
                raise StateError(message, self._advice(backup)) from None
        return replace(state, replicas=replicas, serial=serial)

    def append(self, serial: int, lineage: str, replica: str, record: ReplicaRecord | None) -> None:
        """Add a step. Raises OSError; then the file is as it was."""
        step = {"serial": serial, "lineage": lineage, "replica": replica, "record": encode(record)}
        line = (json.dumps(step, separators=(",", ":")) + "\n").encode()
        if self._handle is None:
            self._handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        size = os.fstat(self._handle).st_size
        try:
            while line:
                line = line[os.write(self._handle, line) :]
            os.fsync(self._handle)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._handle, size)
            raise

    def remove(self) -> None:
        """Forget every step: they are in the state. One that could not be removed counts for nothing."""
        self.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
            sync_folder(self.path.parent)

    def close(self) -> None:
        """Let go of the file."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None

    def _advice(self, backup: Path) -> str:
        return (
            "Nothing was changed. It holds what was started and stopped after the state was last written whole: mend "
            f"it, or move it away to go on without these steps. The backup of the state is {backup}."
        )


def _step(line: str) -> dict[str, Any]:
    step = parse(line)
    if not isinstance(step, dict) or sorted(step) != list(_KEYS):
        raise CodecError(f"a step should be an object with {', '.join(_KEYS)}")
    serial = step["serial"]
    if not isinstance(serial, int) or isinstance(serial, bool):
        raise CodecError(f"serial should be a whole number, not {kind_of(serial)}")
    for key in ("lineage", "replica"):
        if not isinstance(step[key], str):
            raise CodecError(f"{key} should be a text, not {kind_of(step[key])}")
    return step
