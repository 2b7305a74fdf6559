"""A configuration directory, loaded: the declaration, and where its state lives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from llmgwctl.config.documents import load
from llmgwctl.config.resolve import resolve
from llmgwctl.domain.desired import Desired, Host, Settings
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts.sessions import Sessions
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

    def sessions(self, hosts: Iterable[Host] | None = None) -> Sessions:
        """Return the sessions of a command."""
        return open_sessions(self.base, self.desired.settings, self.desired.hosts if hosts is None else hosts)


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
