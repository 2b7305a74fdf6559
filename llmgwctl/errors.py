"""The failures that end a command, each with its exit code."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.diagnostics import Diagnostic


class LlmgwctlError(Exception):
    """A failure that is told to the user in one or more plain sentences, never as a traceback."""

    exit_code = 1

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail


class ConfigError(LlmgwctlError):
    """The configuration is invalid; carries every diagnostic at once."""

    exit_code = 3

    def __init__(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics = tuple(diagnostics)
        super().__init__("; ".join(str(d) for d in self.diagnostics) or "invalid configuration")


class ShortfallError(LlmgwctlError):
    """Not everything can be placed, and the caller asked for everything."""

    exit_code = 4


class StateError(LlmgwctlError):
    """The state file cannot be read or written, or does not fit."""

    exit_code = 5


class LockError(StateError):
    """Someone else holds the state's lock."""


class StalePlanError(StateError):
    """A saved plan no longer fits the state."""


class UnreachableError(LlmgwctlError):
    """A host cannot be reached, or refuses us."""

    exit_code = 6


class ApplyIncompleteError(LlmgwctlError):
    """Some actions of an apply failed; the others are done and recorded."""

    exit_code = 7


class UsageError(LlmgwctlError):
    """The command line asks for something that does not exist."""

    exit_code = 64


class InterruptedApplyError(LlmgwctlError):
    """The user interrupted the command; what was done is recorded."""

    exit_code = 130
