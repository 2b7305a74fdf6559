"""`plan` and `show`."""

from __future__ import annotations

from pathlib import Path

import click

from llmgwctl.cli.output import (
    directory_option,
    gather_progress,
    json_option,
    print_json,
    style_of,
    warn,
    workspace_of,
)
from llmgwctl.errors import LlmgwctlError

EXIT_CHANGES, EXIT_SHORTFALL = 2, 4


@click.command("plan")
@directory_option
@json_option
@click.option("--out", metavar="FILE", help="Save the plan, to be applied exactly as it is.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit with 2 where there are changes.")
@click.option("--inventory", metavar="FILE", help="Plan from a saved inventory, without contacting any host.")
@click.option("--target", "targets", metavar="MODEL", multiple=True, help="Change this model only (repeatable).")
@click.option("--replace", "replaced", metavar="REPLICA", multiple=True, help="Start this replica anew (repeatable).")
@click.option("--fill", is_flag=True, help="Start replicas up to scaling.max on idle capacity.")
@click.option("--destroy", is_flag=True, help="Plan to stop everything.")
@click.option("--refresh-only", is_flag=True, help="Show what differs from the state; change nothing.")
@click.option("--require-all", is_flag=True, help="Exit with 4 where a wanted replica can't be placed.")
@click.option("-v", "--verbose", is_flag=True, help="Show every command line.")
@click.pass_context
def plan_command(
    ctx: click.Context,
    *,
    as_json: bool,
    out: str | None,
    detailed_exitcode: bool,
    inventory: str | None,
    targets: tuple[str, ...],
    replaced: tuple[str, ...],
    fill: bool,
    destroy: bool,
    refresh_only: bool,
    require_all: bool,
    verbose: bool,
) -> int:
    """Show what would start where, what would stop, who gives way to whom, and why. Nothing is changed."""
    from llmgwctl.app.planning import plan_fleet
    from llmgwctl.planner.options import PlanOptions
    from llmgwctl.render.plan_json import plan_document
    from llmgwctl.render.plan_text import plan_text

    if refresh_only and (destroy or replaced):
        raise click.UsageError("--refresh-only goes with neither --destroy nor --replace.")
    workspace = workspace_of(ctx)
    if out:
        workspace.must_not_overwrite(out)
    options = PlanOptions(
        fill=fill,
        destroy=destroy,
        refresh_only=refresh_only,
        targets=frozenset(targets),
        replace=frozenset(replaced),
    )
    with workspace.sessions() as sessions:
        planned = plan_fleet(
            workspace, sessions, options, inventory=Path(inventory) if inventory else None, progress=gather_progress()
        )
    plan = planned.plan
    warn(ctx, plan.diagnostics)
    document = plan_document(plan, workspace.desired.diagnostics) if as_json or out else {}
    if out:
        _save(out, workspace, planned, document)
    if as_json:
        print_json(document)
    else:
        click.echo(plan_text(plan, style_of(ctx), verbose=verbose))
        if out:
            click.echo(f"\nThe plan is saved. Apply exactly it with: llmgwctl apply {out}")
    if planned.refused:
        return 1
    if require_all and plan.shortfalls:
        return EXIT_SHORTFALL
    return EXIT_CHANGES if detailed_exitcode and not plan.empty else 0


@click.command("show")
@directory_option
@json_option
@click.argument("file")
@click.option("-v", "--verbose", is_flag=True, help="Show every command line.")
@click.pass_context
def show_command(ctx: click.Context, *, as_json: bool, file: str, verbose: bool) -> None:
    """Show a saved plan."""
    from llmgwctl.render.plan_text import plan_text
    from llmgwctl.store.planfile import read_plan

    saved = read_plan(Path(file))
    if as_json:
        print_json(saved.document)
        return
    warn(ctx, saved.plan.diagnostics)
    click.echo(plan_text(saved.plan, style_of(ctx), verbose=verbose))


def _save(out, workspace, planned, document) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    from llmgwctl.store.planfile import SavedPlan, write_plan

    try:
        write_plan(
            Path(out),
            SavedPlan(
                planned.plan, workspace.desired.hosts, workspace.desired.settings, document, refused=planned.refused
            ),
        )
    except OSError as problem:
        raise LlmgwctlError(f"{out} can't be written: {problem.strerror or problem}") from None
