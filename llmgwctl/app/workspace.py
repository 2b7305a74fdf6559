"""A configuration directory, loaded: the declaration, and where its state lives."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from llmgwctl.config.documents import load, yaml_files
from llmgwctl.config.resolve import resolve
from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.desired import Desired, Host, Settings
from llmgwctl.errors import LlmgwctlError, UsageError
from llmgwctl.hosts.sessions import Sessions
from llmgwctl.store.files import resolved
from llmgwctl.store.statefile import StateFile

WORLD_NAME = "llmgwctl.simulated.json"


@dataclass(frozen=True, slots=True)
class Workspace:
    """`base` is the configuration directory; paths in the configuration are relative to it."""

    base: Path
    desired: Desired

    @property
    def state_path(self) -> Path:
        """Where the state file is."""
        return state_path(self.base, self.desired.settings)

    def store(self) -> StateFile:
        """Return the state's store."""
        return open_store(self.base, self.desired.settings)

    def must_not_overwrite(self, out: str) -> None:
        """Refuse a file to write that is one of ours, or that could not be written, before any work is done for it.

        Raises UsageError.
        """
        target = resolved(Path(out))
        for path, what in self._own_files():
            if target == resolved(path) or _same_file(target, path):
                raise UsageError(f"{out} is {what}: it is not overwritten.", "Name another file with --out.")
        if target.parent == resolved(self.base) and target.suffix in (".yaml", ".yml"):
            raise UsageError(
                f"{out} would become a file of the configuration: every *.yaml and *.yml there is.",
                "Name a file with another ending with --out.",
            )
        if target.is_dir():
            raise UsageError(f"{out} is a directory.", "Name a file in it with --out.")
        if not target.parent.is_dir() and not os.path.exists(out):
            raise UsageError(f"{out} can't be written: there is no directory {target.parent}.")

    def _own_files(self) -> Iterator[tuple[Path, str]]:
        for path in yaml_files(str(self.base)):
            yield path, "a file of the configuration"
        settings = self.desired.settings
        if settings.ssh.known_hosts:
            yield self.base / Path(settings.ssh.known_hosts).expanduser(), "the file of the hosts' keys"
        for model in self.desired.models:
            for profile in model.profiles:
                for _, value in profile.env:
                    if isinstance(value, SecretRef) and value.kind == "from_file":
                        yield self.base / Path(value.source[0]).expanduser(), "the file of a secret"
        world = self.state_path.parent / WORLD_NAME
        yield world, "the simulated hosts' file"
        yield world.with_name(f"{WORLD_NAME}.journal"), "the simulated hosts' file"
        yield self.state_path, "the state"
        store = StateFile(self.state_path)
        yield store.backup, "the state's backup"
        yield store.lock, "the state's lock"
        yield store.steps, "the state's steps file"

    def sessions(self, hosts: Iterable[Host] | None = None) -> Sessions:
        """Return the sessions of a command."""
        return open_sessions(self.base, self.desired.settings, self.desired.hosts if hosts is None else hosts)


def _same_file(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False


def open_workspace(directory: str) -> Workspace:
    """Load a configuration directory. Raises ConfigError with every problem at once."""
    return Workspace(Path(directory), resolve(load(directory)))


def state_path(base: Path, settings: Settings) -> Path:
    """Return where the state file is."""
    return base / Path(settings.state.path).expanduser()


def open_store(base: Path, settings: Settings) -> StateFile:
    """Return the store that the settings ask for."""
    if settings.state.backend != "file":
        raise LlmgwctlError(
            f"settings.state.backend is {settings.state.backend!r}: this version keeps the state in a file only.",
            "Write backend: file, or leave it out.",
        )
    return StateFile(state_path(base, settings))


def open_sessions(base: Path, settings: Settings, hosts: Iterable[Host]) -> Sessions:
    """Return the sessions of a command; the simulated hosts' world is beside the state."""
    return Sessions(hosts, settings, base, state_path(base, settings).parent / WORLD_NAME)
