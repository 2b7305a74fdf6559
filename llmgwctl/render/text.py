"""Words, colours and tables that every text for people shares."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgwctl.diagnostics import Diagnostic, Severity

_COLOUR_CODE = re.compile("(\x1b\\[[0-9;]*m)")
_LONGEST_CELL = 120
_CODES = {"red": "31", "green": "32", "yellow": "33", "cyan": "36", "bold": "1", "dim": "2"}


@dataclass(frozen=True, slots=True)
class Style:
    """Colours, or none."""

    colour: bool = False

    def paint(self, text: str, *names: str) -> str:
        """Return the text in colours, where they are wanted."""
        if not self.colour or not text:
            return text
        return f"\x1b[{';'.join(_CODES[n] for n in names)}m{text}\x1b[0m"


def table(headers: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table without rules: names line up, and a program could still cut it by columns."""
    from tabulate import tabulate

    cells = [[_cell(c) for c in row] for row in rows]
    return tabulate(cells, headers=[h.upper() for h in headers], tablefmt="plain", disable_numparse=True)


def _cell(value: object) -> str:
    text = plain(str(value)) if value is not None else "-"
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 21]}…{text[-20:]}"


def plain(text: str) -> str:
    """Return a text that stays on its line: names may hold newlines and control characters."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def printable(text: str, *, colours: bool = False) -> str:
    """Return a text of several lines without control characters: hosts must not steer the reader's terminal.

    With `colours`, the codes that only colour stay, as engines write them into their logs.
    """
    parts = _COLOUR_CODE.split(text.replace("\r\n", "\n"))
    kept = [p if n % 2 and colours else "" if n % 2 else _escaped(p) for n, p in enumerate(parts)]
    return "".join(kept)


def _escaped(text: str) -> str:
    return "".join(c if c in "\n\t" or c.isprintable() else plain(c) for c in text)


def diagnostics_text(diagnostics: Iterable[Diagnostic], style: Style) -> str:
    """Return diagnostics, a paragraph each."""
    blocks = []
    for item in diagnostics:
        colour = "red" if item.severity is Severity.ERROR else "yellow"
        word = "Error" if item.severity is Severity.ERROR else "Warning"
        place = f"{item.at}: " if item.at else ""
        lines = [f"{style.paint(f'{word}:', colour, 'bold')} {plain(place + item.summary)}"]
        if item.detail:
            lines.append("  " + printable(item.detail).replace("\n", "\n  "))
        blocks.append("\n".join(lines))
    return "\n".join(blocks)


def count(number: int, noun: str) -> str:
    """Return a number with its noun."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """Return a length of time as people write it."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"
