"""What commands share: common options, colours, JSON and progress."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any, TypeVar

import click
from click.core import ParameterSource

from llmgwctl.diagnostics import Diagnostic
from llmgwctl.errors import LlmgwctlError, UsageError
from llmgwctl.render.text import Style, diagnostics_text

F = TypeVar("F", bound=Callable[..., Any])

_PROGRESS_AFTER_S = 1.0
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h)?")
_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


def directory_option(command: F) -> F:
    """Take -C behind the command's name as well."""

    def remember(ctx: click.Context, _param: click.Parameter, value: str | None) -> None:
        typed_before = ctx.parent and ctx.parent.get_parameter_source("directory") is ParameterSource.COMMANDLINE
        typed = ctx.get_parameter_source("directory") is ParameterSource.COMMANDLINE
        if value is not None and (typed or not typed_before):
            ctx.obj["directory"] = value

    return click.option(
        "-C", "directory", metavar="DIR", expose_value=False, callback=remember, help="The configuration directory."
    )(command)


def json_option(command: F) -> F:
    """Take --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")(command)


def workspace_of(ctx: click.Context):  # type: ignore[no-untyped-def]  # noqa: ANN201
    """Load the configuration; its warnings go to standard error."""
    from llmgwctl.app.workspace import open_workspace

    workspace = open_workspace(ctx.obj["directory"])
    warn(ctx, workspace.desired.diagnostics)
    return workspace


def warn(ctx: click.Context, diagnostics: Iterable[Diagnostic]) -> None:
    """Print diagnostics to standard error."""
    text = diagnostics_text(diagnostics, style_for(sys.stderr, ctx.obj["color"]))
    if text:
        click.echo(text, err=True)


def style_for(stream: IO[str], choice: str) -> Style:
    """Return colours where a person looks: not in a pipe, a file or a CI log, not with NO_COLOR."""
    if choice != "auto":
        return Style(choice == "always")
    return Style(stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb")


def style_of(ctx: click.Context) -> Style:
    """Return the style of standard output."""
    return style_for(sys.stdout, ctx.obj["color"])


def print_json(document: Any, *, compact: bool = False) -> None:
    """Print one document, stable, and unescaped where the output can hold every character."""
    # Without indentation json uses its C encoder, ten times as fast; only a person at a terminal needs the lines.
    indent = 1 if not compact and sys.stdout.isatty() else None
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    try:
        text.encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:  # another encoding, or a file name that is no text
        text = json.dumps(document, indent=indent, ensure_ascii=True)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def write_file(path: str, text: str) -> None:
    """Write what was asked for: a file whole or not at all, a pipe or a device through."""
    from llmgwctl.store.files import write_output

    try:
        write_output(Path(path), text, mode=0o644)
    except OSError as problem:
        raise LlmgwctlError(f"{path} can't be written: {problem.strerror or problem}") from None


def gather_progress() -> Callable[[int, int], None] | None:
    """Return what shows how far a long look at the hosts is: one live line, on a terminal only."""
    if not sys.stderr.isatty():
        return None
    begun = time.monotonic()
    shown = False

    def tell(done: int, total: int) -> None:
        nonlocal shown
        if shown or time.monotonic() - begun > _PROGRESS_AFTER_S:
            shown = True
            sys.stderr.write(f"\r\x1b[KLooking at the hosts: {done} of {total}" if done < total else "\r\x1b[K")
            sys.stderr.flush()

    return tell


def seconds_of(text: str) -> float:
    """Return a duration (`250ms`, `1.5s`, `20m`; a bare number is seconds). Raises UsageError."""
    match = _DURATION.fullmatch(text.strip())
    if not match:
        raise UsageError(f"{text!r} is no duration: write for example 30s, or 2m.")
    return float(match[1]) * _UNITS_S[match[2] or "s"]
