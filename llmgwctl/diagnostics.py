"""What is said about an input: severity, words and the place in a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, order=True)
class SourceRange:
    """A place in a configuration file; line and column count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{_on_one_line(self.file)}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing to tell the user: what is wrong, and what to write instead."""

    severity: Severity
    summary: str
    detail: str = ""
    at: SourceRange | None = None

    def __str__(self) -> str:
        place = f"{self.at}: " if self.at else ""
        detail = f" {self.detail}" if self.detail else ""
        return f"{place}{self.severity.value}: {self.summary}{detail}"


def _on_one_line(name: str) -> str:
    """Return a file's name without line ends and control characters, which it may have."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in name)


def error(summary: str, detail: str = "", at: SourceRange | None = None) -> Diagnostic:
    """Return an error."""
    return Diagnostic(Severity.ERROR, summary, detail, at)


def warning(summary: str, detail: str = "", at: SourceRange | None = None) -> Diagnostic:
    """Return a warning."""
    return Diagnostic(Severity.WARNING, summary, detail, at)
