"""Small fleets, made by hand: what the planner's tests begin from."""

from __future__ import annotations

from dataclasses import replace

from llmgwctl.domain.catalog import Model, ModelClass, Profile, Scaling
from llmgwctl.domain.desired import Desired, Host
from llmgwctl.domain.inventory import Gpu, Node, ObservedReplica, Phase
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Plan
from llmgwctl.domain.state import MemberRecord, ReplicaRecord, State
from llmgwctl.engines import registry
from llmgwctl.planner.invariants import check_plan
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.reconcile import make_plan

LINEAGE = "11111111-2222-3333-4444-555555555555"
NOW = "2026-01-01T00:00:00Z"


def host(name: str, **changes: object) -> Host:
    return Host(name, f"10.0.0.{int(''.join(c for c in name if c.isdigit()) or 1)}", **changes)


def node(name: str, gpus: int = 8, gpu_class: str = "h100-80gb", **changes: object) -> Node:
    devices = tuple(Gpu(i, f"GPU-{name}-{i}", "NVIDIA H100 80GB HBM3", gpu_class, 81559, 3) for i in range(gpus))
    values: dict[str, object] = {
        "millicores": 64000,
        "memory_mib": 512 * 1024,
        "gpus": devices,
        "replica_root": "/var/lib/llmgwctl/replicas",
        "supervisor": "systemd",
        "boot_id": "boot-1",
    }
    return Node(name, **(values | changes))


def profile(name: str = "p", gpus: int = 1, **changes: object) -> Profile:
    values: dict[str, object] = {
        "engine": "vllm",
        "gpu_class": "h100-80gb",
        "tp": gpus * int(changes.get("nodes", 1)),
        "gpus_per_node": gpus,
    }
    return Profile(name, **(values | changes))


def model(name: str, *profiles: Profile, count: int = 1, most: int | None = None, **changes: object) -> Model:
    values: dict[str, object] = {
        "scaling": Scaling(count, max(1, count) if most is None else most),
        "model_class": ModelClass.STANDARD,
    }
    return Model(name, f"/models/{name}", profiles or (profile(),), **(values | changes))


def desired(hosts: list[Host], models: list[Model], **changes: object) -> Desired:
    return Desired(tuple(sorted(hosts, key=lambda h: h.name)), tuple(sorted(models, key=lambda m: m.name)), **changes)


def observation(*nodes: Node) -> Observation:
    return Observation(NOW, tuple(sorted(nodes, key=lambda n: n.name)))


def unreachable(seen: Node) -> Node:
    return Node(seen.name, reachable=False, error="timed out", labels=seen.labels, fabric=seen.fabric)


def plan_of(
    want: Desired,
    state: State,
    seen: Observation,
    options: PlanOptions = PlanOptions(),  # noqa: B008
) -> Plan:
    """Return the plan, after the independent check of every promise."""
    plan = make_plan(want, state, seen, registry.get, options)
    violations = check_plan(plan, want, state, seen)
    assert violations == (), "\n".join(f"{v.rule}: {v.text}" for v in violations)
    return plan


def applied(plan: Plan, state: State, seen: Observation) -> tuple[State, Observation]:
    """Return state and observation as an apply without failures leaves them."""
    records = dict(state.replicas) | {r.record.id: r.record for r in plan.refreshes}
    nodes = {n.name: n for n in seen.nodes}
    order = max((r.order for r in records.values()), default=0)
    for action in plan.changes():
        if action.before is not None:
            for member in action.before.members:
                if member.node in nodes:
                    nodes[member.node] = _without(nodes[member.node], member.launch.folder)
            records.pop(action.replica, None)
        if action.starts:
            order += 1
            records[action.replica] = _record(action, order)
            for rank, (place, launch) in enumerate(zip(action.placement, action.launches, strict=True)):
                nodes[place.node] = _with(nodes[place.node], _observed(action, rank, launch))
    return State(LINEAGE, state.serial + 1, records), Observation(NOW, tuple(nodes[n] for n in sorted(nodes)))


def _record(action, order: int) -> ReplicaRecord:
    return ReplicaRecord(
        id=action.replica,
        model=action.model,
        profile=action.profile,
        engine=action.engine,
        members=tuple(
            MemberRecord(p.node, p.gpus, p.gpu_indices, launch, "boot-1")
            for p, launch in zip(action.placement, action.launches, strict=True)
        ),
        owner=action.owner,
        model_class=action.model_class,
        order=order,
        millicores=action.millicores,
        memory_mib=action.memory_mib,
        gpu_class=action.gpu_class,
        simulated=action.simulated,
        origin=action.origin,
        prevent_stop=action.prevent_stop,
    )


def _observed(action, rank: int, launch) -> ObservedReplica:
    return ObservedReplica(
        action.replica,
        rank,
        action.model,
        action.profile,
        launch.digest,
        launch.gpus,
        launch.port,
        Phase.READY,
        LINEAGE,
        launch.folder,
        action.engine,
    )


def _with(seen: Node, replica: ObservedReplica) -> Node:
    gpus = tuple(replace(g, taken_by=replica.id) if g.uuid in replica.gpus else g for g in seen.gpus)
    return replace(seen, gpus=gpus, replicas=(*seen.replicas, replica), ports_in_use=(*seen.ports_in_use, replica.port))


def _without(seen: Node, folder: str) -> Node:
    gone = [r for r in seen.replicas if r.folder == folder]
    uuids = {u for r in gone for u in r.gpus}
    ports = {r.port for r in gone}
    return replace(
        seen,
        gpus=tuple(replace(g, taken_by=None) if g.uuid in uuids else g for g in seen.gpus),
        replicas=tuple(r for r in seen.replicas if r.folder != folder),
        ports_in_use=tuple(p for p in seen.ports_in_use if p not in ports),
    )


def running(want: Desired, *nodes: Node) -> tuple[State, Observation]:
    """Return state and observation after a first apply."""
    seen = observation(*nodes)
    return applied(plan_of(want, State(), seen), State(), seen)


def see(seen: Observation, replica: str, **changes: object) -> Observation:
    """Return the observation with one replica's members changed."""
    nodes = tuple(
        replace(n, replicas=tuple(replace(r, **changes) if r.id == replica else r for r in n.replicas))
        for n in seen.nodes
    )
    return replace(seen, nodes=nodes)


def lose(seen: Observation, replica: str) -> Observation:
    """Return the observation with every trace of a replica gone."""
    nodes = []
    for item in seen.nodes:
        left = item
        for folder in [r.folder for r in item.replicas if r.id == replica]:
            left = _without(left, folder)
        nodes.append(left)
    return replace(seen, nodes=tuple(nodes))


def brief(plan: Plan) -> list[tuple[str, str, str, str]]:
    """Return what a plan changes: action, replica, nodes and reason."""
    return [
        (a.kind.value, a.replica, ",".join(p.node for p in a.placement), a.reason.code.value)
        for a in plan.actions
        if a.kind.value != "keep"
    ]


EMPTY = State()
