"""What there is before anything is decided: nodes, records with their conditions, free room, drift."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmgwctl.diagnostics import Diagnostic, warning
from llmgwctl.domain.catalog import Model, ModelClass
from llmgwctl.domain.desired import Desired, Host
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Condition, Drift, Refresh
from llmgwctl.domain.state import MemberRecord, ReplicaRecord, State
from llmgwctl.planner.classify import Finding, classify
from llmgwctl.planner.launching import EngineOf, Launcher
from llmgwctl.planner.ledger import Holding, Ledger, holding_of
from llmgwctl.planner.naming import model_of
from llmgwctl.planner.orphans import Found, find, with_hosts_renamed
from llmgwctl.planner.rooms import Room, make_room
from llmgwctl.planner.warnings import warnings_of


@dataclass(frozen=True, slots=True)
class View:
    """Everything a decision looks at; nothing in it changes while one is made.

    `others` names, by node, the replicas that another state runs there: one of that name can't be beside it.
    """

    desired: Desired
    models: Mapping[str, Model]
    hosts: Mapping[str, Host]
    nodes: Mapping[str, Node]
    launcher: Launcher
    findings: tuple[Finding, ...]
    strays: tuple[ReplicaRecord, ...]
    drift: tuple[Drift, ...]
    refreshes: tuple[Refresh, ...]
    others: Mapping[str, frozenset[str]]
    diagnostics: tuple[Diagnostic, ...]

    def rooms(self) -> dict[str, Room]:
        """Return every node's room, with what runs of ours counted."""
        rooms = {n: make_room(node, self.hosts[n], self.desired.settings) for n, node in self.nodes.items()}
        for finding in self.findings:
            record = finding.record
            for member in record.members:
                room = rooms.get(member.node)
                if room is None:
                    continue
                if finding.alive:
                    room.take(member.gpus, record.millicores, record.memory_mib, ports_of(member))
                elif room.reachable:
                    room.give_back(self._own(member.node, record.id, member.gpus), 0, 0, ())
        return rooms

    def ledger(self, without: frozenset[str] = frozenset()) -> Ledger:
        """Return what runs (or must be taken to run), less some replicas."""
        alive = [f.record for f in self.findings if f.alive and f.record.id not in without]
        return Ledger(self.desired.quotas, holdings(alive, self.models))

    def _own(self, node: str, replica: str, gpus: tuple[str, ...]) -> list[str]:
        """Return those of a dead replica's GPUs that nobody else has taken meanwhile."""
        taken_by = {g.uuid: g.taken_by for g in self.nodes[node].gpus}
        return [u for u in gpus if taken_by.get(u) in (None, replica)]


def ports_of(member: MemberRecord) -> range:
    """Return the ports that a member may use."""
    return range(member.port, member.port + member.launch.ports)


def holdings(records: list[ReplicaRecord], models: Mapping[str, Model]) -> list[Holding]:
    """Return what each record holds."""
    held = []
    for record in records:
        model = models.get(record.model)
        if model:
            held.append(holding_of(model, record.id, record.profile, record.size, record.gpu_class, record.order))
        else:
            held.append(
                Holding(
                    replica=record.id,
                    model=record.model,
                    profile=record.profile,
                    owner=record.owner,
                    amount=record.size,
                    gpu_class=record.gpu_class,
                    model_class=ModelClass(record.model_class),
                    priority=0,
                    order=record.order,
                    minimum=0,
                )
            )
    return held


def survey(desired: Desired, state: State, observation: Observation, engine_of: EngineOf) -> View:
    """Put declaration, state and observation side by side."""
    hosts = {h.name: h for h in desired.hosts}
    models = {m.name: m for m in desired.models}
    seen = {n.name: n for n in observation.nodes}
    nodes = {name: seen.get(name) or _unseen(host) for name, host in sorted(hosts.items())}
    launcher = Launcher(desired, hosts, nodes, engine_of)
    known = with_hosts_renamed(state, nodes)
    found = find(known, nodes.values(), models, launcher)
    records = [*known.replicas.values(), *found.seeded, *found.adopted]
    findings = tuple(
        classify(r, nodes, state.lineage) for r in sorted(records, key=lambda r: (r.model, r.order, r.index))
    )
    adopted = {r.id for r in found.adopted}
    drift = [Drift(f.record.id, f.condition, f.text) for f in findings if f.drifted and f.record.id not in adopted]
    drift += [
        Drift(r.id, Condition.ORPHANED, f"runs on {_places(r)} as declared, but isn't in the state: taken back")
        for r in found.adopted
    ]
    drift += [
        Drift(r.id, Condition.ORPHANED, f"left over on {_places(r)}: it isn't recorded there") for r in found.strays
    ]
    drift += [
        Drift(r.id, Condition.ORPHANED, f"its host is now called {_places(r)}, and it runs on: taken along")
        for name, r in known.replicas.items()
        if r is not state.replicas[name]
    ]
    return View(
        desired=desired,
        models=models,
        hosts=hosts,
        nodes=nodes,
        launcher=launcher,
        findings=findings,
        strays=found.strays,
        drift=tuple(sorted(drift, key=lambda d: (model_of(d.replica), int(d.replica.rpartition("/")[2]), d.text))),
        refreshes=_refreshes(findings, nodes, models, state),
        others=_others(found),
        diagnostics=(*_diagnostics(found, nodes), *warnings_of(desired, nodes, findings)),
    )


def refreshed(finding: Finding, nodes: Mapping[str, Node], models: Mapping[str, Model]) -> ReplicaRecord:
    """Return a living replica's record with what was just seen, and with the catalog's words about it."""
    record = finding.record
    members = tuple(
        replace(member, boot_id=nodes[member.node].boot_id, restarts=seen.restarts) if seen else member
        for member, seen in zip(record.members, finding.seen, strict=True)
    )
    model = models.get(record.model)
    if model is None:
        return replace(record, members=members, starting=False)
    return replace(
        record,
        members=members,
        starting=False,
        owner=model.owner,
        model_class=model.model_class.value,
        prevent_stop=model.prevent_stop,
    )


def _others(found: Found) -> dict[str, frozenset[str]]:
    names: dict[str, set[str]] = {}
    for node, seen in found.foreign:
        names.setdefault(node, set()).add(seen.id)
    return {node: frozenset(ids) for node, ids in names.items()}


def _refreshes(
    findings: tuple[Finding, ...], nodes: Mapping[str, Node], models: Mapping[str, Model], state: State
) -> tuple[Refresh, ...]:
    refreshes = []
    for finding in findings:
        if finding.alive and finding.condition is not Condition.UNKNOWN:
            record = refreshed(finding, nodes, models)
            if state.replicas.get(record.id) != record:
                refreshes.append(Refresh(record))
    return tuple(refreshes)


def _unseen(host: Host) -> Node:
    return Node(host.name, reachable=False, error="it isn't in the inventory", labels=host.labels, fabric=host.fabric)


def _places(record: ReplicaRecord) -> str:
    return ", ".join(m.node for m in record.members)


def _diagnostics(found: Found, nodes: Mapping[str, Node]) -> tuple[Diagnostic, ...]:
    notes = [
        warning(
            f"Host {node} runs {seen.id} of another state (lineage {seen.lineage or 'unknown'}).", "It is left alone."
        )
        for node, seen in found.foreign
    ]
    for node in nodes.values():
        if not node.reachable:
            notes.append(warning(f"Host {node.name} can't be reached: {node.error}"))
        notes += [warning(f"Host {node.name}: {text}") for text in node.warnings]
    return tuple(notes)
