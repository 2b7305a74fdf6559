"""`init`, `validate` and `fmt`."""

from __future__ import annotations

import difflib
import shlex
from pathlib import Path

import click

from llmgwctl.cli.output import directory_option, json_option, print_json, style_of, write_file
from llmgwctl.errors import ConfigError, LlmgwctlError, UsageError

EXIT_CONFIG = 3
INIT_FILE = "llmgwctl.yaml"


@click.command("init")
@directory_option
@click.option("--host", "hosts", metavar="USER@ADDRESS[:PORT]", multiple=True, help="Look at this host (repeatable).")
@click.option("--host-keys", type=click.Choice(["strict", "accept-new"]), default="strict", help="For unknown hosts.")
@click.option("--schema", "schema_only", is_flag=True, help="Only write the editors' schema anew.")
@click.pass_context
def init_command(ctx: click.Context, *, hosts: tuple[str, ...], host_keys: str, schema_only: bool) -> None:
    """Write a small, valid, commented configuration for this machine, or for hosts that it looks at.

    Beside it goes a JSON Schema by which editors complete and check; both belong into version control.
    """
    from llmgwctl.app.initialising import initial_configuration, must_be_free, must_be_writable
    from llmgwctl.render.text import plain

    directory = Path(ctx.obj["directory"])
    if schema_only:
        if hosts:
            raise UsageError("--schema writes no configuration, so it takes no --host.")
        must_be_writable(directory)
        click.echo(f"Wrote `{plain(str(_write_schema(directory)))}`.")
        return
    must_be_free(directory)
    text = initial_configuration(directory, hosts, host_keys)
    must_be_free(directory)  # looking takes its time, and someone else may have written one meanwhile
    _write_schema(directory)
    target = directory / INIT_FILE
    write_file(str(target), text)
    there = "" if directory == Path() else f" -C {shlex.quote(str(directory))}"
    click.echo(f"Wrote `{plain(str(target))}`. Look at it, then: llmgwctl{there} plan")


@click.command("validate")
@directory_option
@json_option
@click.pass_context
def validate_command(ctx: click.Context, *, as_json: bool) -> int:
    """Check the configuration; tell every problem at once, with file, line and column."""
    from llmgwctl.app.workspace import open_workspace
    from llmgwctl.diagnostics import Severity
    from llmgwctl.render.plan_json import diagnostic_document
    from llmgwctl.render.text import count, diagnostics_text

    try:
        workspace = open_workspace(ctx.obj["directory"])
        diagnostics = workspace.desired.diagnostics
    except ConfigError as problem:
        workspace, diagnostics = None, problem.diagnostics
    errors = sum(d.severity is Severity.ERROR for d in diagnostics)
    if as_json:
        print_json(
            {
                "format_version": "1.0",
                "valid": workspace is not None,
                "error_count": errors,
                "warning_count": len(diagnostics) - errors,
                "diagnostics": [diagnostic_document(d) for d in diagnostics],
            }
        )
    else:
        text = diagnostics_text(diagnostics, style_of(ctx))
        if text:
            click.echo(text, err=True)
        if workspace is None:
            click.echo(f"The configuration is invalid: {count(errors, 'error')}.", err=True)
        else:
            desired = workspace.desired
            click.echo(
                f"The configuration is valid: {count(len(desired.hosts), 'host')}, "
                f"{count(len(desired.models), 'model')}, {count(len(desired.quotas), 'quota')}."
            )
    return 0 if workspace is not None else EXIT_CONFIG


@click.command("fmt")
@directory_option
@click.option("--check", is_flag=True, help="Change nothing; exit with 3 where a file isn't in its normal form.")
@click.option("--diff", "show_diff", is_flag=True, help="Show what changes.")
@click.pass_context
def fmt_command(ctx: click.Context, *, check: bool, show_diff: bool) -> int:
    """Rewrite every YAML file of the directory in its normal form; comments and meaning stay."""
    from llmgwctl.app.formatting import format_directory, rewrite
    from llmgwctl.render.text import plain

    changed = [file for file in format_directory(ctx.obj["directory"]) if file.changes]
    for file in changed:
        name = plain(str(file.path))
        click.echo(name)
        if show_diff:
            click.echo(_diff(file.text, file.normal, name), nl=False)
        if not check:
            rewrite(file)
    return EXIT_CONFIG if check and changed else 0


def _write_schema(directory: Path) -> Path:
    from llmgwctl.app.initialising import editors_schema
    from llmgwctl.config.scaffold import SCHEMA_FILE

    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LlmgwctlError(f"{directory} can't be made: {problem.strerror}.") from None
    write_file(str(directory / SCHEMA_FILE), editors_schema())
    return directory / SCHEMA_FILE


def _diff(old: str, new: str, name: str) -> str:
    before, after = ([line + "\n" for line in text.split("\n")] for text in (old, new))
    for lines in (before, after):
        # What stands behind the last line's end is no line; where there is no such end, diffs say so.
        last = lines.pop()
        if last != "\n":
            lines.append(f"{last}\\ No newline at end of file\n")
    return "".join(difflib.unified_diff(before, after, name, f"{name} (formatted)"))
