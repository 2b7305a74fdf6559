"""Who owns what: scopes, quotas and amounts of resources, in whole numbers."""

from __future__ import annotations

from dataclasses import dataclass, field

from llmgwctl.diagnostics import SourceRange

GPUS, CORES, MEMORY = "gpus", "cores", "memory_gb"


@dataclass(frozen=True, slots=True)
class Amount:
    """GPUs, thousandths of a core and MiB; integers, so that 0.1 + 0.2 is within 0.3."""

    gpus: int = 0
    millicores: int = 0
    memory_mib: int = 0

    def plus(self, other: Amount) -> Amount:
        """Return the sum."""
        return Amount(self.gpus + other.gpus, self.millicores + other.millicores, self.memory_mib + other.memory_mib)

    def times(self, count: int) -> Amount:
        """Return the multiple."""
        return Amount(self.gpus * count, self.millicores * count, self.memory_mib * count)


Measured = tuple[tuple[str, int], ...]
"""Resource name (`gpus`, `cores` in millicores, `memory_gb` in MiB, `gpu_classes.CLASS`) to amount.

Only named resources are measured; sorted by name.
"""


@dataclass(frozen=True, slots=True)
class Quota:
    """What a scope is guaranteed and limited to."""

    scope: str
    parent: str | None = None
    guarantee: Measured = ()
    limit: Measured = ()
    at: SourceRange | None = field(default=None, compare=False)


def scope_level(scope: str) -> str:
    """Return `org`, `team` or `project`."""
    return scope.partition(":")[0]
