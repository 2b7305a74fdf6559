"""An independent re-check of what must hold in every plan, whatever the planner did."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llmgwctl.domain.desired import Desired
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Action, ActionKind, Plan
from llmgwctl.domain.state import State
from llmgwctl.planner.rooms import class_keys


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that a plan breaks: the rule's name, and where."""

    rule: str
    text: str


def check_plan(plan: Plan, desired: Desired, state: State, observation: Observation) -> tuple[Violation, ...]:
    """Return every broken promise; a plan with any must never be applied."""
    checker = _Checker(plan, desired, state, observation)
    return tuple(
        violation
        for rule in (
            checker.gpus_have_one_owner,
            checker.gpus_can_be_used,
            checker.ports_have_one_owner,
            checker.hosts_are_open,
            checker.hosts_are_not_overbooked,
            checker.no_second_copy,
            checker.order_is_safe,
            checker.launches_match,
            checker.no_more_than_max,
        )
        for violation in rule()
    )


class _Checker:
    def __init__(self, plan: Plan, desired: Desired, state: State, observation: Observation) -> None:
        self.plan = plan
        self.state = state
        self.hosts = {h.name: h for h in desired.hosts}
        self.models = {m.name: m for m in desired.models}
        self.nodes = {n.name: n for n in observation.nodes}
        self.after = [a for a in plan.actions if a.starts or a.kind in (ActionKind.KEEP, ActionKind.DEFER)]
        self.starts = [a for a in plan.actions if a.starts]

    def gpus_have_one_owner(self) -> Iterable[Violation]:
        owner: dict[tuple[str, str], str] = {}
        for action in self.after:
            for place in action.placement:
                for uuid in place.gpus:
                    other = owner.setdefault((place.node, uuid), action.replica)
                    if other != action.replica:
                        yield Violation("one owner", f"{uuid} on {place.node}: {other} and {action.replica}")

    def gpus_can_be_used(self) -> Iterable[Violation]:
        freed = {a.replica for a in self.plan.actions if a.stops} | {a.replica for a in self.starts}
        for action in self.starts:
            model = self.models.get(action.model)
            profile = model.profile(action.profile) if model else None
            for place in action.placement:
                gpus = {g.uuid: g for g in self.nodes[place.node].gpus}
                reserved = self.hosts[place.node].reserve.gpus
                for uuid in place.gpus:
                    gpu = gpus.get(uuid)
                    if gpu is None or not gpu.usable or uuid in reserved or str(gpu.index) in reserved:
                        yield Violation("usable GPU", f"{action.replica}: {uuid} on {place.node}")
                    elif gpu.taken_by is not None and gpu.taken_by not in freed:
                        yield Violation("free GPU", f"{action.replica}: {uuid} is taken by {gpu.taken_by}")
                    elif profile and (profile.gpu_class or "").lower() not in class_keys(gpu):
                        yield Violation("GPU class", f"{action.replica}: {uuid} is {gpu.gpu_class}")
                    elif gpu.pretended and action.engine != "sim":
                        yield Violation("real GPU", f"{action.replica}: {uuid} is pretended")
                if profile and len(place.gpus) != profile.gpus_per_node:
                    yield Violation("number of GPUs", f"{action.replica} on {place.node}: {len(place.gpus)}")

    def ports_have_one_owner(self) -> Iterable[Violation]:
        owner: dict[tuple[str, int], str] = {}
        for action in self.after:
            for place, launch in zip(action.placement, action.launches, strict=True):
                for port in range(place.port, place.port + launch.ports):
                    other = owner.setdefault((place.node, port), action.replica)
                    if other != action.replica:
                        yield Violation("one owner of a port", f"{port} on {place.node}: {other}, {action.replica}")

    def hosts_are_open(self) -> Iterable[Violation]:
        for action in self.starts:
            again = {m.node for m in action.before.members} if action.before else set()
            for place in action.placement:
                host, node = self.hosts.get(place.node), self.nodes.get(place.node)
                if host is None or node is None or not node.reachable:
                    yield Violation("reachable host", f"{action.replica} on {place.node}")
                elif (host.drain or not host.schedulable) and place.node not in again:
                    yield Violation("open host", f"{action.replica} on {place.node}")

    def hosts_are_not_overbooked(self) -> Iterable[Violation]:
        cores: dict[str, int] = {}
        memory: dict[str, int] = {}
        touched = {p.node for a in self.starts for p in a.placement}
        for action in self.after:
            model = self.models.get(action.model)
            profile = model.profile(action.profile) if model and action.starts else None
            held = profile or action.before
            for place in action.placement:
                cores[place.node] = cores.get(place.node, 0) + (held.millicores if held else 0)
                memory[place.node] = memory.get(place.node, 0) + (held.memory_mib if held else 0)
        for name in touched:
            node, reserve = self.nodes[name], self.hosts[name].reserve
            if node.millicores is not None and cores[name] > max(0, node.millicores - reserve.millicores):
                yield Violation("cores", f"{name}: {cores[name]} of {node.millicores} millicores")
            if node.memory_mib is not None and memory[name] > max(0, node.memory_mib - reserve.memory_mib):
                yield Violation("memory", f"{name}: {memory[name]} of {node.memory_mib} MiB")

    def no_second_copy(self) -> Iterable[Violation]:
        deferred = {a.replica for a in self.plan.actions if a.kind is ActionKind.DEFER}
        seen: set[str] = set()
        for action in self.after:
            if action.replica in seen or (action.starts and action.replica in deferred):
                yield Violation("no second copy", action.replica)
            seen.add(action.replica)

    def order_is_safe(self) -> Iterable[Violation]:
        done: set[str] = set()
        names = {a.replica for a in self.plan.actions if a.changes}
        for action in self.plan.actions:
            for waited in action.waits_for:
                if waited in names and waited not in done:
                    yield Violation("safe order", f"{action.replica} comes before {waited}")
            done.add(action.replica)

    def launches_match(self) -> Iterable[Violation]:
        for action in self.starts:
            if len(action.launches) != len(action.placement):
                yield Violation("launch of each member", action.replica)
                continue
            for place, launch in zip(action.placement, action.launches, strict=True):
                if (launch.gpus, launch.port) != (place.gpus, place.port):
                    yield Violation("launch as placed", f"{action.replica} on {place.node}")

    def no_more_than_max(self) -> Iterable[Violation]:
        running: dict[str, list[Action]] = {}
        for action in self.after:
            running.setdefault(action.model, []).append(action)
        for name, actions in running.items():
            model = self.models.get(name)
            most = model.scaling.max if model else 0
            if len(actions) > most and any(a.starts for a in actions):
                yield Violation("no more than max", f"{name}: {len(actions)} of {most}")
