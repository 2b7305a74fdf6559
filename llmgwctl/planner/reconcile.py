"""The planner's table of contents: declaration, state and observation in, plan out."""

from __future__ import annotations

from llmgwctl.domain.desired import Desired
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Plan
from llmgwctl.domain.state import State
from llmgwctl.planner.decide import Decision, decide
from llmgwctl.planner.launching import EngineOf
from llmgwctl.planner.ledger import quota_lines
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.sequence import in_safe_order
from llmgwctl.planner.survey import survey

_DEFAULTS = PlanOptions()


def make_plan(
    desired: Desired,
    state: State,
    observation: Observation,
    engine_of: EngineOf,
    options: PlanOptions = _DEFAULTS,
) -> Plan:
    """Return what has to change so that the fleet is as declared.

    Pure and deterministic: same inputs, same plan, whatever the order of files and entries. Unreachable hosts are
    unknown, never empty: what is recorded there is deferred, and no second copy is started.
    """
    view = survey(desired, state, observation, engine_of)
    decision = Decision() if options.refresh_only else decide(view, options)
    return Plan(
        lineage=state.lineage,
        serial=state.serial,
        taken_at=observation.taken_at,
        actions=in_safe_order(decision.actions),
        shortfalls=tuple(sorted(decision.shortfalls, key=lambda s: (s.model, int(s.replica.rpartition("/")[2])))),
        headroom_stops=tuple(sorted(decision.headroom_stops, key=lambda h: h.model)),
        quotas=quota_lines(desired.quotas, view.ledger(), decision.ledger or view.ledger()),
        drift=view.drift,
        refreshes=view.refreshes,
        diagnostics=(*view.diagnostics, *decision.diagnostics),
        hosts=tuple((name, node.reachable) for name, node in sorted(view.nodes.items())),
    )
