"""What each recorded replica turned out to be: an ordered table of conditions, first match wins."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from llmgwctl.domain.inventory import SEEDED, Node, ObservedReplica, Phase
from llmgwctl.domain.plan import Condition
from llmgwctl.domain.state import MemberRecord, ReplicaRecord


@dataclass(frozen=True, slots=True)
class Finding:
    """A recorded replica's condition, in words, with what was seen of each member (None: nothing)."""

    record: ReplicaRecord
    condition: Condition
    text: str
    seen: tuple[ObservedReplica | None, ...] = ()

    @property
    def alive(self) -> bool:
        """Whether it runs, or must be taken to run."""
        return self.condition in _ALIVE

    @property
    def drifted(self) -> bool:
        """Whether it is known to differ from what was left.

        What can't be seen is told as deferred instead, and what hangs in a warning: an apply would record neither.
        """
        return self.condition not in (
            Condition.HEALTHY,
            Condition.STARTING,
            Condition.UNHEALTHY,
            Condition.UNKNOWN,
        )


_ALIVE = frozenset(
    {
        Condition.HEALTHY,
        Condition.STARTING,
        Condition.UNHEALTHY,
        Condition.RESTARTED,
        Condition.REBOOTED,
        Condition.UNKNOWN,
        Condition.CHANGED,
        Condition.ORPHANED,
    }
)


def classify(record: ReplicaRecord, nodes: Mapping[str, Node], lineage: str | None) -> Finding:
    """Return what became of a recorded replica; the worst of its members decides.

    The order of the rules is the point: what can't be seen is unknown, never gone.
    """
    seen = tuple(_seen(record.id, rank, member, nodes, lineage) for rank, member in enumerate(record.members))
    gone_nodes = sorted({m.node for m in record.members if m.node not in nodes})
    unreachable = sorted({m.node for m in record.members if m.node in nodes and not nodes[m.node].reachable})

    def finding(condition: Condition, text: str) -> Finding:
        return Finding(record, condition, text, seen)

    if unreachable:
        why = nodes[unreachable[0]].error or "no answer"
        return finding(Condition.UNKNOWN, f"host {unreachable[0]} can't be reached ({why}): taken to be running")
    if gone_nodes:
        return finding(Condition.NODE_GONE, f"host {', '.join(gone_nodes)} is no longer declared")
    for member, observed in zip(record.members, seen, strict=True):
        if observed is None and (hidden := _hidden(member, nodes[member.node])):
            return finding(Condition.UNKNOWN, hidden)
        if observed is None:
            return finding(
                Condition.INTERRUPTED if record.starting else Condition.GONE,
                f"its start on {member.node} was interrupted before the process ran"
                if record.starting
                else f"nothing of it is left on {member.node}{_rebooted(member, nodes)}",
            )
        if observed.phase in (Phase.FAILED, Phase.STOPPING):
            what = observed.detail or ("was being stopped" if observed.phase is Phase.STOPPING else "no process")
            condition = Condition.GONE if observed.vanished else Condition.FAILED
            return finding(condition, f"on {member.node}: {what}{_rebooted(member, nodes)}")
        if observed.phase is Phase.STARTING and observed.detail and not record.starting:
            return finding(Condition.FAILED, f"on {member.node}: its process {observed.detail}")
        if observed.launch_digest not in ("", SEEDED, member.launch.digest):
            return finding(Condition.CHANGED, f"on {member.node} it runs with another command than was recorded")
    observed_all = [o for o in seen if o is not None]
    if any(o.phase in (Phase.UNHEALTHY, Phase.UNKNOWN) for o in observed_all):
        return finding(Condition.UNHEALTHY, "its process runs but does not answer")
    for member, observed in zip(record.members, observed_all, strict=True):
        boot = nodes[member.node].boot_id
        if member.boot_id and boot and boot != member.boot_id:
            return finding(Condition.REBOOTED, f"host {member.node} was rebooted and its supervisor started it again")
        if observed.restarts > member.restarts:
            times = observed.restarts - member.restarts
            why = f" (it {observed.detail})" if observed.detail else ""
            return finding(
                Condition.RESTARTED,
                f"its process on {member.node} ended and was restarted {times} time{'s' if times > 1 else ''}{why}",
            )
    if any(o.phase is Phase.STARTING for o in observed_all):
        return finding(Condition.STARTING, "still starting")
    return finding(Condition.HEALTHY, "")


def _seen(
    replica: str, rank: int, member: MemberRecord, nodes: Mapping[str, Node], lineage: str | None
) -> ObservedReplica | None:
    node = nodes.get(member.node)
    for observed in node.replicas if node else ():
        if observed.id == replica and observed.member == rank and observed.lineage == (lineage or ""):
            return observed
    return None


def _hidden(member: MemberRecord, node: Node) -> str:
    """Return why a member may run although it isn't seen; empty where it would be."""
    root = member.launch.root
    if root and node.replica_root and root != node.replica_root:
        return (
            f"it was started below {root} on {node.name}, and this connection looks below {node.replica_root} "
            "(another user, or another settings.replica_dir): taken to be running"
        )
    if node.replicas_hidden:
        return f"folders of replicas on {node.name} can't be read: taken to be running"
    return ""


def _rebooted(member: MemberRecord, nodes: Mapping[str, Node]) -> str:
    boot = nodes[member.node].boot_id
    return " since the host was rebooted" if member.boot_id and boot and boot != member.boot_id else ""
