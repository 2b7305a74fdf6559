"""The rules between models: names, aliases, fallbacks and owners."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

from llmgwctl.config.nodes import Node
from llmgwctl.config.reading import Report
from llmgwctl.config.wording import quoted
from llmgwctl.diagnostics import SourceRange

_SCOPE = re.compile(r"(?:org|team|project):[^\s:]+")
Entry = tuple[str, Node]
"""A model's name and its mapping."""


def check_names(entries: Iterable[Entry], taken: Collection[str], report: Report) -> set[str]:
    """Refuse aliases that are a model's name or claimed twice; return every name and alias.

    `taken` are the models' names. Names and aliases share one space: a collision would silently hide a model.
    """
    claims: dict[str, tuple[str, Node]] = {}
    for name, node in entries:
        about = report.about(f"Model `{quoted(name)}`")
        aliases = node.get("aliases")
        for alias in aliases.elements() if aliases else ():
            text = alias.text
            if not _is_name(alias):
                continue  # it has its error
            if text == name:
                about.error(f"the alias `{quoted(text)}` is its own name.", "Take the alias out.", alias.at)
            elif text in taken:
                about.error(f"the alias `{quoted(text)}` is another model's name.", "Write another alias.", alias.at)
            elif text in claims:
                other, first = claims[text]
                whose = "this model" if other == name else f"the model `{quoted(other)}`"
                about.error(
                    f"the alias `{quoted(text)}` is claimed by {whose} already, at {first.at or 'run time'}.",
                    "Take one of them out.",
                    alias.at,
                )
            else:
                claims[text] = (name, alias)
    return {*taken, *claims}


def check_references(entries: Iterable[Entry], names: Collection[str], scopes: Collection[str], report: Report) -> None:
    """Refuse fallbacks that name nothing, and owners that are not declared."""
    for name, node in entries:
        about = report.about(f"Model `{quoted(name)}`")
        fallbacks = node.get("fallbacks")
        for fallback in fallbacks.elements() if fallbacks else ():
            if _is_name(fallback) and fallback.text not in names:
                hint = about.did_you_mean(fallback.text, names) or "Write the name or an alias of a model."
                about.error(f"the fallback `{quoted(fallback.text)}` is no model.", hint, fallback.at)
        owner = node.get("owner")
        if owner is not None and _SCOPE.fullmatch(str(owner.value)) and owner.text not in scopes:
            hint = about.did_you_mean(owner.text, scopes) or f"Declare it: `{quoted(owner.text)}: {{}}` under `quotas`."
            about.error(f"the owner `{quoted(owner.text)}` is not declared.", hint, owner.at)


def check_seeds(hosts: Iterable[Entry], models: Mapping[str, Node], report: Report) -> None:
    """Warn of simulated replicas and faults that name no model or profile: they do nothing."""
    for host, node in hosts:
        simulate = node.get("simulate")
        if simulate is None:
            continue
        about = report.about(f"Host `{quoted(host)}`")
        running, failing = simulate.get("running"), simulate.get("fail_start")
        for entry in running.elements() if running else ():
            _check_seed(entry, models, about)
        for model in failing.elements() if failing else ():
            if model.text not in models:
                _warn_unknown("simulate.fail_start", model.text, models, model.at, about)


def _is_name(node: Node) -> bool:
    """Whether this can be a name at all; what can't has an error of its own."""
    return isinstance(node.value, str) and node.value == node.value.strip() != ""


def _check_seed(entry: Node, models: Mapping[str, Node], report: Report) -> None:
    replica, profile = entry.value["replica"], entry.value["profile"]
    model = models.get(replica.text.rpartition("/")[0])
    if model is None:
        _warn_unknown("simulate.running", replica.text.rpartition("/")[0], models, replica.at, report)
        return
    profiles = model.get("profiles")
    names = [p.value["name"].text for p in profiles.elements() if p.get("name")] if profiles else []
    if profile.text not in names:
        hint = report.did_you_mean(profile.text, names) or f"It has: {', '.join(map(quoted, names))}."
        report.warning(f"simulate.running: the model has no profile `{quoted(profile.text)}`.", hint, profile.at)


def _warn_unknown(key: str, name: str, models: Collection[str], at: SourceRange | None, report: Report) -> None:
    hint = report.did_you_mean(name, models) or "Unless it is added at run time, this does nothing."
    report.warning(f"{key}: the model `{quoted(name)}` is not declared.", hint, at)
