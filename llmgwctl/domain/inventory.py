"""What hosts are and run, as just seen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

SEEDED = "seeded"
"""Launch digest of a simulated host's seed: launched exactly as the catalog says."""


class Phase(Enum):
    """Where a replica (or a member of one) is in its life."""

    STARTING = "starting"
    READY = "ready"
    UNHEALTHY = "unhealthy"
    FAILED = "failed"
    STOPPING = "stopping"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A slice of a GPU; `memory_mib` belongs to the GPU instance, which several compute instances may share."""

    uuid: str
    profile: str
    gpu_instance: int | None = None
    memory_mib: int | None = None


@dataclass(frozen=True, slots=True)
class Gpu:
    """One device.

    `health` is `ok` or an error code (`gpu_lost`, `gpu_requires_reset`, …). `taken_by` is a replica of ours
    (`MODEL/INDEX`), words about a foreign user (`pid 4711 python3`, `unknown process`), or None where it is free.
    `memory_mib` is None where the memory is the host's (`unified`).
    """

    index: int
    uuid: str
    product: str
    gpu_class: str
    memory_mib: int | None
    used_mib: int | None = 0
    health: str = "ok"
    taken_by: str | None = None
    vendor: str = "nvidia"
    unified: bool = False
    pretended: bool = False
    numa_node: int | None = None
    pci_bus_id: str = ""
    mig: tuple[MigInstance, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether the device works and is sold as a whole."""
        return self.health == "ok" and not self.mig


@dataclass(frozen=True, slots=True)
class Disk:
    path: str
    total_mib: int
    available_mib: int


@dataclass(frozen=True, slots=True)
class ObservedReplica:
    """A member of a replica of ours, as its folder and its process say.

    `restarts` counts the restarts by the supervisor since it was started; `detail` says why it failed. `vanished` tells
    a failed one of which no process is left although nothing recorded an end (all of it killed, or a reboot) from one
    that ended by itself.
    """

    id: str
    member: int
    model: str
    profile: str
    launch_digest: str
    gpus: tuple[str, ...]
    port: int
    phase: Phase
    lineage: str
    folder: str = ""
    engine: str = ""
    restarts: int = 0
    pid: int | None = None
    detail: str = ""
    vanished: bool = False


@dataclass(frozen=True, slots=True)
class Node:
    """One host as seen; where `reachable` is False only `name`, `error`, `labels` and `fabric` say anything.

    `millicores` and `memory_mib` are what is really usable (cgroup limits); None where the host does not tell.
    `replica_root` is the folder that holds our replicas' folders. `ephemeral_ports` is the kernel's own range.
    Two hosts with one `machine` are one machine under two names. `replicas_hidden` is set where folders of replicas
    can't be read, so that some may run unseen.
    """

    name: str
    reachable: bool = True
    error: str | None = None
    millicores: int | None = None
    memory_mib: int | None = None
    memory_available_mib: int | None = None
    labels: tuple[tuple[str, str], ...] = ()
    fabric: str | None = None
    os: str = ""
    supervisor: str = ""
    gpus: tuple[Gpu, ...] = ()
    replicas: tuple[ObservedReplica, ...] = ()
    ports_in_use: tuple[int, ...] = ()
    ephemeral_ports: tuple[int, int] = (32768, 60999)
    replica_root: str = ""
    boot_id: str = ""
    machine: str = ""
    disks: tuple[Disk, ...] = ()
    engines_found: Mapping[str, str] = field(default_factory=dict)
    commands_found: Mapping[str, str] = field(default_factory=dict)
    unsupported: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    clock_skew_s: float | None = None
    replicas_hidden: bool = False
