"""The use cases `apply` and `destroy`: approve, lock, look whether the plan still holds, act, record."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from llmgwctl.app.events import Guarded, Report
from llmgwctl.app.executor import Executor, Outcome
from llmgwctl.app.interrupts import catching
from llmgwctl.app.secrets import Secrets
from llmgwctl.domain.desired import Host
from llmgwctl.domain.plan import Plan
from llmgwctl.domain.state import State
from llmgwctl.errors import LlmgwctlError, StalePlanError
from llmgwctl.hosts.sessions import Sessions
from llmgwctl.store.statefile import StateFile, StateWriter


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    operation: str = "apply"
    parallelism: int = 10
    lock_timeout_s: float = 0.0


def apply_plan(
    plan: Plan,
    hosts: Mapping[str, Host],
    store: StateFile,
    sessions: Sessions,
    base: Path,
    report: Report,
    tell: Callable[[str], None],
    options: ApplyOptions,
) -> Outcome:
    """Do what a plan says, and nothing else. Raises StalePlanError where the state has moved since it was made."""
    with (
        store.session(options.operation, lock_timeout_s=options.lock_timeout_s, notice=tell) as writer,
        catching(tell) as interrupts,
    ):
        _must_fit(plan, writer.state)
        if plan.empty and not plan.refreshes:
            return Outcome()
        secrets = Secrets(base)
        _read_secrets(plan, secrets)
        # Without anybody to read what happens nothing new is begun, as after an interrupt.
        guarded = Guarded(report, interrupts.stopping.set)
        executor = Executor(hosts, sessions, writer, secrets, guarded, interrupts)
        _refresh(plan, writer)
        return executor.run(plan, options.parallelism)


def _must_fit(plan: Plan, state: State) -> None:
    if plan.lineage is None and state.lineage is not None:
        raise StalePlanError(
            "The plan is stale: the state has changed since it was made.",
            f"It was made before there was a state; the state's serial is {state.serial} now. Make a new plan.",
        )
    if state.lineage != plan.lineage:
        raise StalePlanError(
            "The plan was made for another state.",
            f"The plan's lineage is {plan.lineage}, {_lineage_of(state)}. Make a new plan.",
        )
    if state.serial != plan.serial:
        raise StalePlanError(
            "The plan is stale: the state has changed since it was made.",
            f"The plan's serial is {plan.serial}, the state's is {state.serial}. Make a new plan.",
        )


def _lineage_of(state: State) -> str:
    return f"the state's is {state.lineage}" if state.lineage else "and there is no state here"


def _read_secrets(plan: Plan, secrets: Secrets) -> None:
    """Read every secret before anything is stopped: one that is missing must not be found half-way."""
    for action in plan.changes():
        if action.starts:
            for launch in action.launches:
                try:
                    secrets.of_launch(launch)
                except LlmgwctlError as problem:
                    raise LlmgwctlError(
                        f"{action.replica} can't be started: {problem.message}", "Nothing was changed."
                    ) from None


def _refresh(plan: Plan, writer: StateWriter) -> None:
    """Record what was found without a need to act."""
    acted_on = {a.replica for a in plan.changes()}
    for refresh in plan.refreshes:
        if refresh.record.id not in acted_on:
            writer.put(refresh.record)
