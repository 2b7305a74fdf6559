"""What can be served: models, and the profiles that say how each runs."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from llmgwctl.diagnostics import SourceRange
from llmgwctl.domain.tenancy import Amount

CPU_CAPABLE_ENGINES = frozenset({"llamacpp"})
"""Engines that can serve a model without a GPU."""


@dataclass(frozen=True, slots=True)
class SecretRef:
    """Where a secret value comes from; the value itself is never held here.

    `kind` is `from_env` or `from_file` (one source), or `from_command` (argv).
    """

    kind: str
    source: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.source)}"


EnvValue = str | SecretRef
Env = tuple[tuple[str, EnvValue], ...]
"""Environment variables, sorted by name."""


class ModelClass(Enum):
    """Who gives way first; declared from the most to the least important."""

    CRITICAL = "critical"
    STANDARD = "standard"
    OPPORTUNISTIC = "opportunistic"

    @property
    def rank(self) -> int:
        """0 for the most important."""
        return tuple(ModelClass).index(self)


class Origin(Enum):
    DECLARED = "declared"
    RUNTIME = "runtime"


class UpdateStrategy(Enum):
    AUTO = "auto"
    SURGE = "surge"
    IN_PLACE = "in_place"


@dataclass(frozen=True, slots=True)
class Scaling:
    min: int = 0
    max: int = 1


@dataclass(frozen=True, slots=True)
class Slo:
    ttft_p99_ms: int | None = None
    tpot_p99_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Capabilities:
    tools: bool = False
    vision: bool = False
    embeddings: bool = False


@dataclass(frozen=True, slots=True)
class Update:
    strategy: UpdateStrategy = UpdateStrategy.AUTO
    max_unavailable: int = 1


@dataclass(frozen=True, slots=True)
class Profile:
    """One way to run a model; defaults are already filled in.

    `memory_mib` and `millicores` are per node of a replica; 0 means that nothing is asked for.
    """

    name: str
    engine: str = "vllm"
    gpu_class: str | None = None
    tp: int = 1
    pp: int = 1
    gpus_per_node: int = 1
    nodes: int = 1
    args: tuple[str, ...] = ()
    env: Env = ()
    memory_mib: int = 0
    millicores: int = 0
    node_selector: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0
    priority: int = 0
    startup_timeout_s: float = 1200.0
    port: int | None = None

    @property
    def cpu_only(self) -> bool:
        """Whether a replica asks for no GPU at all."""
        return self.gpu_class is None and self.engine in CPU_CAPABLE_ENGINES

    @property
    def size(self) -> Amount:
        """What one whole replica takes."""
        return Amount(self.gpus_per_node, self.millicores, self.memory_mib).times(self.nodes)


@dataclass(frozen=True, slots=True)
class Model:
    """A catalog entry as clients see it."""

    name: str
    source: str
    profiles: tuple[Profile, ...]
    aliases: tuple[str, ...] = ()
    owner: str | None = None
    model_class: ModelClass = ModelClass.OPPORTUNISTIC
    scaling: Scaling = Scaling()
    fallbacks: tuple[str, ...] = ()
    routing_profile: str | None = None
    slo: Slo = Slo()
    context_length: int | None = None
    max_output: int | None = None
    capabilities: Capabilities = Capabilities()
    update: Update = Update()
    priority: int = 0
    prevent_stop: bool = False
    origin: Origin = Origin.DECLARED
    at: SourceRange | None = field(default=None, compare=False)

    @property
    def simulated(self) -> bool:
        """Whether every answer is synthetic: one real profile means a real engine may answer."""
        return bool(self.profiles) and all(p.engine == "sim" for p in self.profiles)

    def profile(self, name: str) -> Profile | None:
        """Return the profile of that name."""
        return next((p for p in self.profiles if p.name == name), None)
