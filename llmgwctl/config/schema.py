"""The configuration's JSON Schema: where it is, and what it says about a document."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import llmgwctl
from llmgwctl.config.accept import Accept, Acceptors
from llmgwctl.config.complaints import diagnostic_of
from llmgwctl.config.documents import Document
from llmgwctl.config.nodes import Node, plain
from llmgwctl.diagnostics import Diagnostic, error


def schema_path(name: str) -> Path:
    """Return the file of a schema (`config`, …), in a checkout or in an installed package."""
    package = Path(llmgwctl.__file__).parent
    inside = package / "schemas" / f"{name}.schema.json"
    return inside if inside.exists() else package.parent / "schemas" / f"{name}.schema.json"


def check_document(document: Document) -> list[Diagnostic]:
    """Return what the schema has against a file."""
    if document.root is None or _acceptors().root(document.root):
        return []
    return _explain(_rejected(document.root), _schema())


def accepts(node: Node, kind: str) -> bool:
    """Return whether one `host`, `model`, `quota` or `settings` is as the schema wants it."""
    return _acceptors().definition(kind)(node)


def check_entry(node: Node, kind: str) -> list[Diagnostic]:
    """Return what the schema has against one `host`, `model`, `quota` or `settings`."""
    if accepts(node, kind):
        return []
    schema = _schema()
    return _explain(node, {"$schema": schema["$schema"], "$defs": schema["$defs"], "$ref": f"#/$defs/{kind}"})


@cache
def _schema() -> Mapping[str, Any]:
    schema: Mapping[str, Any] = json.loads(schema_path("config").read_text(encoding="utf-8"))
    return schema


@cache
def _acceptors() -> Acceptors:
    return Acceptors(_schema())


def _rejected(root: Node) -> Node:
    """Return the document without the entries that are surely valid: jsonschema is slow."""
    acceptors = _acceptors()
    pruned = Node(dict(root.value), "", root.file, root.line, root.column)
    pruned.keys = root.keys
    for key, kind in (("hosts", "host"), ("models", "model"), ("quotas", "quota")):
        section = root.get(key)
        if section is not None and isinstance(section.value, (list, dict)):
            pruned.value[key] = _without_accepted(section, acceptors.definition(kind))
    return pruned


def _without_accepted(section: Node, accept: Accept) -> Node:
    kept = Node(None, "", section.file, section.line, section.column)
    kept.keys = section.keys
    if isinstance(section.value, list):
        kept.value = [node for node in section.value if not accept(node)]
    else:
        # A key may be what is wrong, so an accepted value stays as an empty one, which every quota may be.
        empty = Node(None, "", section.file, section.line, section.column)
        kept.value = {key: empty if accept(node) else node for key, node in section.value.items()}
    return kept


def _explain(node: Node, schema: Mapping[str, Any]) -> list[Diagnostic]:
    import jsonschema  # takes a tenth of a second to import, and a valid configuration never needs it

    validator = jsonschema.Draft202012Validator(schema)
    found = list(_diagnostics(node, validator.iter_errors(plain(node))))
    return found + [
        error("`.nan` is no number that can be used here.", "Write a number, or put the text into quotes.", n.at)
        for n in _not_numbers(node)
        if n.at not in {d.at for d in found}
    ]


def _not_numbers(node: Node) -> Iterator[Node]:
    """Yield what jsonschema takes for a number between any bounds, since .nan is neither below nor above them."""
    if isinstance(node.value, float) and math.isnan(node.value):
        yield node
    for child in [*node.elements(), *(child for _, child in node.items())]:
        yield from _not_numbers(child)


def _diagnostics(node: Node, errors: Any) -> Iterator[Diagnostic]:
    for problem in _once_each(errors):
        yield from diagnostic_of(node, problem)


def _once_each(errors: Iterable[Any]) -> Iterator[Any]:
    """Yield the errors without those that say again, in other words, that a value is of the wrong kind."""
    by_place: dict[tuple[str | int, ...], list[Any]] = {}
    for problem in errors:
        by_place.setdefault(tuple(problem.absolute_path), []).append(problem)
    for problems in by_place.values():
        telling = [p for word in ("enum", "type") for p in problems if p.validator == word][:1]
        yield from telling or problems
