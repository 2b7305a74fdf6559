"""The potential that every step raises (rule R6.4): why planning ends, and why no replica is taken to and fro."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.planner.ledger import Holding, Ledger

Slot = tuple[str, int]


def rises(ledger: Ledger, without: Sequence[str], start: Holding) -> bool:
    """Whether stopping some replicas and starting one raises the potential.

    With one profile a model this follows from the other rules; where a model runs several, ranks may shift, and it has
    to be looked at.
    """
    models = {ledger.holdings[r].model for r in without} | {start.model}
    if all(len({h.profile for h in ledger.of_model(m)} | _profile_of(start, m)) == 1 for m in models):
        return True
    before = _Potential(ledger)
    with ledger.supposing(without, start):
        after = _Potential(ledger)
    return before.is_below(after)


def _profile_of(start: Holding, model: str) -> set[str]:
    return {start.profile} if start.model == model else set()


class _Potential:
    """What the scopes of each level cover, deepest first, then what runs: as sets of (model, rank)."""

    def __init__(self, ledger: Ledger) -> None:
        self.importance = {self._slot(ledger, h): ledger.importance(h) for h in ledger.holdings.values()}
        scopes = {s for h in ledger.holdings.values() for s in ledger.path(h.owner)}
        self.levels: dict[int, set[Slot]] = {}
        for scope in scopes:
            covered = {self._slot(ledger, ledger.holdings[r]) for r in ledger.cover(scope)}
            self.levels.setdefault(ledger.level(scope), set()).update(covered)
        self.running = set(self.importance)

    @staticmethod
    def _slot(ledger: Ledger, holding: Holding) -> Slot:
        return (holding.model, ledger.rank(holding.replica))

    def is_below(self, other: _Potential) -> bool:
        importance = {**self.importance, **other.importance}
        deeper: set[Slot] = set()
        for level in sorted({*self.levels, *other.levels}, reverse=True):
            mine, theirs = self.levels.get(level, set()), other.levels.get(level, set())
            if mine != theirs:
                first = min(mine ^ theirs, key=lambda s: (s not in deeper, importance[s]))
                return first in theirs
            deeper |= mine
        if self.running == other.running:
            return False
        return min(self.running ^ other.running, key=lambda s: importance[s]) in other.running
