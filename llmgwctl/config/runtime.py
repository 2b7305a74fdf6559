"""What was added at run time, beside what is declared: the declaration wins every conflict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from llmgwctl.config.catalog import check_names, check_references
from llmgwctl.config.models import model_of
from llmgwctl.config.nodes import Node, node_of
from llmgwctl.config.quotas import check_tree, quota_of
from llmgwctl.config.reading import Report
from llmgwctl.config.schema import accepts, check_entry
from llmgwctl.config.wording import quoted
from llmgwctl.diagnostics import Diagnostic, warning
from llmgwctl.domain.catalog import Model, Origin
from llmgwctl.domain.desired import Desired
from llmgwctl.domain.tenancy import Quota, scope_level
from llmgwctl.errors import ConfigError

_LEVELS = {"org": 0, "team": 1, "project": 2}


def with_runtime(desired: Desired, models: Mapping[str, object], quotas: Mapping[str, object]) -> Desired:
    """Return a declaration with the state's runtime models and quotas (name or scope to definition).

    What no longer fits is left out with a warning that names it: one bad entry must not take a good one with it,
    and never a declared one.
    """
    left_out: list[Diagnostic] = []
    found = replace(desired, quotas=_quotas(desired, quotas, left_out))
    waiting = dict(sorted(models.items()))
    while waiting:  # a fallback may name another runtime model, so go round until nothing more fits
        problems: dict[str, ConfigError] = {}
        for name, definition in waiting.items():
            try:
                model = model_from_mapping(name, definition if isinstance(definition, Mapping) else {}, found)
            except ConfigError as problem:
                problems[name] = problem
                continue
            found = replace(found, models=tuple(sorted((*found.models, model), key=lambda m: m.name)))
        if len(problems) == len(waiting):
            for name, refusal in problems.items():
                why = refusal.diagnostics[0].summary
                left_out.append(
                    warning(f"The model `{quoted(name)}`, added at run time, is left out.", f"{why} Remove or mend it.")
                )
            break
        waiting = {name: waiting[name] for name in problems}
    return replace(found, diagnostics=(*desired.diagnostics, *left_out))


def model_from_mapping(name: str, mapping: Mapping[str, object] | Node, beside: Desired) -> Model:
    """Return the model that one entry describes which is not in the files (`model add`, the state's runtime models).

    It has to fit beside the models and quotas of `beside`, runtime ones included; it may replace a runtime model of
    its own name. A profile without a GPU has to say how much memory it takes. Raises ConfigError.
    """
    node = mapping if isinstance(mapping, Node) else node_of({**mapping, "name": mapping.get("name", name)})
    report = Report()
    report.diagnostics += check_entry(node, "model")
    if not report.diagnostics:
        model = _runtime_model(node, beside, report)
        if not report.failed:
            return model
    raise ConfigError(report.sorted())


def _runtime_model(node: Node, beside: Desired, report: Report) -> Model:
    model = model_of(node, report, Origin.RUNTIME)
    about = report.about(f"Model `{quoted(model.name)}`")
    others = [m for m in beside.models if m.name != model.name or m.origin is Origin.DECLARED]
    for other in others:
        if other.name == model.name:
            where = f", at {other.at}" if other.at else ""
            about.error(
                f"it is declared in the configuration{where}.", "Edit it there, or choose another name.", node.at
            )
        elif model.name in other.aliases:
            about.error(f"its name is an alias of the model `{quoted(other.name)}`.", "Choose another.", node.at)
    for profile in model.profiles:
        if profile.cpu_only and not profile.memory_mib:
            about.error(
                f"profile `{quoted(profile.name)}`: it runs without a GPU and says nothing of memory.",
                "Write min_memory_gb: without it nobody can tell when a host is full.",
                node.at,
            )
    claimed = [(m.name, node_of({"aliases": list(m.aliases)})) for m in others]
    names = check_names([*claimed, (model.name, node)], {m.name for m in (*others, model)}, report)
    check_references([(model.name, node)], names, {q.scope for q in beside.quotas}, report)
    return model


def _quotas(desired: Desired, added: Mapping[str, object], left_out: list[Diagnostic]) -> tuple[Quota, ...]:
    quotas = {q.scope: q for q in desired.quotas}
    nodes = {q.scope: node_of({}) for q in desired.quotas}
    # Parents before children, so that each is checked against what is already in.
    for scope in sorted(added, key=lambda s: (_LEVELS.get(scope_level(s), len(_LEVELS)), s)):
        node = node_of(added[scope])
        report = Report()
        if scope in quotas:
            why = "it is declared in the configuration."
        elif scope_level(scope) not in _LEVELS or not accepts(node, "quota"):
            why = "it is no quota."
        else:
            candidate = {**quotas, scope: quota_of(scope, node, None)}
            check_tree(candidate, candidate, {**nodes, scope: node}, report)
            if not report.failed:
                quotas, nodes = candidate, {**nodes, scope: node}
                continue
            why = next(d.summary for d in report.diagnostics)
        left_out.append(warning(f"The quota of `{quoted(scope)}`, set at run time, is left out.", f"{why} Unset it."))
    return tuple(sorted(quotas.values(), key=lambda q: q.scope))
