"""One model of the YAML, to the noun of the catalog."""

from __future__ import annotations

from llmgwctl.config.nodes import Node
from llmgwctl.config.profiles import check_engine, profile_nodes, profiles_of
from llmgwctl.config.reading import Report, duration, flag, optional_text, optional_whole, text_of, texts_of, whole
from llmgwctl.config.wording import quoted
from llmgwctl.domain.catalog import (
    Capabilities,
    Model,
    ModelClass,
    Origin,
    Scaling,
    Slo,
    Update,
    UpdateStrategy,
)

LONGEST_LATENCY_S = 24 * 3600
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
        profiles=profiles_of(node, name, report),
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
    for profile, profile_node in zip(model.profiles, profile_nodes(node), strict=True):
        check_engine(model, profile, node, profile_node, report)
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
    latency_s = duration(node, f"slo.{key}", LONGEST_LATENCY_S, report)
    if node is None or not latency_s:
        return None
    if latency_s < 0 or latency_s * 1000 != int(latency_s * 1000):
        report.error(f"slo.{key} is {quoted(node.text)}.", f"Write whole milliseconds: `{key}: 250ms`.", node.at)
        return None
    return int(latency_s * 1000)


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
