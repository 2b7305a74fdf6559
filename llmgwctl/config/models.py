"""One model of the YAML, to the noun of the catalog."""

from __future__ import annotations

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import (
    Report,
    env_of,
    flag,
    mebibytes,
    millicores,
    optional_text,
    optional_whole,
    pairs_of,
    seconds,
    text_of,
    texts_of,
    unique,
    whole,
    words_of,
)
from llmgwctl.config.wording import one_of, quoted
from llmgwctl.domain.catalog import (
    CPU_CAPABLE_ENGINES,
    Capabilities,
    Model,
    ModelClass,
    Origin,
    Profile,
    Scaling,
    Slo,
    Update,
    UpdateStrategy,
)
from llmgwctl.engines import registry
from llmgwctl.engines.base import Problem
from llmgwctl.errors import LlmgwctlError

DEFAULT_STARTUP_TIMEOUT_S = 1200.0
CAPABILITIES = ("tools", "vision", "embeddings")


def model_of(node: Node, report: Report, origin: Origin = Origin.DECLARED) -> Model:
    """Return the model that a mapping describes, with defaults filled in; the schema has accepted the mapping.

    Adds what is wrong with the model by itself; what it has to do with others is `catalog.check_catalog`'s.
    """
    name_node = node.get("name")
    name = name_node.text if name_node else ""
    report = report.about(f"Model `{quoted(name)}`")
    text_of(name_node, "The name", report)
    scaling = _scaling(node, report)
    class_node = node.get("class")
    default_class = ModelClass.STANDARD if scaling.min > 0 else ModelClass.OPPORTUNISTIC
    model = Model(
        name=name,
        source=_source(node, report),
        profiles=_profiles(node, name, report),
        aliases=texts_of(node.get("aliases"), "The alias", report),
        owner=optional_text(node.get("owner"), "The owner", report),
        model_class=ModelClass(class_node.value) if class_node else default_class,
        scaling=scaling,
        fallbacks=texts_of(node.get("fallbacks"), "The fallback", report),
        routing_profile=optional_text(node.get("routing_profile"), "routing_profile", report),
        slo=_slo(node.get("slo"), report),
        context_length=optional_whole(node.get("context_length")) or None,
        max_output=optional_whole(node.get("max_output")) or None,
        capabilities=_capabilities(node.get("capabilities")),
        update=_update(node.get("update")),
        priority=whole(node.get("priority"), 0),
        prevent_stop=flag(node.get("prevent_stop"), False),
        origin=origin,
        at=node.at,
    )
    for profile, profile_node in zip(model.profiles, _profile_nodes(node), strict=True):
        _check_engine(model, profile, node, profile_node, report)
    return model


def _source(node: Node, report: Report) -> str:
    source = node.get("source")
    text = text_of(source, "The source", report)
    if source is not None and text.startswith("-"):
        report.error("The source begins with `-`, so an engine would take it for an option.", "Write ./-…", source.at)
    return text


def _scaling(node: Node, report: Report) -> Scaling:
    scaling = node.get("scaling")
    if scaling is None:
        return Scaling()
    least = max(0, whole(scaling.get("min"), 0))
    most = whole(scaling.get("max"), 0) or max(least, 1)
    if most < least:
        report.error(
            f"scaling.max is {most}, below scaling.min, which is {least}.",
            f"Write `max: {least}` or more, or a smaller min.",
            (scaling.get("max") or scaling).at,
        )
        most = max(least, 1)
    return Scaling(least, most)


def _slo(node: Node | None, report: Report) -> Slo:
    if node is None:
        return Slo()
    return Slo(*(_milliseconds(node.get(key), key, report) for key in ("ttft_p99", "tpot_p99")))


def _milliseconds(node: Node | None, key: str, report: Report) -> int | None:
    duration = seconds(node)
    if node is None or not duration:
        return None
    if duration < 0 or duration * 1000 != int(duration * 1000):
        report.error(f"slo.{key} is {node.text}.", f"Write whole milliseconds: `{key}: 250ms`.", node.at)
        return None
    return int(duration * 1000)


def _capabilities(node: Node | None) -> Capabilities:
    if node is None:
        return Capabilities()
    return Capabilities(*(flag(node.get(key), False) for key in CAPABILITIES))


def _update(node: Node | None) -> Update:
    if node is None:
        return Update()
    strategy = node.get("strategy")
    return Update(
        UpdateStrategy(strategy.value) if strategy else UpdateStrategy.AUTO, whole(node.get("max_unavailable"), 1)
    )


def _profile_nodes(node: Node) -> list[Node]:
    profiles = node.get("profiles")
    return profiles.elements() if profiles else []


def _profiles(node: Node, model: str, report: Report) -> tuple[Profile, ...]:
    nodes = _profile_nodes(node)
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


def _profile(node: Node, report: Report) -> Profile:
    engine = text_of(node.get("engine"), "The engine", report, "vllm")
    gpu_class = optional_text(node.get("gpu_class"), "gpu_class", report)
    cpu_only = gpu_class is None and engine in CPU_CAPABLE_ENGINES
    tp, pp, nodes = (max(1, whole(node.get(key), 1)) for key in ("tp", "pp", "nodes"))
    per_node = whole(node.get("gpus_per_node"), 0)
    if cpu_only:
        per_node = 0
        _check_cpu_profile(node, nodes, report)
    elif per_node <= 0:
        per_node = max(1, tp * pp // nodes)
    if not cpu_only and per_node * nodes != tp * pp:
        report.error(
            f"gpus_per_node x nodes is {per_node} x {nodes}, but tp x pp is {tp} x {pp}.",
            "Make both products equal; leave gpus_per_node out to have it worked out.",
            node.key_at(next((k for k in ("gpus_per_node", "nodes", "tp", "pp") if node.get(k)), "name")),
        )
    timeout = seconds(node.get("startup_timeout"))
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


def _check_engine(model: Model, profile: Profile, node: Node, profile_node: Node, report: Report) -> None:
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
    for problem in engine.check(model, profile):
        root, _, field = problem.field.partition("model.")
        place = _place(node, field, problem) if field and not root else _place(profile_node, problem.field, problem)
        summary = problem.summary.rstrip(".") + "."
        report.error(summary, problem.detail, place.at)


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
