"""The quota algebra: what each scope holds, what its guarantee covers, where a limit ends.

The rules' numbers (R1 to R11) are those of the README's section on quotas.
"""

from __future__ import annotations

from bisect import insort
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from llmgwctl.domain.catalog import Model, ModelClass
from llmgwctl.domain.plan import QuotaLine, Standing
from llmgwctl.domain.tenancy import CORES, GPUS, MEMORY, Amount, Quota

Importance = tuple[bool, int, int, str, int]
Group = tuple[str, str]
"""Model and profile: replicas of one group are interchangeable."""


@dataclass(frozen=True, slots=True)
class Holding:
    """What one running replica takes, and what its place in the cover depends on.

    `order` is its start's, so that a model's replicas are ranked oldest first; those above `minimum` are headroom.
    """

    replica: str
    model: str
    profile: str
    owner: str | None
    amount: Amount
    gpu_class: str
    model_class: ModelClass
    priority: int
    order: int
    minimum: int

    @property
    def group(self) -> Group:
        """What it is interchangeable with."""
        return (self.model, self.profile)

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
    """Held amounts and cover by scope; replicas come and go as they are planned to."""

    def __init__(self, quotas: Iterable[Quota], holdings: Iterable[Holding] = ()) -> None:
        self._quotas: Mapping[str, Quota] = {q.scope: q for q in quotas}
        self._children: dict[str, list[str]] = {}
        for quota in self._quotas.values():
            if quota.parent:
                self._children.setdefault(quota.parent, []).append(quota.scope)
        self._paths: dict[str, tuple[str, ...]] = {}
        self._held: dict[str, Counter[str]] = {}
        self._beneath: dict[str, dict[str, Holding]] = {}
        self._by_model: dict[str, list[tuple[int, int, str]]] = {}
        self._ranks: dict[str, int] = {}
        self._covers: dict[str, frozenset[str]] = {}
        self._last_order = 0
        self.holdings: dict[str, Holding] = {}
        for holding in holdings:
            self.add(holding)

    # -- what runs ------------------------------------------------------------------------------------------------

    def add(self, holding: Holding) -> None:
        """Count a replica that runs, or will."""
        self.holdings[holding.replica] = holding
        insort(self._by_model.setdefault(holding.model, []), _by_start(holding))
        self._last_order = max(self._last_order, holding.order)
        self._rank(holding.model)
        self._count(holding, 1)

    def remove(self, replica: str) -> Holding:
        """Count a replica no longer."""
        holding = self.holdings.pop(replica)
        self._by_model[holding.model].remove(_by_start(holding))
        del self._ranks[replica]
        self._rank(holding.model)
        self._count(holding, -1)
        return holding

    @contextmanager
    def supposing(self, without: Sequence[str], and_with: Holding | None = None) -> Iterator[None]:
        """Look at what would be: some replicas gone, and one more."""
        gone = [self.remove(replica) for replica in without]
        if and_with:
            self.add(and_with)
        try:
            yield
        finally:
            if and_with:
                self.remove(and_with.replica)
            for holding in gone:
                self.add(holding)

    def of_model(self, model: str) -> list[Holding]:
        """Return a model's replicas, oldest first."""
        return [self.holdings[replica] for _, _, replica in self._by_model.get(model, ())]

    def count(self, model: str) -> int:
        """Return how many replicas of a model are counted."""
        return len(self._by_model.get(model, ()))

    def next_order(self) -> int:
        """Return an order after every counted one."""
        return self._last_order + 1

    def rank(self, replica: str) -> int:
        """Return a replica's place in its model, oldest first, from 1."""
        return self._ranks[replica]

    def is_minimum(self, holding: Holding) -> bool:
        """Whether a replica is one of its model's minimum, and not headroom."""
        return self._ranks[holding.replica] <= holding.minimum

    def importance(self, holding: Holding) -> Importance:
        """Return a replica's place in the static total order (R2), most important first; who runs is no part of it."""
        rank = self._ranks[holding.replica]
        return (rank > holding.minimum, holding.model_class.rank, -holding.priority, holding.model, rank)

    # -- scopes ---------------------------------------------------------------------------------------------------

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

    def level(self, scope: str) -> int:
        """Return a scope's depth in the tree: 1 for an org."""
        return len(self.path(scope))

    def quota(self, scope: str) -> Quota:
        """Return a scope's quota; one that isn't declared guarantees and limits nothing."""
        return self._quotas.get(scope) or Quota(scope)

    def held(self, scope: str, resource: str) -> int:
        """Return what the scope's replicas and those beneath it take."""
        return self._held[scope][resource] if scope in self._held else 0

    def beneath(self, scope: str) -> Iterable[Holding]:
        """Return what the scope's models and those beneath it run."""
        return self._beneath.get(scope, {}).values()

    def limit_hit(self, owner: str | None, amount: Amount, gpu_class: str) -> LimitHit | None:
        """Return the first limit, from the innermost scope outwards, that a start would pass (R4).

        A resource of which the replica takes nothing can't refuse it.
        """
        for scope in self.path(owner):
            for resource, limit in self.quota(scope).limit:
                needed = taken(amount, gpu_class, resource)
                available = limit - self.held(scope, resource)
                if needed > 0 and needed > available:
                    return LimitHit(scope, resource, needed, max(0, available))
        return None

    def has_guarantee(self, owner: str | None) -> bool:
        """Whether any scope on the path guarantees something."""
        return any(self.quota(s).guarantee for s in self.path(owner))

    def guarantees_room(self, scope: str, amount: Amount, gpu_class: str) -> bool:
        """Whether a scope's guarantee speaks of an amount (R1), and has room for it beside all that is held."""
        guarantee = self.quota(scope).guarantee
        needs = [(taken(amount, gpu_class, r), self.held(scope, r), g) for r, g in guarantee]
        return any(need for need, _, _ in needs) and all(held + need <= most for need, held, most in needs)

    def within(self, owner: str | None, amount: Amount, gpu_class: str) -> bool:
        """Whether some scope on the path guarantees room for an amount (R8)."""
        return any(self.guarantees_room(s, amount, gpu_class) for s in self.path(owner))

    def beyond(self, scope: str) -> bool:
        """Whether a scope holds more than its guarantee of something that it names."""
        return any(self.held(scope, r) > most for r, most in self.quota(scope).guarantee)

    # -- cover ----------------------------------------------------------------------------------------------------

    def cover(self, scope: str) -> frozenset[str]:
        """Return the replicas that a scope's own guarantee covers (R3: greedy with skip, the deeper scopes first)."""
        if scope not in self._covers:
            self._covers[scope] = self._covered(scope)
        return self._covers[scope]

    def cover_counts(self, scope: str) -> Counter[Group]:
        """Return how many replicas of each group a scope covers."""
        return Counter(self.holdings[r].group for r in self.cover(scope))

    def covering_level(self, holding: Holding) -> int:
        """Return the level of the deepest scope that covers a replica; 0 for none."""
        return next((self.level(s) for s in self.path(holding.owner) if holding.replica in self.cover(s)), 0)

    def standings(self) -> dict[str, Standing]:
        """Return each counted replica's standing."""
        return {replica: self.standing(holding) for replica, holding in self.holdings.items()}

    def standing(self, holding: Holding) -> Standing:
        """Return a replica's standing."""
        if holding.owner is None:
            return Standing.SHARED
        return Standing.GUARANTEED if self.covering_level(holding) else Standing.BORROWED

    def _covered(self, scope: str) -> frozenset[str]:
        left = dict(self.quota(scope).guarantee)
        if not left:
            return frozenset()
        beneath = self._covered_beneath(scope)
        covered = set()
        for holding in sorted(self.beneath(scope), key=lambda h: (h.replica not in beneath, self.importance(h))):
            needs = {resource: holding.takes(resource) for resource in left}
            # A guarantee speaks only of replicas that use something it names (R1), or {gpus: 4} covers any CPU model.
            if any(needs.values()) and all(needs[r] <= left[r] for r in left):
                for resource, need in needs.items():
                    left[resource] -= need
                covered.add(holding.replica)
        return frozenset(covered)

    def _covered_beneath(self, scope: str) -> frozenset[str]:
        children = self._children.get(scope, ())
        return frozenset().union(*(self.cover(c) | self._covered_beneath(c) for c in children))

    # -- bookkeeping ----------------------------------------------------------------------------------------------

    def _rank(self, model: str) -> None:
        for place, (_, _, replica) in enumerate(self._by_model[model], 1):
            self._ranks[replica] = place

    def _count(self, holding: Holding, sign: int) -> None:
        for scope in self.path(holding.owner):
            held = self._held.setdefault(scope, Counter())
            for resource in (GPUS, CORES, MEMORY, f"gpu_classes.{holding.gpu_class}"):
                held[resource] += sign * holding.takes(resource)
            replicas = self._beneath.setdefault(scope, {})
            if sign > 0:
                replicas[holding.replica] = holding
            else:
                del replicas[holding.replica]
            self._covers.pop(scope, None)


def _by_start(holding: Holding) -> tuple[int, int, str]:
    return (holding.order, int(holding.replica.rpartition("/")[2]), holding.replica)


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


def holding_of(model: Model, replica: str, profile: str, amount: Amount, gpu_class: str, order: int) -> Holding:
    """Return what a replica of a catalog model holds."""
    return Holding(
        replica=replica,
        model=model.name,
        profile=profile,
        owner=model.owner,
        amount=amount,
        gpu_class=gpu_class,
        model_class=model.model_class,
        priority=model.priority,
        order=order,
        minimum=model.scaling.min,
    )
