"""Replicas of ours that the hosts show and the state does not: seeds of a simulated host, and leftovers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from llmgwctl.domain.catalog import Model
from llmgwctl.domain.inventory import SEEDED, Gpu, Node, ObservedReplica
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.domain.state import MemberRecord, ReplicaRecord, State
from llmgwctl.planner.launching import Launcher
from llmgwctl.planner.naming import folder_name, model_of
from llmgwctl.planner.placement import Seat


@dataclass(frozen=True, slots=True)
class Found:
    """What the hosts show beside the state.

    `seeded` count as recorded. `adopted` run exactly as they would be started now. `strays` are ours but belong
    nowhere any more (another place is recorded, or the command is another one). `foreign` belong to another state.
    """

    seeded: tuple[ReplicaRecord, ...] = ()
    adopted: tuple[ReplicaRecord, ...] = ()
    strays: tuple[ReplicaRecord, ...] = ()
    foreign: tuple[tuple[str, ObservedReplica], ...] = ()


def with_hosts_renamed(state: State, nodes: Mapping[str, Node]) -> State:
    """Return the state with the hosts' new names, where a declaration calls a host otherwise than it was recorded.

    A member recorded on a host that is declared no more, and seen on another one just as it was launched, is the same
    process: its folder, GPUs, port and command are, and only the name is not.
    """
    places = {
        (seen.id, seen.member, seen.launch_digest): node.name
        for node in nodes.values()
        for seen in node.replicas
        if seen.lineage == (state.lineage or "")
    }
    replicas = dict(state.replicas)
    for name, record in state.replicas.items():
        if all(m.node in nodes for m in record.members):
            continue
        members = tuple(
            m if m.node in nodes else replace(m, node=places.get((name, rank, m.launch.digest), m.node))
            for rank, m in enumerate(record.members)
        )
        if members != record.members:
            replicas[name] = replace(record, members=members)
    return replace(state, replicas=replicas)


def find(state: State, nodes: Iterable[Node], models: Mapping[str, Model], launcher: Launcher) -> Found:
    """Sort what the hosts show by what the state says of it."""
    groups: dict[str, list[tuple[Node, ObservedReplica]]] = {}
    foreign = []
    for node in nodes:
        for seen in node.replicas:
            if seen.lineage != (state.lineage or ""):
                foreign.append((node.name, seen))
            elif not _recorded(state, node.name, seen):
                groups.setdefault(seen.id, []).append((node, seen))
    seeded: list[ReplicaRecord] = []
    adopted: list[ReplicaRecord] = []
    strays: list[ReplicaRecord] = []
    order = max((r.order for r in state.replicas.values()), default=0)
    for identity in sorted(groups, key=lambda i: (model_of(i), int(i.rpartition("/")[2]))):
        members = sorted(groups[identity], key=lambda m: (m[1].member, m[0].name))
        record = _as_launched(identity, members, models, launcher) if identity not in state.replicas else None
        order += 1
        if record is None:
            strays += [_stray(identity, node, seen) for node, seen in members]
        elif all(seen.launch_digest == SEEDED for _, seen in members):
            seeded.append(replace(record, order=order))
        elif [m.launch.digest for m in record.members] == [seen.launch_digest for _, seen in members]:
            adopted.append(replace(record, order=order))
        else:
            strays += [_stray(identity, node, seen) for node, seen in members]
    return Found(tuple(seeded), tuple(adopted), tuple(strays), tuple(foreign))


def _recorded(state: State, node: str, seen: ObservedReplica) -> bool:
    record = state.replicas.get(seen.id)
    return record is not None and seen.member < len(record.members) and record.members[seen.member].node == node


def _as_launched(
    identity: str, members: list[tuple[Node, ObservedReplica]], models: Mapping[str, Model], launcher: Launcher
) -> ReplicaRecord | None:
    """Return the record that a start of today's catalog would have left in these places, if it is whole."""
    model = models.get(model_of(identity))
    profile = model.profile(members[0][1].profile) if model else None
    if model is None or profile is None or [seen.member for _, seen in members] != list(range(profile.nodes)):
        return None
    seats = []
    for node, seen in members:
        by_uuid = {g.uuid: g for g in node.gpus}
        if any(u not in by_uuid for u in seen.gpus) or len(seen.gpus) != profile.gpus_per_node:
            return None
        gpus: tuple[Gpu, ...] = tuple(sorted((by_uuid[u] for u in seen.gpus), key=lambda g: g.index))
        seats.append(Seat(node.name, gpus, seen.port))
    launches = launcher.launches(model, profile, int(identity.rpartition("/")[2]), seats)
    return ReplicaRecord(
        id=identity,
        model=model.name,
        profile=profile.name,
        engine=profile.engine,
        members=tuple(
            MemberRecord(
                seat.node,
                tuple(g.uuid for g in seat.gpus),
                tuple(g.index for g in seat.gpus),
                launch,
                node.boot_id,
                seen.restarts,
            )
            for seat, launch, (node, seen) in zip(seats, launches, members, strict=True)
        ),
        owner=model.owner,
        model_class=model.model_class.value,
        millicores=profile.millicores,
        memory_mib=profile.memory_mib,
        gpu_class=profile.gpu_class or "",
        simulated=profile.engine == "sim",
        origin=model.origin.value,
        prevent_stop=model.prevent_stop,
    )


def _stray(identity: str, node: Node, seen: ObservedReplica) -> ReplicaRecord:
    """Return what is needed to stop a member of which only its folder tells."""
    index = int(identity.rpartition("/")[2])
    indices = {g.uuid: g.index for g in node.gpus}
    launch = LaunchSpec(
        folder=seen.folder or folder_name(seen.model, index, seen.member),
        engine=seen.engine,
        argv=(),
        env=(),
        gpus=seen.gpus,
        device_env="",
        files=(),
        address="",
        port=seen.port,
        readiness=Readiness(""),
        stop=StopPolicy(),
        startup_timeout_s=0.0,
        root=node.replica_root,
    )
    member = MemberRecord(node.name, seen.gpus, tuple(indices.get(u, -1) for u in seen.gpus), launch)
    return ReplicaRecord(identity, seen.model, seen.profile, seen.engine, (member,))
