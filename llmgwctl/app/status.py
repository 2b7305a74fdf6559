"""The use cases `status` and `logs`: what runs now, by the state and by the hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable

from llmgwctl.app.clock import seconds_since
from llmgwctl.app.gathering import Progress, gather_fleet
from llmgwctl.app.workspace import Workspace
from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Phase
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Condition
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.engines import registry
from llmgwctl.errors import UsageError
from llmgwctl.hosts.sessions import Sessions
from llmgwctl.planner.classify import Finding
from llmgwctl.planner.survey import survey
from llmgwctl.render.status import StatusRow
from llmgwctl.render.text import duration

_PHASES = {
    Condition.HEALTHY: Phase.READY,
    Condition.REBOOTED: Phase.READY,
    Condition.RESTARTED: Phase.READY,
    Condition.ORPHANED: Phase.READY,
    Condition.CHANGED: Phase.READY,
    Condition.STARTING: Phase.STARTING,
    Condition.UNHEALTHY: Phase.UNHEALTHY,
    Condition.UNKNOWN: Phase.UNKNOWN,
    Condition.NODE_GONE: Phase.UNKNOWN,
}


def fleet_status(
    workspace: Workspace, sessions: Sessions, progress: Progress | None = None
) -> tuple[list[StatusRow], Observation]:
    """Return a row for every recorded replica, by name, and what the hosts showed."""
    state = workspace.store().load()
    observation = gather_fleet(workspace.desired, sessions, state.lineage, progress=progress)
    view = survey(workspace.desired, state, observation, registry.get)
    standings = view.ledger().standings()
    rows = []
    for finding in sorted(view.findings, key=lambda f: (f.record.model, f.record.index)):
        standing = standings.get(finding.record.id)
        rows.append(
            _row(finding, view.hosts.get(finding.record.members[0].node), standing.value if standing else "shared")
        )
    return rows, observation


def _row(finding: Finding, host: Host | None, standing: str) -> StatusRow:
    record = finding.record
    head = record.members[0]
    age_s = seconds_since(record.started_at)
    address = head.launch.address
    if address in ("0.0.0.0", "::"):  # it listens everywhere: where the host is reached is where it answers
        address = host.address if host else head.node
    return StatusRow(
        replica=record.id,
        model=record.model,
        profile=record.profile,
        engine=record.engine,
        nodes=tuple(m.node for m in record.members),
        gpus=tuple(g for m in record.members for g in m.gpus),
        gpu_indices=tuple(i for m in record.members for i in m.gpu_indices),
        port=head.port,
        phase=_phase(finding),
        endpoint=f"http://{f'[{address}]' if ':' in address else address}:{head.port}",
        since=record.started_at,
        age="" if age_s is None else duration(age_s),
        owner=record.owner,
        model_class=record.model_class,
        standing=standing,
        simulated=record.simulated,
        source=record.origin,
        detail=finding.text,
    )


def _phase(finding: Finding) -> Phase:
    """Return the worst of the members' phases where they could be seen, else what the condition implies."""
    seen = {o.phase for o in finding.seen if o is not None}
    for phase in (Phase.FAILED, Phase.STOPPING, Phase.UNHEALTHY, Phase.STARTING):
        if phase in seen and finding.condition is not Condition.UNKNOWN:
            return phase
    return _PHASES.get(finding.condition, Phase.FAILED)


def recorded(workspace: Workspace, name: str) -> ReplicaRecord:
    """Return a recorded replica by its name, or by its model's where it has one replica. Raises UsageError."""
    replicas = workspace.store().load().replicas
    if name in replicas:
        return replicas[name]
    of_model = [r for r in replicas.values() if r.model == name]
    if len(of_model) == 1:
        return of_model[0]
    known = ", ".join(sorted(replicas)[:10]) or "none"
    raise UsageError(f"No replica {name!r} is recorded.", f"Recorded: {known}")


def show_log(
    workspace: Workspace,
    sessions: Sessions,
    replica: str,
    *,
    member: int,
    lines: int,
    follow: bool,
    on_data: Callable[[bytes], None],
    stop: threading.Event,
) -> None:
    """Hand on the log of a replica's member. Raises UsageError for an unknown one."""
    record = recorded(workspace, replica)
    if not 0 <= member < len(record.members):
        raise UsageError(f"{record.id} has members 0 to {len(record.members) - 1}.")
    where = record.members[member]
    host = next((h for h in workspace.desired.hosts if h.name == where.node), None)
    if host is None:
        raise UsageError(f"{record.id} is on {where.node}, which is no longer declared.")
    session = sessions.of(host)
    if follow:
        session.follow_log(where.launch.root, where.launch.folder, lines, on_data, stop)
    else:
        on_data(session.log_tail(where.launch.root, where.launch.folder, lines).encode())
