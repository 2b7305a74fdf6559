"""Tells a script's answer from what a login shell prints before it: only what follows a random mark counts."""

from __future__ import annotations

import secrets
from collections.abc import Callable

from llmgwctl.hosts.transport import Completed, last_words


def new_mark() -> str:
    """Return a mark that nobody else prints."""
    return f"llmgwctl-answer-{secrets.token_hex(16)}"


def marked(script: str, mark: str) -> str:
    """Return a script that prints the mark on both streams before anything else."""
    return f"printf '\\n%s\\n' {mark}; printf '\\n%s\\n' {mark} >&2\n{script}"


def answer_of(done: Completed, mark: str) -> Completed | None:
    """Return what follows the mark; None where the script has not begun."""
    _, found, output = done.stdout.partition(_line(mark))
    if not found:
        return None
    before, found, errors = done.stderr.partition(_line(mark))
    return Completed(done.exit_status, output, errors if found else before)


def said_instead(done: Completed) -> str:
    """Return what a host said, and how its shell ended, where the script has not begun."""
    words = last_words(done.stdout, done.stderr)
    how = f"exit status {done.exit_status}"
    return f"{words} ({how})" if words else f"{how} without a word"


def after_mark(on_data: Callable[[bytes], None], mark: str) -> Callable[[bytes], None]:
    """Return a receiver that hands on what follows the mark, whatever pieces it comes in."""
    line, waiting, begun = _line(mark), bytearray(), False

    def receive(data: bytes) -> None:
        nonlocal begun
        if begun:
            on_data(data)
            return
        waiting.extend(data)
        _, found, rest = bytes(waiting).partition(line)
        if not found:
            del waiting[: -len(line)]
            return
        begun = True
        waiting.clear()
        if rest:
            on_data(rest)

    return receive


def _line(mark: str) -> bytes:
    return f"\n{mark}\n".encode()
