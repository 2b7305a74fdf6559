"""All files together, to what is asked for: every rule is checked, and everything that is wrong is told at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llmgwctl.config.catalog import Entry, check_names, check_references, check_seeds
from llmgwctl.config.documents import Document, Documents, cycles_uncollected
from llmgwctl.config.hosts import host_of
from llmgwctl.config.machines import check_machines
from llmgwctl.config.models import model_of
from llmgwctl.config.nodes import Node
from llmgwctl.config.quotas import check_tree, check_use, quota_of
from llmgwctl.config.reading import Report, unique
from llmgwctl.config.schema import accepts, check_document
from llmgwctl.config.settings import settings_of
from llmgwctl.config.wording import quoted
from llmgwctl.diagnostics import SourceRange
from llmgwctl.domain.desired import Connection, Desired, Host, Settings
from llmgwctl.errors import ConfigError


def resolve(documents: Documents) -> Desired:
    """Return what the files ask for, sorted by name, with warnings in `diagnostics`.

    Raises ConfigError with everything that is wrong, warnings included, sorted by place.
    """
    with cycles_uncollected():
        return _resolve(documents)


def _resolve(documents: Documents) -> Desired:
    report = Report(list(documents.problems))
    for document in documents.files:
        report.diagnostics += check_document(document)
    host_entries, model_entries = _named(documents, "hosts", report), _named(documents, "models", report)
    scopes, scope_places = _scopes(documents, report)
    if documents.problems:  # what could not be read may be what the rest refers to
        raise ConfigError(report.sorted())

    hosts = [host_of(node, report) for _, node in host_entries if accepts(node, "host")]
    models = [model_of(node, report) for _, node in model_entries if accepts(node, "model")]
    quotas = {s: quota_of(s, node, scope_places[s]) for s, node in sorted(scopes.items()) if accepts(node, "quota")}

    # By name, so that which of two claims counts as the first does not depend on the order of files.
    names = check_names(sorted(model_entries, key=lambda e: e[0]), {name for name, _ in model_entries}, report)
    check_references(model_entries, names, scopes, report)
    check_seeds([e for e in host_entries if accepts(e[1], "host")], dict(model_entries), report)
    _check_jumps(hosts, dict(host_entries), report)
    check_tree(quotas, scopes, scopes, report)
    settings = _settings(documents, report)
    check_machines(hosts, dict(host_entries), settings.ssh.port, report)
    if not report.failed:  # what a rejected model would have used is not known
        check_use(quotas, models, scopes, report)
    else:
        raise ConfigError(report.sorted())
    return Desired(
        hosts=tuple(sorted(hosts, key=lambda h: h.name)),
        models=tuple(sorted(models, key=lambda m: m.name)),
        quotas=tuple(quotas.values()),
        settings=settings,
        diagnostics=report.sorted(),
    )


def _sections(documents: Documents, key: str) -> Iterator[tuple[Document, Node]]:
    for document in documents.files:
        section = document.root.get(key) if document.root else None
        if section is not None:
            yield document, section


def _named(documents: Documents, key: str, report: Report) -> list[Entry]:
    """Return the entries that have a name, once each; a name defined twice is an error that names both places."""
    entries = [
        (node.value["name"].value, node)
        for _, section in _sections(documents, key)
        for node in section.elements()
        if node.get("name") and isinstance(node.value["name"].value, str)
    ]
    first, again = unique(entries)
    kind = key.removesuffix("s")
    for name, node, other in again:
        report.error(
            f"The {kind} `{quoted(name)}` is declared twice; first at {other.value['name'].at}.",
            "Remove one, or give it another name.",
            node.value["name"].at,
        )
    return list(first.items())


def _scopes(documents: Documents, report: Report) -> tuple[dict[str, Node], dict[str, SourceRange | None]]:
    entries: dict[str, Node] = {}
    places: dict[str, SourceRange | None] = {}
    for _, section in _sections(documents, "quotas"):
        for scope, node in section.items():
            if scope in entries:
                report.error(
                    f"The quota `{quoted(scope)}` is declared twice; first at {places[scope]}.",
                    "Put both into one entry.",
                    section.key_at(scope),
                )
            elif scope.startswith(("org:", "team:", "project:")):
                entries[scope] = node
                places[scope] = section.key_at(scope)
    return entries, places


def _settings(documents: Documents, report: Report) -> Settings:
    found = list(_sections(documents, "settings"))
    for document, _ in found[1:]:
        first, again = found[0][0].root, document.root
        if first and again:
            report.error(
                f"Settings are written twice; first at {first.key_at('settings')}.",
                "Put them into one file.",
                again.key_at("settings"),
            )
    if found and accepts(found[0][1], "settings"):
        return settings_of(found[0][1], report)
    return Settings()


def _check_jumps(hosts: list[Host], entries: Mapping[str, Node], report: Report) -> None:
    """Warn of a jump host that is nearly a declared host's name, and refuse jumps in a circle."""
    by_name = {h.name: h for h in hosts}
    for host in hosts:
        if host.jump is None or host.jump == host.name:
            continue
        about, place = report.about(f"Host `{quoted(host.name)}`"), entries[host.name].value["jump"].at
        if host.connection is not Connection.SSH:
            about.warning(f"jump means nothing where connection is {host.connection.value}.", "Take it out.", place)
        if host.jump not in by_name and "@" not in host.jump and "." not in host.jump:
            if hint := about.did_you_mean(host.jump, [n for n in by_name if n != host.name]):
                about.warning(f"the jump host `{quoted(host.jump)}` is not declared.", hint, place)
            continue
        walked = [host.name]
        while (step := by_name.get(walked[-1])) is not None and step.jump is not None and step.jump not in walked:
            walked.append(step.jump)
        if step is not None and step.jump == host.name and len(walked) > 1:
            about.error(
                f"it jumps in a circle: {' -> '.join(map(quoted, [*walked, host.name]))}.", "Take one jump out.", place
            )
