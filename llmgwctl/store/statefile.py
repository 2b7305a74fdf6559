"""The file backend: state, its backup, its lock, and a journal of steps beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

from llmgwctl.domain.state import ReplicaRecord, State
from llmgwctl.errors import StateError
from llmgwctl.store.codec import CodecError
from llmgwctl.store.documents import DocumentError, read_text
from llmgwctl.store.files import resolved, write_atomically
from llmgwctl.store.format import dump_state, load_state, use_backup
from llmgwctl.store.lock import locked
from llmgwctl.store.records import must_be_possible
from llmgwctl.store.steps import StepsFile

_SMALL, _WRITES = 100, 10
"""A small state is written whole after each step, one of N replicas after N/10 steps: N steps cost 10 writes."""


class StateFile:
    """A state in a file. Reading needs no lock; writing happens in a `session`, which holds it.

    Where the path is a link, all is beside what it leads to: who shares the state shares its lock.
    """

    def __init__(self, path: Path) -> None:
        self._given = path
        self.path = resolved(path)
        self.backup = resolved(Path(f"{self.path}.backup"))
        self.lock = resolved(Path(f"{self.path}.lock"))
        self.steps = resolved(Path(f"{self.path}.steps"))

    def load(self) -> State:
        """Return the state with every step that was recorded since it was last written whole.

        No file is an empty state. But no file beside a backup or steps is an error: something took it away.
        """
        try:
            text = read_text(self.path, regular=True)
        except FileNotFoundError:
            self._must_be_new()
            return State()
        except DocumentError as problem:
            raise StateError(
                f"The state file {self.path} can't be read: {problem}.", use_backup(str(self.path))
            ) from None
        return StepsFile(self.steps).replay(load_state(text, str(self.path)), self.backup)

    @contextmanager
    def session(
        self, operation: str, *, lock_timeout_s: float = 0.0, notice: Callable[[str], None] | None = None
    ) -> Iterator[StateWriter]:
        """Hold the lock, and give the state as it is then; what was changed is written at the end, come what may."""
        with ExitStack() as stack:
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                stack.enter_context(locked(self.lock, operation, timeout_s=lock_timeout_s, notice=notice))
            except OSError as problem:
                raise unwritable(self.path, problem) from problem
            writer = StateWriter(self, self.load())
            try:
                yield writer
            finally:
                writer.close()

    def _must_be_new(self) -> None:
        if self._given.is_symlink():
            raise StateError(
                f"The state file {self._given} is a link to {self.path}, which is not there.",
                f"Nothing was changed. Bring it back (its backup would be {self.backup}). To begin without a state, "
                "remove the link.",
            )
        for file, what, advice in (
            (self.backup, "its backup", "Copy the backup back; or move it away to begin without a state."),
            (self.steps, "its steps file", "Bring the state back; or move the steps away to begin without a state."),
        ):
            if file.exists():
                raise StateError(f"The state file {self.path} is missing, but {what} {file} is there.", advice)


class StateWriter:
    """The state while its lock is held; every change is on the disk when the call returns.

    A change that can't be written raises StateError and is undone here too; none is tried after it.
    """

    def __init__(self, store: StateFile, state: State) -> None:
        self._store = store
        self.state = state
        self._written = state
        self._steps = StepsFile(store.steps)
        self._since_write = 0
        self._problem: StateError | None = None
        self._left_over = store.steps.exists()
        """Steps of another apply: the last line may be torn, so none is added to them."""

    def begin(self) -> str:
        """Give the state a lineage if it has none, and return it."""
        if self.state.lineage is None:
            self.state = replace(self.state, lineage=str(uuid4()), serial=self.state.serial + 1)
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
        before = self.state
        self.state = replace(before, **changes, serial=before.serial + 1)  # type: ignore[arg-type]
        try:
            self._save(self._write)
        except StateError:
            self.state = before
            raise

    def close(self) -> None:
        """Write the state whole if anything changed since it was."""
        try:
            if self._problem is None and (self._left_over or self.state != self._written):
                self._save(self._write)
        finally:
            self._steps.close()

    def _step(self, name: str, record: ReplicaRecord | None) -> None:
        lineage = self.begin()
        if record is not None:
            _must_be_readable(record)
        before = self.state
        replicas = dict(before.replicas) if self._since_write == 0 else before.replicas
        assert isinstance(replicas, dict)
        former = replicas.get(name)
        _set(replicas, name, record)
        self.state = replace(before, replicas=replicas, serial=before.serial + 1)
        self._since_write += 1
        whole = self._left_over or len(replicas) <= _SMALL or self._since_write * _WRITES >= len(replicas)
        serial = self.state.serial
        try:
            self._save(self._write if whole else lambda: self._steps.append(serial, lineage, name, record))
        except StateError:
            _set(replicas, name, former)
            self.state = before
            raise

    def _save(self, write: Callable[[], None]) -> None:
        if self._problem is not None:
            raise self._problem
        try:
            write()
        except OSError as problem:
            self._problem = unwritable(self._store.path, problem)
            raise self._problem from problem

    def _write(self) -> None:
        write_atomically(self._store.path, dump_state(self.state), backup=self._store.backup)
        self._written = self.state
        self._since_write = 0
        self._left_over = False
        self._steps.remove()


def unwritable(path: Path, problem: OSError) -> StateError:
    """Return what to say where the state can't be written."""
    return StateError(f"The state {path} can't be written: {problem.strerror or problem}.")


def _must_be_readable(record: ReplicaRecord) -> None:
    """Refuse to write what would be refused when it is read: a fault of ours must not lock the user out."""
    try:
        must_be_possible(record, record.id, record.id)
    except CodecError as problem:
        raise StateError(f"{record.id} can't be recorded: {problem}.") from None


def _set(replicas: dict[str, ReplicaRecord], name: str, record: ReplicaRecord | None) -> None:
    if record is None:
        replicas.pop(name, None)
    else:
        replicas[name] = record
