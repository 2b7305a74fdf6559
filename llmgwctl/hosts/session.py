"""What can be done with one host, whatever the way it is reached."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.errors import LlmgwctlError

LOG_TAIL_BYTES = 4 * 1024 * 1024
"""Most that is shown of a log's end, however long its lines are."""


@dataclass(frozen=True, slots=True)
class GatherRequest:
    """What to look for beside what every host is asked.

    `paths` are weights' folders or files whose disk is reported; `commands` maps an engine's name to the command
    that a host is said to have it under. `lineage` is the state's, empty before there is one.
    """

    lineage: str = ""
    replica_dir: str | None = None
    paths: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StartOrder:
    """One member to start. `secrets` are resolved values: they go to the host's secrets file and nowhere else."""

    replica: str
    member: int
    model: str
    profile: str
    lineage: str
    node: str
    launch: LaunchSpec
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    simulated: bool = False


class Life(Enum):
    """Whether a started process lives."""

    ALIVE = "alive"
    ENDED = "ended"
    ABSENT = "absent"


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """A member's process just now; `detail` says how it ended. `restarts` above 0 means that it ended at least once."""

    life: Life
    detail: str = ""
    restarts: int = 0


class StartError(LlmgwctlError):
    """A member could not be started, or ended before it was ready."""


class StartRefusedError(StartError):
    """The host refused a start: it changed nothing, or took back what it had changed. Nothing is to be cleaned up."""


class StopError(LlmgwctlError):
    """A member could not be stopped wholly: its process, port or GPU memory is still there."""


class HostSession(Protocol):
    """One host for the time of a command. Errors are LlmgwctlErrors in plain words."""

    host: Host

    def gather(self, request: GatherRequest) -> Node:
        """Look at the host: one round trip."""
        ...

    def start(self, order: StartOrder) -> str:
        """Write the member's folder and start its process; returns the boot id as soon as it runs (not: is ready).

        Raises StartRefusedError where nothing of it is left on the host.
        """
        ...

    def status(self, launch: LaunchSpec) -> MemberStatus:
        """Say whether the member's process lives."""
        ...

    def serving(self, launch: LaunchSpec) -> str:
        """Return an empty text once the engine serves, else what it is still doing."""
        ...

    def mark_ready(self, launch: LaunchSpec) -> None:
        """Record on the host that the member was seen ready."""
        ...

    def stop(self, launch: LaunchSpec, lineage: str) -> None:
        """End the member and remove its folder; returns with the proof that port and GPUs are free.

        What is under that name of another state is not ours to stop, and is left alone. Where nothing is left
        nothing is done.
        """
        ...

    def log_tail(self, root: str, folder: str, lines: int, most_bytes: int = LOG_TAIL_BYTES) -> str:
        """Return the last lines of the engine's log, and no more bytes than that; empty when there is none."""
        ...

    def follow_log(
        self, root: str, folder: str, lines: int, on_data: Callable[[bytes], None], stop: threading.Event
    ) -> None:
        """Hand on the log as it grows, until `stop` is set."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
