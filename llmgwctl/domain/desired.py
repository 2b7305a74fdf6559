"""What is asked for: hosts, models, quotas and settings, resolved and normalised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from llmgwctl.diagnostics import Diagnostic, SourceRange
from llmgwctl.domain.catalog import Env, Model
from llmgwctl.domain.tenancy import Quota


class Connection(Enum):
    SSH = "ssh"
    LOCAL = "local"
    SIMULATED = "simulated"


@dataclass(frozen=True, slots=True)
class EngineInstall:
    """Where an engine is installed on a host: the first words of its command, and its environment."""

    command: tuple[str, ...] = ()
    env: Env = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """What of a host is kept for others."""

    millicores: int = 0
    memory_mib: int = 0
    gpus: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedGpus:
    gpu_class: str
    memory_mib: int
    count: int


@dataclass(frozen=True, slots=True)
class SimulatedReplica:
    """A replica of ours that a simulated host is seeded with."""

    replica: str
    profile: str
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Simulate:
    """A pretended host (connection `simulated`), or pretended GPUs on a real one."""

    gpus: tuple[SimulatedGpus, ...] = ()
    millicores: int | None = None
    memory_mib: int | None = None
    running: tuple[SimulatedReplica, ...] = ()
    unreachable: bool = False
    fail_start: tuple[str, ...] = ()
    slow_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Host:
    name: str
    address: str
    port: int | None = None
    user: str | None = None
    connection: Connection = Connection.SSH
    jump: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    fabric: str | None = None
    gpu_class: str | None = None
    listen: str | None = None
    engines: Mapping[str, EngineInstall] = field(default_factory=dict)
    reserve: Reserve = Reserve()
    schedulable: bool = True
    drain: bool = False
    sudo: bool = False
    simulate: Simulate | None = None
    at: SourceRange | None = field(default=None, compare=False)

    @property
    def listen_address(self) -> str:
        """Where engines listen: never every interface unless that is written."""
        return self.listen or self.address


@dataclass(frozen=True, slots=True)
class StateSettings:
    backend: str = "file"
    path: str = "llmgwctl.state.json"
    options: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SshSettings:
    user: str | None = None
    port: int | None = None
    known_hosts: str | None = None
    host_keys: str = "strict"
    connect_timeout_s: float = 10.0
    command_timeout_s: float = 60.0
    parallelism: int = 50


@dataclass(frozen=True, slots=True)
class Guard:
    """How much may be lost or stopped at once without an explicit word; `None` is no guard."""

    max_lost: str | None = None
    max_stops: str | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """`ports_from` to `ports_to` (inclusive) are given to engines; below Linux's ephemeral range, 32768."""

    state: StateSettings = StateSettings()
    ssh: SshSettings = SshSettings()
    engines: Mapping[str, EngineInstall] = field(default_factory=dict)
    headroom: str = "none"
    ports_from: int = 20000
    ports_to: int = 29999
    replica_dir: str | None = None
    guard: Guard = Guard()
    retries: int = 0
    weights: str = "none"
    exports: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Desired:
    """The whole declaration; hosts, models and quotas are sorted by name, so file order never matters."""

    hosts: tuple[Host, ...] = ()
    models: tuple[Model, ...] = ()
    quotas: tuple[Quota, ...] = ()
    settings: Settings = Settings()
    diagnostics: tuple[Diagnostic, ...] = ()
