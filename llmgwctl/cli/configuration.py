"""`init`, `validate` and `fmt`."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

from llmgwctl.cli.output import directory_option, json_option, print_json, style_of, write_file
from llmgwctl.errors import ConfigError, LlmgwctlError

EXIT_CONFIG = 3
INIT_FILE = "llmgwctl.yaml"


@click.command("init")
@directory_option
@click.option("--host", "hosts", metavar="USER@ADDRESS[:PORT]", multiple=True, help="Look at this host (repeatable).")
@click.option("--host-keys", type=click.Choice(["strict", "accept-new"]), default="strict", help="For unknown hosts.")
@click.pass_context
def init_command(ctx: click.Context, *, hosts: tuple[str, ...], host_keys: str) -> None:
    """Write a small, valid, commented configuration for this machine, or for hosts that it looks at."""
    from llmgwctl.app.initialising import initial_configuration

    directory = Path(ctx.obj["directory"])
    target = directory / INIT_FILE
    present = sorted(p.name for p in (*directory.glob("*.yaml"), *directory.glob("*.yml")))
    if present:
        raise LlmgwctlError(f"{directory} has a configuration already ({present[0]}): it is left as it is.")
    text = initial_configuration(directory, hosts, host_keys)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise LlmgwctlError(f"{directory} can't be made: {problem.strerror}") from None
    write_file(str(target), text)
    click.echo(f"Wrote {target}. Look at it, then: llmgwctl -C {directory} plan")


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
    from llmgwctl.config.fmt import format_text

    directory = Path(ctx.obj["directory"])
    files = sorted((*directory.glob("*.yaml"), *directory.glob("*.yml")))
    if not files:
        raise LlmgwctlError(f"There is no YAML file in {directory}.")
    changed = []
    results = []
    for path in files:
        try:
            text = path.read_bytes().decode("utf-8-sig")
        except (OSError, UnicodeDecodeError) as problem:
            raise LlmgwctlError(f"{path} can't be read: {problem}") from None
        results.append((path, text, format_text(text, path.name)))
    for path, text, new in results:
        if new == text:
            continue
        changed.append(path)
        click.echo(str(path))
        if show_diff:
            lines = difflib.unified_diff(text.splitlines(True), new.splitlines(True), str(path), f"{path} (formatted)")
            click.echo("".join(lines), nl=False)
        if not check:
            _rewrite(path, new)
    return EXIT_CONFIG if check and changed else 0


def _rewrite(path: Path, text: str) -> None:
    from llmgwctl.store.files import write_atomically

    try:
        target = path.resolve()
        write_atomically(target, text, mode=target.stat().st_mode & 0o777)
    except OSError as problem:
        raise LlmgwctlError(f"{path} can't be written: {problem.strerror or problem}") from None
