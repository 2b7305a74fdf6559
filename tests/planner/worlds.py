"""Random small worlds with quotas, for the planner and its reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import strategies as st

from .reference_world import (
    CLASSES,
    CORES,
    GPUS,
    MEMORY,
    Model,
    Node,
    Profile,
    Running,
    Scope,
    World,
    fitting,
    free_room,
)

GPU_CLASSES = ("h100-80gb", "l4-24gb")
PER_GPU = {CORES: 4000, MEMORY: 16 * 1024}
"""A node's share of a GPU, in millicores and MiB."""


@st.composite
def worlds(draw: st.DrawFn, nodes: int = 3, gangs: bool = True, profiles: int = 1, resources: bool = True) -> World:
    """Draw a world of at most so many nodes, and profiles a model.

    Without `resources` only GPUs of any class are measured, and bind. What runs fits the nodes; it may be over a limit.
    """
    classes = GPU_CLASSES[: draw(st.integers(1, 2))] if nodes > 1 else GPU_CLASSES[:1]
    fleet = [_node(draw, f"n{i}", classes, resources) for i in range(1, draw(st.integers(1, nodes)) + 1)]
    scopes = draw(trees(classes, resources))
    models = [
        _model(draw, f"m{i}", [s.name for s in scopes], fleet, gangs, profiles, resources)
        for i in range(draw(st.integers(2, 6)))
    ]
    world = World(tuple(fleet), tuple(scopes), tuple(models), (), draw(st.booleans()))
    return replace(world, running=_running(draw, world))


@st.composite
def trees(draw: st.DrawFn, classes: tuple[str, ...] = GPU_CLASSES, resources: bool = True) -> list[Scope]:
    """Draw orgs, teams and projects; no limit is below a guarantee of the scope or of one beneath it."""
    scopes: list[Scope] = []
    for number in range(draw(st.integers(1, 6))):
        parents = [None, None, *(s for s in scopes if not s.name.startswith("project"))]
        parent = draw(st.sampled_from(parents))
        kind = "org" if parent is None else "project"
        if parent is not None and parent.name.startswith("org"):
            kind = draw(st.sampled_from(["team", "team", "team", "project"]))
        scopes.append(
            Scope(
                f"{kind}:{'abcdef'[number]}",
                parent.name if parent else None,
                draw(_amounts(classes, resources, guarantee=True)),
                draw(_amounts(classes, resources, guarantee=False)),
            )
        )
    return [replace(s, limit=_raised(s, scopes)) for s in scopes]


def _raised(scope: Scope, scopes: list[Scope]) -> dict[str, int]:
    beneath = [scope]
    for other in scopes:  # parents come first
        if any(other.parent == b.name for b in beneath):
            beneath.append(other)
    return {r: max(most, *(b.guarantee.get(r, 0) for b in beneath)) for r, most in scope.limit.items()}


@st.composite
def _amounts(draw: st.DrawFn, classes: tuple[str, ...], resources: bool, guarantee: bool) -> dict[str, int]:
    chance = draw(st.integers(0, 9))
    if chance < (3 if guarantee else 6):
        return {}
    gpus = draw(st.integers(0, 8))
    if not resources or chance < 7:
        return {GPUS: gpus}
    found = {}
    for resource in draw(
        st.sets(st.sampled_from([GPUS, CORES, MEMORY, *(f"gpu_classes.{c}" for c in classes)]), min_size=1)
    ):
        found[resource] = draw(st.integers(0, 8)) * PER_GPU.get(resource, 1)
    return found


def _node(draw: st.DrawFn, name: str, classes: tuple[str, ...], resources: bool) -> Node:
    gpus = draw(st.integers(1, 8))
    node = Node(name, draw(st.sampled_from(classes)), gpus)
    if not resources or draw(st.booleans()):
        return node
    return replace(node, cores=gpus * PER_GPU[CORES], memory=gpus * PER_GPU[MEMORY])


def _model(
    draw: st.DrawFn,
    name: str,
    owners: list[str],
    fleet: list[Node],
    gangs: bool,
    profiles: int,
    resources: bool,
) -> Model:
    low = draw(st.integers(0, 2))
    return Model(
        name,
        None if draw(st.integers(0, 4)) == 0 else draw(st.sampled_from(owners)),
        draw(st.sampled_from(CLASSES)),
        low,
        max(1, low + draw(st.integers(0, 2))),
        draw(st.sampled_from([0, 0, 0, 1, -1])),
        tuple(_profile(draw, fleet, gangs, resources) for _ in range(draw(st.integers(1, profiles)))),
    )


def _profile(draw: st.DrawFn, fleet: list[Node], gangs: bool, resources: bool) -> Profile:
    """Draw a profile that mostly could run somewhere."""
    node = draw(st.sampled_from(fleet))
    gpus = draw(st.integers(1, 4 if draw(st.integers(0, 9)) == 0 else min(4, node.gpus)))
    alike = sum(n.gpu_class == node.gpu_class for n in fleet)
    nodes = 2 if gangs and alike > 1 and draw(st.integers(0, 3)) == 0 else 1
    if not resources or draw(st.integers(0, 2)):
        return Profile(gpus, nodes, gpu_class=node.gpu_class)
    share = draw(st.integers(1, 4))
    if draw(st.integers(0, 5)) == 0:
        return Profile(0, 1, share * PER_GPU[CORES], share * PER_GPU[MEMORY], None)
    cores, memory = share * PER_GPU[CORES], draw(st.integers(0, 4)) * PER_GPU[MEMORY]
    return Profile(gpus, nodes, cores, memory, node.gpu_class)


def _running(draw: st.DrawFn, world: World) -> tuple[Running, ...]:
    running: list[Running] = []
    counts: Counter[str] = Counter()
    for _ in range(draw(st.sampled_from([0, 3, 6, 9, 12, 16]))):
        model = draw(st.sampled_from(world.models))
        profile = draw(st.integers(0, len(model.profiles) - 1))
        room = fitting(world, free_room(world, running), model.profiles[profile])
        if room and counts[model.name] < model.max:
            counts[model.name] += 1
            running.append(Running(model.name, len(running) + 1, profile, draw(st.sampled_from(room))))
    return tuple(running)
