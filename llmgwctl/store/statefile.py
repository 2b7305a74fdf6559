"""The file backend: state, its backup, its lock, and a journal of steps beside it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import IO
from uuid import uuid4

from llmgwctl.domain.state import ReplicaRecord, State
from llmgwctl.errors import StateError
from llmgwctl.store.codec import CodecError, decode, encode
from llmgwctl.store.files import sync_folder, write_atomically
from llmgwctl.store.format import dump_state, load_state
from llmgwctl.store.lock import locked

_SMALL, _WRITES = 100, 10
"""A small state is written whole after each step, one of N replicas after N/10 steps: N steps cost 10 writes."""


class StateFile:
    """A state in a file. Reading needs no lock; writing happens in a `session`, which holds it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.backup = path.with_name(path.name + ".backup")
        self.lock = path.with_name(path.name + ".lock")
        self.steps = path.with_name(path.name + ".steps")

    def load(self) -> State:
        """Return the state with every step that was recorded since it was last written whole.

        No file is an empty state. But no file beside a backup is an error: something took it away.
        """
        try:
            text = self.path.read_text(encoding="utf-8")
        except FileNotFoundError:
            if self.backup.exists():
                raise StateError(
                    f"The state file {self.path} is missing, but its backup {self.backup} is there.",
                    "Copy the backup back; or move it away to begin without a state.",
                ) from None
            return self._replay(State())
        except (OSError, UnicodeDecodeError) as problem:
            raise StateError(f"The state file {self.path} can't be read: {problem}") from None
        return self._replay(load_state(text, str(self.path)))

    @contextmanager
    def session(
        self, operation: str, *, lock_timeout_s: float = 0.0, notice: Callable[[str], None] | None = None
    ) -> Iterator[StateWriter]:
        """Hold the lock, and give the state as it is then; what was changed is written at the end, come what may."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with locked(self.lock, operation, timeout_s=lock_timeout_s, notice=notice):
                writer = StateWriter(self, self.load())
                try:
                    yield writer
                finally:
                    writer.close()
        except OSError as problem:
            raise StateError(f"The state {self.path} can't be written: {problem.strerror or problem}") from problem

    def _replay(self, state: State) -> State:
        """Apply the steps of an apply that did not live to write the state."""
        try:
            lines = self.steps.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return state
        replicas = dict(state.replicas)
        lineage, serial = state.lineage, state.serial
        for line in lines:
            try:
                step = json.loads(line)
                if step["serial"] <= serial or (lineage is not None and step["lineage"] != lineage):
                    continue
                lineage, serial = step["lineage"], step["serial"]
                if step["record"] is None:
                    replicas.pop(step["replica"], None)
                else:
                    replicas[step["replica"]] = decode(ReplicaRecord, step["record"], self.steps.name)
            except (ValueError, KeyError, TypeError, CodecError):
                break  # a torn last line: the step before it is the last that was promised
        return replace(state, replicas=replicas, lineage=lineage, serial=serial)


class StateWriter:
    """The state while its lock is held; every change is on the disk when the call returns."""

    def __init__(self, store: StateFile, state: State) -> None:
        self._store = store
        self.state = state
        self._written = state
        self._steps: IO[str] | None = None
        self._since_write = 0
        if store.steps.exists():
            self._written = State(lineage=None, serial=-1)

    def begin(self) -> str:
        """Give the state a lineage if it has none, and return it."""
        if self.state.lineage is None:
            self.state = replace(self.state, lineage=str(uuid4()))
        return str(self.state.lineage)

    def put(self, record: ReplicaRecord) -> None:
        """Record a replica."""
        self._step(record.id, record)

    def remove(self, record: ReplicaRecord) -> None:
        """Forget a replica, if what is recorded under its name is where this one was."""
        current = self.state.replicas.get(record.id)
        if current is not None and [m.node for m in current.members] == [m.node for m in record.members]:
            self._step(record.id, None)

    def update(self, **changes: object) -> None:
        """Change something beside the replicas."""
        self.begin()
        self.state = replace(self.state, **changes, serial=self.state.serial + 1)  # type: ignore[arg-type]
        self._write()

    def close(self) -> None:
        """Write the state whole if anything changed since it was."""
        if self.state != self._written:
            self._write()
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def _step(self, name: str, record: ReplicaRecord | None) -> None:
        lineage = self.begin()
        replicas = dict(self.state.replicas) if self._since_write == 0 else self.state.replicas
        assert isinstance(replicas, dict)
        if record is None:
            replicas.pop(name, None)
        else:
            replicas[name] = record
        self.state = replace(self.state, replicas=replicas, serial=self.state.serial + 1)
        self._since_write += 1
        if len(replicas) <= _SMALL or self._since_write * _WRITES >= len(replicas):
            self._write()
            return
        step = {"serial": self.state.serial, "lineage": lineage, "replica": name, "record": encode(record)}
        if self._steps is None:
            handle = os.open(self._store.steps, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            self._steps = os.fdopen(handle, "a", encoding="utf-8")
        self._steps.write(json.dumps(step, separators=(",", ":")) + "\n")
        self._steps.flush()
        os.fsync(self._steps.fileno())

    def _write(self) -> None:
        store = self._store
        write_atomically(store.path, dump_state(self.state), backup=store.backup)
        self._written = self.state
        self._since_write = 0
        if self._steps is not None:
            self._steps.close()
            self._steps = None
        with contextlib.suppress(FileNotFoundError):
            store.steps.unlink()
            sync_folder(store.path.parent)
