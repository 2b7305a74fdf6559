"""What an apply tells while it works."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from llmgwctl.domain.plan import Action


@dataclass(frozen=True, slots=True)
class Failure:
    """An action that failed: one sentence, and what the engine said last."""

    action: Action
    message: str
    detail: str = ""


class Report(Protocol):
    """Hears of each step; called from several threads, one call at a time."""

    def begun(self, action: Action) -> None:
        """Hear that an action starts."""
        ...

    def waiting(self, action: Action, what: str, elapsed_s: float) -> None:
        """Hear that an action still goes on."""
        ...

    def done(self, action: Action, elapsed_s: float) -> None:
        """Hear that an action succeeded."""
        ...

    def failed(self, failure: Failure, elapsed_s: float) -> None:
        """Hear that an action failed."""
        ...

    def skipped(self, action: Action, why: str) -> None:
        """Hear that an action was not begun."""
        ...
