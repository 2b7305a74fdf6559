"""Ctrl-C once: finish what is under way. Twice: stop now. Either way the state is saved."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import FrameType


@dataclass(frozen=True, slots=True)
class Interrupts:
    """`stopping`: begin nothing new. `aborting`: wait for nothing any more."""

    stopping: threading.Event = field(default_factory=threading.Event)
    aborting: threading.Event = field(default_factory=threading.Event)


@contextmanager
def catching(tell: Callable[[str], None]) -> Iterator[Interrupts]:
    """Turn SIGINT, SIGTERM and SIGHUP into requests for the time of the block."""
    interrupts = Interrupts()

    def say(text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal itself may be what has gone
            tell(text)

    def handle(_number: int, _frame: FrameType | None) -> None:
        if not interrupts.stopping.is_set():
            interrupts.stopping.set()
            say("Interrupted: finishing what is under way, then saving. Interrupt again to stop at once.")
        elif not interrupts.aborting.is_set():
            interrupts.aborting.set()
            say("Interrupted again: stopping now. What was begun is recorded; the next plan sorts it out.")

    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return
    former = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield interrupts
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
