"""`apply` and `destroy`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from llmgwctl.cli.output import (
    directory_option,
    gather_progress,
    seconds_of,
    style_of,
    warn,
    workspace_of,
)
from llmgwctl.errors import (
    ApplyIncompleteError,
    InterruptedApplyError,
    LlmgwctlError,
    ShortfallError,
    StalePlanError,
    StateError,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from llmgwctl.app.executor import Outcome
    from llmgwctl.domain.desired import Host
    from llmgwctl.domain.plan import Plan
    from llmgwctl.hosts.sessions import Sessions
    from llmgwctl.store.statefile import StateFile

_PLANS_ANEW = 3

_approve = click.option("--auto-approve", is_flag=True, help="Do not ask.")
_parallel = click.option(
    "--parallelism", type=click.IntRange(1, 1000), default=10, show_default=True, help="Actions at the same time."
)
_lock = click.option("--lock-timeout", metavar="DURATION", default="0s", help="How long to wait for the state's lock.")


_json = click.option("--json", "as_json", is_flag=True, help="Print JSON: one event a line, a summary at the end.")


@click.command("apply")
@directory_option
@_json
@click.argument("planfile", required=False)
@_approve
@_parallel
@_lock
@click.option("--target", "targets", metavar="MODEL", multiple=True, help="Change this model only (repeatable).")
@click.option("--replace", "replaced", metavar="REPLICA", multiple=True, help="Start this replica anew (repeatable).")
@click.option("--fill", is_flag=True, help="Start replicas up to scaling.max on idle capacity.")
@click.option("--require-all", is_flag=True, help="Change nothing where a wanted replica can't be placed.")
@click.pass_context
def apply_command(
    ctx: click.Context,
    *,
    planfile: str | None,
    as_json: bool,
    auto_approve: bool,
    parallelism: int,
    lock_timeout: str,
    targets: tuple[str, ...],
    replaced: tuple[str, ...],
    fill: bool,
    require_all: bool,
) -> None:
    """Do what the plan says: a saved one exactly, or a fresh one once it is approved."""
    wait_s = seconds_of(lock_timeout)
    if planfile:
        if targets or replaced or fill:
            raise click.UsageError("A saved plan is applied as it is: --target, --replace and --fill go with plan.")
        _apply_saved(ctx, planfile, parallelism, wait_s, as_json=as_json)
        return
    from llmgwctl.planner.options import PlanOptions

    options = PlanOptions(fill=fill, targets=frozenset(targets), replace=frozenset(replaced))
    _plan_and_apply(ctx, options, "apply", parallelism, wait_s, auto_approve, as_json=as_json, require_all=require_all)


@click.command("destroy")
@directory_option
@_json
@_approve
@_parallel
@_lock
@click.pass_context
def destroy_command(
    ctx: click.Context, *, as_json: bool, auto_approve: bool, parallelism: int, lock_timeout: str
) -> None:
    """Stop every replica of ours, and leave no process, port, unit or file of ours on any host."""
    from llmgwctl.planner.options import PlanOptions

    options = PlanOptions(destroy=True)
    _plan_and_apply(ctx, options, "destroy", parallelism, seconds_of(lock_timeout), auto_approve, as_json=as_json)


def _plan_and_apply(  # type: ignore[no-untyped-def]
    ctx: click.Context,
    options,  # noqa: ANN001
    operation: str,
    parallelism: int,
    lock_timeout_s: float,
    auto_approve: bool,
    *,
    as_json: bool,
    require_all: bool = False,
) -> None:
    if not auto_approve and (as_json or not sys.stdin.isatty()):
        raise LlmgwctlError(
            f"{operation} asks before it acts, and there is no terminal to ask on.",
            "Give --auto-approve, or save a plan (plan --out FILE) and apply that.",
        )
    workspace = workspace_of(ctx)
    with workspace.sessions() as sessions:

        def once() -> None:
            plan = _approved_plan(ctx, workspace, sessions, options, operation, auto_approve, as_json, require_all)
            if not plan.empty or plan.refreshes:
                hosts = {h.name: h for h in workspace.desired.hosts}
                store, base = workspace.store(), workspace.base
                _carry_out(ctx, plan, hosts, store, sessions, base, operation, parallelism, lock_timeout_s, as_json)
            elif as_json:
                _report_nothing(operation, plan)
            _raise_for_unseen(plan, operation)

        # Whoever held the lock meanwhile has changed the state. What nobody read can be planned anew; what somebody
        # approved can't.
        for _ in range(_PLANS_ANEW if auto_approve else 0):
            try:
                return once()
            except StalePlanError:
                click.echo("The state has changed since the plan was made: planning again.", err=True)
        return once()


def _approved_plan(  # type: ignore[no-untyped-def]
    ctx: click.Context,
    workspace,  # noqa: ANN001
    sessions: Sessions,
    options,  # noqa: ANN001
    operation: str,
    auto_approve: bool,
    as_json: bool,
    require_all: bool,
) -> Plan:
    from llmgwctl.app.planning import plan_fleet
    from llmgwctl.render.plan_text import plan_text

    planned = plan_fleet(workspace, sessions, options, progress=gather_progress())
    plan = planned.plan
    warn(ctx, plan.diagnostics)
    if not as_json:
        click.echo(plan_text(plan, style_of(ctx)))
    if planned.refused:
        raise LlmgwctlError("The plan may not be applied: see the errors above.")
    if require_all and plan.shortfalls:
        raise ShortfallError("Not everything can be placed, so nothing was changed (--require-all).")
    if any(a.changes for a in plan.actions) and not auto_approve and not _approved(operation):
        raise LlmgwctlError(f"{operation.capitalize()} cancelled: nothing was changed.")
    return plan


def _report_nothing(operation: str, plan: Plan) -> None:
    from llmgwctl.app.executor import Outcome
    from llmgwctl.cli.report import JsonReport

    JsonReport().summary(Outcome(), operation, left=_left(plan, operation))


def _left(plan: Plan, operation: str) -> int:
    """Return how many replicas a destroy can't look at."""
    return sum(a.kind.value == "defer" for a in plan.actions) if operation == "destroy" else 0


def _raise_for_unseen(plan: Plan, operation: str) -> None:
    """Say that a destroy left something: what can't be seen is taken to run."""
    left = [a.replica for a in plan.actions if a.kind.value == "defer"]
    if operation == "destroy" and left:
        names = ", ".join(left[:10]) + (" …" if len(left) > 10 else "")
        raise ApplyIncompleteError(
            f"{len(left)} of ours can't be seen, and may run on: {names}.",
            "Bring their hosts back and destroy again, or take the hosts out of the declaration to give them up.",
        )


def _apply_saved(ctx: click.Context, planfile: str, parallelism: int, lock_timeout_s: float, *, as_json: bool) -> None:
    from llmgwctl.app.workspace import open_sessions, open_store
    from llmgwctl.render.plan_text import plan_text
    from llmgwctl.store.planfile import read_plan

    saved = read_plan(Path(planfile))
    if saved.refused:
        raise LlmgwctlError(f"The plan {planfile} may not be applied.", "See its errors: llmgwctl show " + planfile)
    base = Path(ctx.obj["directory"])
    if not as_json:
        click.echo(plan_text(saved.plan, style_of(ctx)))
    with open_sessions(base, saved.settings, saved.hosts) as sessions:
        hosts = {h.name: h for h in saved.hosts}
        store = open_store(base, saved.settings)
        _carry_out(ctx, saved.plan, hosts, store, sessions, base, "apply", parallelism, lock_timeout_s, as_json)


def _carry_out(
    ctx: click.Context,
    plan: Plan,
    hosts: Mapping[str, Host],
    store: StateFile,
    sessions: Sessions,
    base: Path,
    operation: str,
    parallelism: int,
    lock_timeout_s: float,
    as_json: bool,
) -> None:
    from llmgwctl.app.applying import ApplyOptions, apply_plan
    from llmgwctl.cli.report import JsonReport, TextReport

    report = JsonReport() if as_json else TextReport(style_of(ctx))
    options = ApplyOptions(operation, parallelism, lock_timeout_s)
    outcome = apply_plan(plan, hosts, store, sessions, base, report, lambda text: click.echo(text, err=True), options)
    report.summary(outcome, operation, left=_left(plan, operation))
    _raise_for(outcome)


def _raise_for(outcome: Outcome) -> None:
    if outcome.unsaved:
        raise StateError(
            outcome.unsaved.message,
            "Nothing more was begun; what was done without being recorded is told above. See to it that the state can "
            "be written, and run it again: it looks at what runs, and does what is left.",
        )
    if outcome.interrupted:
        raise InterruptedApplyError("Interrupted. What was done is recorded; plan again to see what is left.")
    if outcome.failures:
        number = len(outcome.failures)
        raise ApplyIncompleteError(
            f"{number} action{'s' if number > 1 else ''} failed; what was done is recorded.",
            "Mend the cause, and apply again: it does what is left.",
        )


def _approved(operation: str) -> bool:
    undo = " There is no undo." if operation == "destroy" else ""
    click.echo(f"\nDo you want to perform these actions?{undo} Only 'yes' will be accepted to approve.")
    try:
        return input("  Enter a value: ") == "yes"
    except EOFError:
        return False
