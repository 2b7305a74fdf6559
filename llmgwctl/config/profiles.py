"""One profile of a model of the YAML, to the noun of the catalog, and what its engine says to it."""

from __future__ import annotations

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import (
    Report,
    duration,
    env_of,
    mebibytes,
    millicores,
    optional_text,
    optional_whole,
    pairs_of,
    text_of,
    unique,
    warn_of_secret_words,
    whole,
    words_of,
)
from llmgwctl.config.wording import one_of, quoted
from llmgwctl.domain.catalog import CPU_CAPABLE_ENGINES, Model, Profile
from llmgwctl.engines import registry
from llmgwctl.engines.base import Problem
from llmgwctl.errors import LlmgwctlError

DEFAULT_STARTUP_TIMEOUT_S = 1200.0
LONGEST_STARTUP_TIMEOUT_S = 30 * 24 * 3600


def profile_nodes(node: Node) -> list[Node]:
    """Return the profiles of a model's mapping."""
    profiles = node.get("profiles")
    return profiles.elements() if profiles else []


def profiles_of(node: Node, model: str, report: Report) -> tuple[Profile, ...]:
    """Return a model's profiles with defaults filled in; their names are unique."""
    nodes = profile_nodes(node)
    _, again = unique((p.value["name"].text, p) for p in nodes)
    for name, repetition, first in again:
        report.error(
            f"the profile `{quoted(name)}` is declared twice; first at {first.value['name'].at}.",
            "Give one of them another name.",
            repetition.value["name"].at,
        )
    return tuple(
        _profile(p, Report(report.diagnostics, f"Model `{quoted(model)}`, profile `{quoted(p.value['name'].text)}`"))
        for p in nodes
    )


def check_engine(model: Model, profile: Profile, node: Node, profile_node: Node, report: Report) -> None:
    """Add what stands against running a profile with its engine, at the place it is about."""
    report = report.about(f"{report.entry}, profile `{quoted(profile.name)}`")
    written = profile_node.get("engine")
    try:
        engine = registry.get(profile.engine)
    except LlmgwctlError as broken:
        report.error(broken.message, broken.detail, (written or profile_node).at)
        return
    if engine is None:
        names = registry.names()
        hint = report.did_you_mean(profile.engine, names)
        report.error(
            f"there is no engine `{quoted(profile.engine)}`.",
            f"{hint} Write {one_of(names)}.".strip(),
            (written or profile_node).at,
        )
        return
    problems = engine.check(model, profile)
    for problem in problems:
        root, _, field = problem.field.partition("model.")
        place = _place(node, field, problem) if field and not root else _place(profile_node, problem.field, problem)
        summary = problem.summary.rstrip(".") + "."
        report.error(summary, problem.detail, place.at)
    warn_of_secret_words(profile_node.get("args"), {p.index for p in problems if p.field == "args"}, report)


def _profile(node: Node, report: Report) -> Profile:
    engine = text_of(node.get("engine"), "The engine", report, "vllm")
    gpu_class = optional_text(node.get("gpu_class"), "gpu_class", report)
    cpu_only = gpu_class is None and engine in CPU_CAPABLE_ENGINES
    tp, pp, nodes = (max(1, whole(node.get(key), 1)) for key in ("tp", "pp", "nodes"))
    written = node.get("gpus_per_node")
    per_node = whole(written, 0)
    if cpu_only:
        if written is not None and per_node:
            report.warning(
                f"gpus_per_node is {per_node}, but without a gpu_class it runs on no GPU.",
                "Write the gpu_class that it needs, or take gpus_per_node out.",
                written.at,
            )
        per_node = 0
        _check_cpu_profile(node, nodes, report)
    elif written is None:
        per_node = max(1, tp * pp // nodes)
    elif per_node == 0:
        per_node = max(1, tp * pp // nodes)
        report.error("gpus_per_node is 0.", f"Write `gpus_per_node: {per_node}`, or leave it out.", written.at)
    if not cpu_only and per_node * nodes != tp * pp:
        report.error(
            f"gpus_per_node x nodes is {per_node} x {nodes}, but tp x pp is {tp} x {pp}.",
            "Make both products equal; leave gpus_per_node out to have it worked out.",
            node.key_at(next((k for k in ("gpus_per_node", "nodes", "tp", "pp") if node.get(k)), "name")),
        )
    timeout = duration(node.get("startup_timeout"), "startup_timeout", LONGEST_STARTUP_TIMEOUT_S, report)
    weight = node.get("weight")
    return Profile(
        name=text_of(node.get("name"), "The name", report),
        engine=engine,
        gpu_class=gpu_class,
        tp=tp,
        pp=pp,
        gpus_per_node=per_node,
        nodes=nodes,
        args=words_of(node.get("args")),
        env=env_of(node.get("env"), report),
        memory_mib=mebibytes(node.get("min_memory_gb")),
        millicores=millicores(node.get("cpu_cores")),
        node_selector=pairs_of(node.get("node_selector")),
        weight=float(weight.value) if weight and weight.value > 0 else 1.0,
        priority=whole(node.get("priority"), 0),
        startup_timeout_s=float(timeout) if timeout and timeout > 0 else DEFAULT_STARTUP_TIMEOUT_S,
        port=optional_whole(node.get("port")),
    )


def _check_cpu_profile(node: Node, nodes: int, report: Report) -> None:
    if nodes > 1:
        report.error(
            f"a profile without GPUs can't span {nodes} nodes.",
            "Write `nodes: 1`, or the gpu_class that it needs.",
            (node.get("nodes") or node).at,
        )
    memory = node.get("min_memory_gb")
    if memory is None or memory.value <= 0:
        report.warning(
            "it runs without a GPU and says nothing of memory.",
            "Write min_memory_gb: the weights, the context and the engine itself. Without it nobody can tell when a "
            "host is full.",
            (memory or node).at,
        )


def _place(node: Node, field: str, problem: Problem) -> Node:
    """Return the value that an engine's problem is about; the nearest one around it where it was not written."""
    key, _, rest = field.partition(".")
    child = node.get(key)
    if child is None:
        return node
    if rest:
        return _place(child, rest, problem)
    elements = child.elements()
    return elements[problem.index] if problem.index is not None and problem.index < len(elements) else child
