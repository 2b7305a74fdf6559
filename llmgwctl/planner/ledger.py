"""The quota algebra: what each scope holds, what its guarantee covers, where a limit ends."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from llmgwctl.domain.catalog import Model, ModelClass
from llmgwctl.domain.plan import QuotaLine, Standing
from llmgwctl.domain.tenancy import CORES, GPUS, MEMORY, Amount, Quota


@dataclass(frozen=True, slots=True)
class Holding:
    """What one running replica takes, and what its place in the cover depends on.

    `rank` counts from 1 in the order of starts inside the model; above `minimum` it is headroom.
    """

    replica: str
    model: str
    owner: str | None
    amount: Amount
    gpu_class: str
    model_class: ModelClass
    priority: int
    rank: int
    minimum: bool

    @property
    def importance(self) -> tuple[bool, int, int, str, int]:
        """The static total order of replicas (most important first); nothing in it depends on who runs."""
        return (not self.minimum, self.model_class.rank, -self.priority, self.model, self.rank)

    def takes(self, resource: str) -> int:
        """Return how much of a resource the replica takes, in the resource's whole units."""
        return taken(self.amount, self.gpu_class, resource)


@dataclass(frozen=True, slots=True)
class LimitHit:
    """A limit that a start would pass."""

    scope: str
    resource: str
    needed: int
    available: int


def taken(amount: Amount, gpu_class: str, resource: str) -> int:
    """Return how much of a measured resource an amount is."""
    if resource == GPUS:
        return amount.gpus
    if resource == CORES:
        return amount.millicores
    if resource == MEMORY:
        return amount.memory_mib
    return amount.gpus if resource == f"gpu_classes.{gpu_class}" else 0


class Ledger:
    """Held amounts by scope; starts are added as they are planned."""

    def __init__(self, quotas: Iterable[Quota], holdings: Iterable[Holding]) -> None:
        self._quotas: Mapping[str, Quota] = {q.scope: q for q in quotas}
        self._paths: dict[str, tuple[str, ...]] = {}
        self._held: dict[str, dict[str, int]] = {}
        self._counts: dict[str, int] = {}
        self.holdings: list[Holding] = []
        for holding in holdings:
            self.add(holding)

    def path(self, owner: str | None) -> tuple[str, ...]:
        """Return the owner and its ancestors, innermost first; nothing for a shared model."""
        if owner is None:
            return ()
        if owner not in self._paths:
            path = [owner]
            while (quota := self._quotas.get(path[-1])) and quota.parent and quota.parent not in path:
                path.append(quota.parent)
            self._paths[owner] = tuple(path)
        return self._paths[owner]

    def add(self, holding: Holding) -> None:
        """Count a replica that runs, or will."""
        self.holdings.append(holding)
        self._counts[holding.model] = self._counts.get(holding.model, 0) + 1
        for scope in self.path(holding.owner):
            held = self._held.setdefault(scope, {})
            for resource in (GPUS, CORES, MEMORY, f"gpu_classes.{holding.gpu_class}"):
                held[resource] = held.get(resource, 0) + holding.takes(resource)

    def count(self, model: str) -> int:
        """Return how many replicas of a model are counted."""
        return self._counts.get(model, 0)

    def held(self, scope: str, resource: str) -> int:
        """Return what the scope's replicas and those beneath it take."""
        return self._held.get(scope, {}).get(resource, 0)

    def limit_hit(self, owner: str | None, amount: Amount, gpu_class: str) -> LimitHit | None:
        """Return the first limit, from the innermost scope outwards, that a start would pass.

        A resource of which the replica takes nothing can't refuse it (rule R4).
        """
        for scope in self.path(owner):
            quota = self._quotas.get(scope)
            for resource, limit in quota.limit if quota else ():
                needed = taken(amount, gpu_class, resource)
                available = limit - self.held(scope, resource)
                if needed > 0 and needed > available:
                    return LimitHit(scope, resource, needed, max(0, available))
        return None

    def has_guarantee(self, owner: str | None) -> bool:
        """Whether any scope on the path guarantees something."""
        return any(self._quotas[s].guarantee for s in self.path(owner) if s in self._quotas)

    def standings(self) -> dict[str, Standing]:
        """Return each counted replica's standing, by rule R3 (greedy with skip, deepest scopes first)."""
        covered: set[str] = set()
        beneath: dict[str, list[Holding]] = {}
        for holding in self.holdings:
            for scope in self.path(holding.owner):
                beneath.setdefault(scope, []).append(holding)
        for scope in sorted(beneath, key=lambda s: (-len(self.path(s)), s)):
            quota = self._quotas.get(scope)
            if quota and quota.guarantee:
                covered |= _cover(quota, beneath[scope], covered)
        return {
            h.replica: Standing.SHARED
            if h.owner is None
            else Standing.GUARANTEED
            if h.replica in covered
            else Standing.BORROWED
            for h in self.holdings
        }


def _cover(quota: Quota, holdings: list[Holding], covered_beneath: set[str]) -> set[str]:
    """Return the replicas that a scope's own guarantee covers."""
    left = dict(quota.guarantee)
    covered = set()
    for holding in sorted(holdings, key=lambda h: (h.replica not in covered_beneath, h.importance)):
        needs = {resource: holding.takes(resource) for resource in left}
        # A guarantee speaks only of replicas that use something it names (R1); else {gpus: 4} covers any CPU model.
        if any(needs.values()) and all(needs[r] <= left[r] for r in left):
            for resource, need in needs.items():
                left[resource] -= need
            covered.add(holding.replica)
    return covered


def quota_lines(quotas: Iterable[Quota], before: Ledger, after: Ledger) -> tuple[QuotaLine, ...]:
    """Return every scope's resources that its quota names or that it holds, in name order."""
    lines = []
    for quota in sorted(quotas, key=lambda q: q.scope):
        guarantee, limit = dict(quota.guarantee), dict(quota.limit)
        held = {r for ledger in (before, after) for r, n in ledger._held.get(quota.scope, {}).items() if n}
        for resource in sorted({*guarantee, *limit, *held} - {"gpu_classes."}):
            lines.append(
                QuotaLine(
                    quota.scope,
                    resource,
                    guarantee.get(resource),
                    limit.get(resource),
                    before.held(quota.scope, resource),
                    after.held(quota.scope, resource),
                )
            )
    return tuple(lines)


def holding_of(model: Model, replica: str, amount: Amount, gpu_class: str, rank: int) -> Holding:
    """Return what a replica of a catalog model holds."""
    return Holding(
        replica,
        model.name,
        model.owner,
        amount,
        gpu_class,
        model.model_class,
        model.priority,
        rank,
        rank <= model.scaling.min,
    )
