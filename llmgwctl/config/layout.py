"""The lines of a YAML text: comments, blank lines, and what is inside a scalar and must not be touched."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

_COMMENT = re.compile(r"#[^\n]*")


def tidied(text: str) -> str:
    """Return a text without trailing blanks and repeated blank lines, but for those inside a scalar."""
    inside = _lines_inside_scalars(text)
    lines: list[str] = []
    for number, line in enumerate(text.split("\n")):
        if number in inside:
            lines.append(line)
            continue
        bare = line.rstrip(" \t\r")
        if bare or (lines and lines[-1]):
            lines.append(bare)
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n" if lines else ""


def with_comments_along(text: str, before: str) -> str:
    """Return a text whose comment lines are indented like what they stand above (or below), as in the text before.

    A comment line that was as deep as the next line, or else as the last one, stays so; any other is left alone.
    """
    new, old = _CommentLines(text), _CommentLines(before)
    if new.texts() != old.texts():  # a comment that shared a line with a value now has its own, or the other way
        return text
    for number, was in zip(new.numbers, old.numbers, strict=True):
        for neighbour in (_CommentLines.indent_after, _CommentLines.indent_before):
            if old.indent(was) == neighbour(old, was):
                depth = neighbour(new, number)
                new.lines[number] = " " * depth + new.lines[number].lstrip()
                break
    return "\n".join(new.lines)


def comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield each comment and its line (from 1): what stands between tokens is blanks and comments only."""
    end, line = 0, 0
    for token in yaml.scan(text, Loader=_loader()):
        for found in _COMMENT.finditer(text, end, max(end, token.start_mark.index)):
            yield line + text.count("\n", end, found.start()) + 1, found[0].rstrip()
        if token.end_mark.index > end:
            end, line = token.end_mark.index, token.end_mark.line


class _CommentLines:
    """The lines of a text, and which of them hold a comment only."""

    def __init__(self, text: str) -> None:
        self.lines = text.split("\n")
        inside = _lines_inside_scalars(text)
        # The first line of a scalar is no comment; the lines after it may begin with # and be text all the same.
        self._text_lines = {number + 1 for number in inside}
        self.numbers = [n for n, line in enumerate(self.lines) if self._is_comment(n, line)]

    def texts(self) -> list[str]:
        return [self.lines[n].strip() for n in self.numbers]

    def indent(self, number: int) -> int:
        line = self.lines[number]
        return len(line) - len(line.lstrip(" "))

    def indent_after(self, number: int) -> int:
        return self._neighbour(range(number + 1, len(self.lines)))

    def indent_before(self, number: int) -> int:
        return self._neighbour(range(number - 1, -1, -1))

    def _neighbour(self, numbers: range) -> int:
        """Return the depth of the first line that holds a value; -1 where there is none."""
        for number in numbers:
            line = self.lines[number]
            if line.strip() and not self._is_comment(number, line) and number not in self._text_lines:
                return self.indent(number)
        return -1

    def _is_comment(self, number: int, line: str) -> bool:
        return line.lstrip(" \t").startswith("#") and number not in self._text_lines


def _lines_inside_scalars(text: str) -> set[int]:
    """Return the lines (from 0) whose end belongs to a scalar: cutting there would change it."""
    inside: set[int] = set()
    events: Any = yaml.parse(text, Loader=_loader())
    for event in events:
        if not isinstance(event, yaml.ScalarEvent):
            continue
        start: Any = event.start_mark
        end: Any = event.end_mark
        block = event.style in ("|", ">")
        # A block scalar ends where the next line begins, and each of its lines' ends belongs to it.
        last = end.line - 1 if block and end.column == 0 else end.line
        if last > start.line:
            inside.update(range(start.line, last + 1 if block else last))
    return inside


def _loader() -> Any:
    return yaml.CLoader if yaml.__with_libyaml__ else yaml.SafeLoader
