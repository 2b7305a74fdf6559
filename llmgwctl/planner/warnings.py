"""What a reviewer should know of the fleet although no action comes of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from llmgwctl.diagnostics import Diagnostic, error, warning
from llmgwctl.domain.desired import Desired
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.plan import Condition
from llmgwctl.domain.tenancy import GPUS
from llmgwctl.planner.classify import Finding


def warnings_of(desired: Desired, nodes: Mapping[str, Node], findings: Iterable[Finding]) -> Iterator[Diagnostic]:
    """Yield errors that refuse the plan (a machine declared twice), then warnings."""
    yield from _one_machine_twice(nodes)
    for finding in findings:
        yield from _of_a_replica(finding, nodes)
    yield from _promised_too_much(desired, nodes)


def _one_machine_twice(nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    first: dict[tuple[str, str], str] = {}
    told = set()
    for node in nodes.values():
        marks = [("machine", node.machine)] if node.machine else []
        marks += [("GPU", g.uuid) for g in node.gpus if not g.pretended]
        for kind, mark in marks:
            other = first.setdefault((kind, mark), node.name)
            if other != node.name and (other, node.name) not in told:
                told.add((other, node.name))
                what = "are one machine" if kind == "machine" else f"show the same GPU {mark}"
                yield error(
                    f"Hosts {other} and {node.name} {what}: its GPUs and ports would be given out twice.",
                    f"Take {node.name} or {other} out of the declaration.",
                )


def _of_a_replica(finding: Finding, nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    record = finding.record
    if finding.condition is Condition.UNHEALTHY:
        yield warning(f"{record.id}: {finding.text}.", f"To start it anew: --replace {record.id}")
    if not finding.alive or finding.condition is Condition.UNKNOWN:
        return
    for member in record.members:
        there = {g.uuid for g in nodes[member.node].gpus}
        lost = [uuid for uuid in member.gpus if uuid not in there]
        sick = [f"{g.uuid} ({g.health})" for g in nodes[member.node].gpus if g.uuid in member.gpus and g.health != "ok"]
        if lost:
            yield warning(f"{record.id} runs on GPUs that {member.node} no longer shows: {', '.join(lost)}.")
        if sick:
            yield warning(f"{record.id} runs on GPUs of {member.node} that are not healthy: {', '.join(sick)}.")


def _promised_too_much(desired: Desired, nodes: Mapping[str, Node]) -> Iterator[Diagnostic]:
    """Yield where the orgs' guarantees together exceed what the hosts that could be seen have (R12)."""
    promised: dict[str, int] = {}
    for quota in desired.quotas:
        if quota.parent is None:
            for resource, amount in quota.guarantee:
                promised[resource] = promised.get(resource, 0) + amount
    there: dict[str, int] = {GPUS: 0}
    for node in nodes.values():
        for gpu in node.gpus:
            there[GPUS] += gpu.usable
            key = f"gpu_classes.{gpu.gpu_class}"
            there[key] = there.get(key, 0) + gpu.usable
    unseen = sum(not n.reachable for n in nodes.values())
    aside = f" ({unseen} of the hosts could not be seen)" if unseen else ""
    for resource, amount in sorted(promised.items()):
        if (resource == GPUS or resource.startswith("gpu_classes.")) and amount > there.get(resource, 0):
            what = "GPUs" if resource == GPUS else f"GPUs of {resource.partition('.')[2]}"
            yield warning(
                f"The orgs are guaranteed {amount} {what}, and the hosts have {there.get(resource, 0)}{aside}.",
                "Who is short is decided by class, priority and name.",
            )
