"""What an apply tells while it works."""

from __future__ import annotations

from collections.abc import Callable
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


class Guarded:
    """Passes events on as long as somebody listens; a reader that has gone must not break what is under way."""

    def __init__(self, report: Report, on_lost: Callable[[], None]) -> None:
        self._report = report
        self._on_lost = on_lost
        self._lost = False

    def begun(self, action: Action) -> None:
        """Pass on that an action starts."""
        self._pass_on(lambda: self._report.begun(action))

    def waiting(self, action: Action, what: str, elapsed_s: float) -> None:
        """Pass on that an action still goes on."""
        self._pass_on(lambda: self._report.waiting(action, what, elapsed_s))

    def done(self, action: Action, elapsed_s: float) -> None:
        """Pass on that an action succeeded."""
        self._pass_on(lambda: self._report.done(action, elapsed_s))

    def failed(self, failure: Failure, elapsed_s: float) -> None:
        """Pass on that an action failed."""
        self._pass_on(lambda: self._report.failed(failure, elapsed_s))

    def skipped(self, action: Action, why: str) -> None:
        """Pass on that an action was not begun."""
        self._pass_on(lambda: self._report.skipped(action, why))

    def _pass_on(self, tell: Callable[[], None]) -> None:
        if self._lost:
            return
        try:
            tell()
        except (OSError, ValueError):  # a closed pipe, a terminal that is gone, a full disk
            self._lost = True
            self._on_lost()
