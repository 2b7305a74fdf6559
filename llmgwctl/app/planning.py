"""The use case `plan`: load, gather (or read a snapshot), decide, check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from llmgwctl.app.gathering import Progress, gather_fleet, must_reach_some, words_of
from llmgwctl.app.secrets import Secrets
from llmgwctl.app.workspace import Workspace
from llmgwctl.diagnostics import Severity
from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Plan
from llmgwctl.domain.state import State
from llmgwctl.engines import registry
from llmgwctl.errors import LlmgwctlError, UnreachableError, UsageError
from llmgwctl.hosts.sessions import Sessions
from llmgwctl.planner.invariants import check_plan
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.reconcile import make_plan
from llmgwctl.store.snapshot import read_snapshot


@dataclass(frozen=True, slots=True)
class Planned:
    """A plan, and what it was made from."""

    plan: Plan
    state: State
    observation: Observation

    @property
    def refused(self) -> bool:
        """Whether the plan breaks a promise that was made to the user, so that it may not be applied."""
        return any(d.severity is Severity.ERROR for d in self.plan.diagnostics)


def plan_fleet(
    workspace: Workspace,
    sessions: Sessions,
    options: PlanOptions,
    *,
    inventory: Path | None = None,
    state: State | None = None,
    progress: Progress | None = None,
) -> Planned:
    """Return the plan for a workspace. Raises UnreachableError only when no host at all could be reached."""
    desired = workspace.desired
    _check_names(workspace, options)
    if state is None:
        state = workspace.store().load()
    if inventory is not None:
        observation = read_snapshot(inventory)
        declared = {h.name for h in desired.hosts}
        seen = tuple(n for n in observation.nodes if n.name in declared)
        if desired.hosts and not any(n.reachable for n in seen):
            told = "\n".join(words_of(n) for n in seen[:20]) or "It holds none of them."
            raise UnreachableError(f"None of the declared hosts is reachable in the inventory {inventory}.", told)
    else:
        observation = gather_fleet(desired, sessions, state.lineage, progress=progress)
        must_reach_some(observation)
    if state.lineage is not None:
        digests = Secrets(workspace.base).digests(_recorded_refs(state), state.lineage)
        options = replace(options, secret_digests=digests)
    plan = make_plan(desired, state, observation, registry.get, options)
    violations = check_plan(plan, desired, state, observation)
    if violations:
        told = "\n".join(f"{v.rule}: {v.text}" for v in violations[:20])
        raise LlmgwctlError(
            "The plan breaks a rule that every plan keeps; it was not shown, as it can't be trusted.", told
        )
    return Planned(plan, state, observation)


def _recorded_refs(state: State) -> Sequence[SecretRef]:
    return [
        ref
        for record in state.replicas.values()
        for _, ref in record.members[0].launch.env
        if isinstance(ref, SecretRef)
    ]


def _check_names(workspace: Workspace, options: PlanOptions) -> None:
    names = {m.name for m in workspace.desired.models}
    unknown = sorted(options.targets - names)
    if unknown:
        raise UsageError(f"--target {unknown[0]}: no model is called that.")
    for replica in sorted(options.replace):
        if replica not in workspace.store().load().replicas:
            raise UsageError(f"--replace {replica}: no replica of that name is recorded.")
