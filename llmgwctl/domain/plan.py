"""What will change and why, as data: actions in an order in which every prefix is safe."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from llmgwctl.diagnostics import Diagnostic
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.state import ReplicaRecord


class ActionKind(Enum):
    START = "start"
    STOP = "stop"
    REPLACE = "replace"
    MOVE = "move"
    KEEP = "keep"
    FORGET = "forget"
    DEFER = "defer"


class ReasonCode(Enum):
    NEW = "new"
    UNCHANGED = "unchanged"
    NOT_WANTED = "not_wanted"
    LAUNCH_CHANGED = "launch_changed"
    PROCESS_GONE = "process_gone"
    FAILED = "failed"
    INTERRUPTED = "interrupted"
    NODE_GONE = "node_gone"
    NODE_UNREACHABLE = "node_unreachable"
    DRAINED = "drained"
    RECLAIMED = "reclaimed"
    PREEMPTED = "preempted"
    MAKES_ROOM = "makes_room"
    HEADROOM = "headroom"
    SCALED_DOWN = "scaled_down"
    DECLARED = "declared"


class Standing(Enum):
    GUARANTEED = "guaranteed"
    BORROWED = "borrowed"
    SHARED = "shared"


class Condition(Enum):
    """What a recorded replica turned out to be."""

    HEALTHY = "healthy"
    STARTING = "starting"
    UNHEALTHY = "unhealthy"
    RESTARTED = "restarted"
    REBOOTED = "rebooted"
    FAILED = "failed"
    GONE = "gone"
    CHANGED = "changed"
    UNKNOWN = "unknown"
    ORPHANED = "orphaned"
    INTERRUPTED = "interrupted"
    NODE_GONE = "node_gone"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why; `for_replica` is the replica that a stop or move makes room for."""

    code: ReasonCode
    text: str
    for_replica: str | None = None


@dataclass(frozen=True, slots=True)
class MemberPlacement:
    """Where one member of a replica runs."""

    node: str
    gpus: tuple[str, ...]
    gpu_indices: tuple[int, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Action:
    """One change of one replica.

    `placement` and `launches` (a pair per member) say what will run: for a stop, forget or defer, what runs or ran.
    `before` is the record that is stopped, replaced, moved, kept or forgotten. `millicores` and `memory_mib` are
    what each member reserves of its node. `waits_for` names the replicas whose actions must be done first.
    """

    kind: ActionKind
    replica: str
    model: str
    profile: str
    engine: str
    reason: Reason
    placement: tuple[MemberPlacement, ...] = ()
    launches: tuple[LaunchSpec, ...] = ()
    before: ReplicaRecord | None = None
    owner: str | None = None
    model_class: str = "standard"
    standing: Standing = Standing.SHARED
    simulated: bool = False
    origin: str = "declared"
    millicores: int = 0
    memory_mib: int = 0
    gpu_class: str = ""
    prevent_stop: bool = False
    waits_for: tuple[str, ...] = ()

    @property
    def starts(self) -> bool:
        """Whether a process is started."""
        return self.kind in (ActionKind.START, ActionKind.REPLACE, ActionKind.MOVE)

    @property
    def stops(self) -> bool:
        """Whether a process may be stopped."""
        return self.kind in (ActionKind.STOP, ActionKind.REPLACE, ActionKind.MOVE)

    @property
    def changes(self) -> bool:
        """Whether apply has anything to do (a defer waits, a keep stays)."""
        return self.kind not in (ActionKind.KEEP, ActionKind.DEFER)


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason why a replica cannot be placed; `numbers` are its figures, by name."""

    code: str
    text: str
    numbers: tuple[tuple[str, int | float | str], ...] = ()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A wanted minimum replica that cannot be placed."""

    model: str
    replica: str
    causes: tuple[Cause, ...]


@dataclass(frozen=True, slots=True)
class HeadroomStop:
    """Why a model that may run more replicas does not."""

    model: str
    running: int
    max: int
    code: str
    text: str


@dataclass(frozen=True, slots=True)
class QuotaLine:
    """One measured resource of one scope, in the resource's whole units (millicores, MiB)."""

    scope: str
    resource: str
    guarantee: int | None
    limit: int | None
    held_before: int
    held_after: int

    @property
    def borrowed_after(self) -> int | None:
        """What is held beyond the guarantee; None where nothing is guaranteed."""
        return None if self.guarantee is None else max(0, self.held_after - self.guarantee)


@dataclass(frozen=True, slots=True)
class Drift:
    """A recorded replica that is not as it was left."""

    replica: str
    condition: Condition
    text: str


@dataclass(frozen=True, slots=True)
class Refresh:
    """What apply records without acting: a replica seen again after a restart or a reboot, or found on a host."""

    record: ReplicaRecord


@dataclass(frozen=True, slots=True)
class Plan:
    """All changes, with what they were worked out from.

    `hosts` are the nodes' names and whether each could be reached, for the summary.
    """

    lineage: str | None
    serial: int
    taken_at: str
    actions: tuple[Action, ...] = ()
    shortfalls: tuple[Shortfall, ...] = ()
    headroom_stops: tuple[HeadroomStop, ...] = ()
    quotas: tuple[QuotaLine, ...] = ()
    drift: tuple[Drift, ...] = ()
    refreshes: tuple[Refresh, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    hosts: tuple[tuple[str, bool], ...] = ()

    def changes(self) -> Iterator[Action]:
        """Yield the actions that apply carries out, in order."""
        return (a for a in self.actions if a.changes)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do and nothing drifted: what exit code 2 is about."""
        return not self.drift and not any(a.changes for a in self.actions)

    def count(self, kind: ActionKind) -> int:
        """Return how many actions are of that kind."""
        return sum(a.kind is kind for a in self.actions)
