"""A world of the reference as the planner's real inputs, and the real plan as the reference's result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmgwctl.domain.catalog import Model as RealModel
from llmgwctl.domain.catalog import ModelClass, Scaling
from llmgwctl.domain.catalog import Profile as RealProfile
from llmgwctl.domain.desired import Desired
from llmgwctl.domain.inventory import Gpu
from llmgwctl.domain.observation import Observation
from llmgwctl.domain.plan import Action, ActionKind, MemberPlacement, Plan, Reason, ReasonCode, Standing
from llmgwctl.domain.state import State
from llmgwctl.domain.tenancy import Quota
from llmgwctl.engines import registry
from llmgwctl.planner.launching import Launcher
from llmgwctl.planner.options import PlanOptions
from llmgwctl.planner.placement import Seat

from . import world as real
from .reference import Result
from .reference_world import Model, Node, Profile, Running, Scope, World

KINDS = ("org", "team", "project")
STAYS = (ActionKind.KEEP, ActionKind.DEFER)


@dataclass(frozen=True)
class Inputs:
    """What the real planner is given; `replicas` are the world's by their real names."""

    want: Desired
    state: State
    seen: Observation
    options: PlanOptions
    replicas: Mapping[str, Running]


def with_kinds(world: World) -> tuple[World, dict[str, str]]:
    """Return the world with `org:`, `team:` and `project:` before its scopes' names, and their names before."""
    names = {s.name: f"{KINDS[world.level(s.name) - 1]}:{s.name}" for s in world.scopes}
    scopes = tuple(replace(s, name=names[s.name], parent=s.parent and names[s.parent]) for s in world.scopes)
    models = tuple(replace(m, owner=m.owner and names[m.owner]) for m in world.models)
    return replace(world, scopes=scopes, models=models), {new: old for old, new in names.items()}


def inputs(world: World) -> Inputs:
    """Return the real planner's inputs: every replica is recorded, healthy, and launched as the catalog says.

    Their numbers run against the order of their starts, so that one is never taken for the other.
    """
    hosts = [real.host(f"n{number}", fabric="f") for number in range(1, len(world.nodes) + 1)]
    hosts = [replace(host, name=node.name) for host, node in zip(hosts, world.nodes, strict=True)]
    want = replace(
        real.desired(hosts, [_model(m) for m in world.models]),
        quotas=tuple(sorted((_quota(s) for s in world.scopes), key=lambda q: q.scope)),
    )
    empty = real.observation(*(_node(n) for n in world.nodes))
    actions, replicas = _actions(world, want, empty)
    state, seen = real.applied(Plan(None, 0, real.NOW, actions), State(), empty)
    dark = {n.name for n in world.nodes if not n.reachable}
    seen = real.observation(*(real.unreachable(n) if n.name in dark else n for n in seen.nodes))
    return Inputs(want, state, seen, PlanOptions(fill=world.fill), replicas)


def result_of(plan: Plan, world: World, given: Inputs) -> Result:
    """Return the real plan in the reference's words.

    Raises AssertionError where one model's shortfalls don't give one reason, or don't add up to what is short.
    """
    after = [a for a in plan.actions if a.starts or a.kind in STAYS]
    stops = [a for a in plan.actions if a.stops]
    order = max((r.order for r in world.running), default=0)
    started = []
    for action in plan.actions:
        if action.starts:
            order += 1
            profile = int(action.profile[1:])
            started.append(Running(action.model, order, profile, tuple(sorted(p.node for p in action.placement))))
    kept = [given.replicas[a.replica] for a in plan.actions if a.kind in STAYS]
    final = tuple(sorted((*kept, *started), key=lambda r: r.order))
    held: dict[str, Counter[str]] = {s.name: Counter() for s in world.scopes}
    for line in plan.quotas:
        held[line.scope][line.resource] = line.held_after
    return Result(
        starts=Counter(a.model for a in plan.actions if a.starts),
        stops=Counter(a.model for a in stops),
        stops_for=Counter((a.model, (a.reason.for_replica or "").rpartition("/")[0]) for a in stops),
        refused=_refused(plan, world, Counter(a.model for a in after)),
        headroom={stop.model: stop.code for stop in plan.headroom_stops},
        held=held,
        counts=Counter((r.model, r.profile) for r in final),
        guaranteed=Counter(a.model for a in after if a.standing is Standing.GUARANTEED),
        final=final,
        started=tuple(started),
        stopped=tuple(given.replicas[a.replica] for a in stops),
    )


def planned(world: World) -> tuple[Result, Plan, Inputs]:
    """Return the real planner's plan of a world; every plan is checked by the product's own promises too."""
    given = inputs(world)
    plan = real.plan_of(given.want, given.state, given.seen, given.options)
    return result_of(plan, world, given), plan, given


def planned_again(plan: Plan, given: Inputs) -> Plan:
    """Return the plan after an apply of the first."""
    state, seen = real.applied(plan, given.state, given.seen)
    return real.plan_of(given.want, state, seen, given.options)


# The world in the product's types.


def _quota(scope: Scope) -> Quota:
    return Quota(scope.name, scope.parent, tuple(sorted(scope.guarantee.items())), tuple(sorted(scope.limit.items())))


def _model(model: Model) -> RealModel:
    return real.model(
        model.name,
        *(_profile(number, p, len(model.profiles)) for number, p in enumerate(model.profiles)),
        scaling=Scaling(model.min, model.max),
        owner=model.owner,
        model_class=ModelClass(model.model_class),
        priority=model.priority,
        prevent_stop=model.prevent_stop,
    )


def _profile(number: int, profile: Profile, count: int) -> RealProfile:
    changes = {} if profile.gpus else {"engine": "llamacpp", "gpu_class": None, "tp": 1}
    return real.profile(
        f"p{number}",
        profile.gpus,
        **{
            "nodes": profile.nodes,
            "gpu_class": profile.gpu_class,
            "millicores": profile.cores,
            "memory_mib": profile.memory,
            "priority": count - number,
            **changes,
        },
    )


def _node(node: Node):
    seen = real.node(node.name, 0, millicores=node.cores, memory_mib=node.memory, fabric="f")
    gpus = (Gpu(i, f"GPU-{node.name}-{i}", node.gpu_class, node.gpu_class, 81559, 3) for i in range(node.gpus))
    return replace(seen, gpus=tuple(gpus))


def _actions(world: World, want: Desired, seen: Observation) -> tuple[tuple[Action, ...], dict[str, Running]]:
    """Return what starts the world's replicas, in their order."""
    launcher = Launcher(want, {h.name: h for h in want.hosts}, {n.name: n for n in seen.nodes}, registry.get)
    models = {m.name: m for m in want.models}
    gpus = {n.name: list(n.gpus) for n in seen.nodes}
    left = Counter(r.model for r in world.running)
    actions, replicas = [], {}
    for number, running in enumerate(sorted(world.running, key=lambda r: r.order)):
        model = models[running.model]
        profile = model.profile(f"p{running.profile}")
        left[running.model] -= 1
        index = left[running.model]
        seats = []
        for place in running.places:
            mine = tuple(gpus[place].pop(0) for _ in range(profile.gpus_per_node))
            seats.append(Seat(place, mine, 20000 + 10 * number))
        replicas[f"{model.name}/{index}"] = running
        actions.append(
            Action(
                ActionKind.START,
                f"{model.name}/{index}",
                model.name,
                profile.name,
                profile.engine,
                Reason(ReasonCode.NEW, ""),
                tuple(
                    MemberPlacement(s.node, tuple(g.uuid for g in s.gpus), tuple(g.index for g in s.gpus), s.port)
                    for s in seats
                ),
                launcher.launches(model, profile, index, seats),
                owner=model.owner,
                model_class=model.model_class.value,
                millicores=profile.millicores,
                memory_mib=profile.memory_mib,
                gpu_class=profile.gpu_class or "",
                prevent_stop=model.prevent_stop,
            )
        )
    return tuple(actions), replicas


def _refused(plan: Plan, world: World, running: Counter[str]) -> dict[str, str]:
    reasons: dict[str, str] = {}
    short = Counter(s.model for s in plan.shortfalls)
    for model in world.models:
        assert short[model.name] == max(0, model.min - running[model.name]), f"{model.name}: shortfalls"
    for shortfall in plan.shortfalls:
        cause = shortfall.causes[0]
        numbers = dict(cause.numbers)
        code = f"limit:{numbers['scope']}:{numbers['resource']}" if cause.code == "limit" else cause.code
        assert reasons.setdefault(shortfall.model, code) == code, f"{shortfall.model}: two reasons"
    return reasons
