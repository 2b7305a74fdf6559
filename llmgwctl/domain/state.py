"""What is recorded as ours: the replicas that apply started, and what was added beside the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.tenancy import Amount


@dataclass(frozen=True, slots=True)
class MemberRecord:
    """One member of a recorded replica: where it is and what was launched.

    `boot_id` and `restarts` are what the last apply saw, so that a later reboot or restart is told once.
    """

    node: str
    gpus: tuple[str, ...]
    gpu_indices: tuple[int, ...]
    launch: LaunchSpec
    boot_id: str = ""
    restarts: int = 0

    @property
    def port(self) -> int:
        """The member's port."""
        return self.launch.port


@dataclass(frozen=True, slots=True)
class ReplicaRecord:
    """One replica of ours.

    `order` counts starts over the state's life: a model's replicas are ranked by it, oldest first.
    `secret_digests` (by environment variable) are salted with the lineage and tell whether a secret changed.
    `millicores` and `memory_mib` are what each member reserves of its node.
    `starting` marks an intent whose result was never recorded.
    """

    id: str
    model: str
    profile: str
    engine: str
    members: tuple[MemberRecord, ...]
    owner: str | None = None
    model_class: str = "standard"
    order: int = 0
    started_at: str = ""
    secret_digests: tuple[tuple[str, str], ...] = ()
    millicores: int = 0
    memory_mib: int = 0
    gpu_class: str = ""
    simulated: bool = False
    origin: str = "declared"
    prevent_stop: bool = False
    starting: bool = False

    @property
    def size(self) -> Amount:
        """What the whole replica takes."""
        gpus = sum(len(m.gpus) for m in self.members)
        return Amount(gpus, self.millicores * len(self.members), self.memory_mib * len(self.members))

    @property
    def index(self) -> int:
        """The number behind the model's name."""
        return int(self.id.rpartition("/")[2])


@dataclass(frozen=True, slots=True)
class State:
    """The state file's contents.

    `runtime_models` and `runtime_quotas` are kept as they were written (defaults not filled in).
    A state without lineage has never been written.
    """

    lineage: str | None = None
    serial: int = 0
    replicas: Mapping[str, ReplicaRecord] = field(default_factory=dict)
    runtime_models: Mapping[str, object] = field(default_factory=dict)
    runtime_quotas: Mapping[str, object] = field(default_factory=dict)
    journal: tuple[object, ...] = ()
