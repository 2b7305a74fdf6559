"""What a JSON Schema has against a value, said to a person: the place, what was found, what to write instead."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from llmgwctl.config.nodes import Node
from llmgwctl.diagnostics import Diagnostic, error

_TYPES = {
    "object": "a mapping",
    "array": "a list",
    "string": "text",
    "boolean": "true or false",
    "null": "nothing",
    "integer": "a whole number",
    "number": "a number",
}
_KINDS = {"hosts": "host", "models": "model", "profiles": "profile", "running": "entry of running"}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HOST_NAMES = "letters, digits and . _ - : % + @, not beginning with . or -"


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `Did you mean …?`, or nothing where no option is near."""
    near = difflib.get_close_matches(word, list(options), n=1, cutoff=0.6)
    if not near:
        near = [o for o in options if o.lower() == word.lower()][:1]
    return f"Did you mean `{quoted(near[0])}`?" if near else ""


def one_of(options: Sequence[str]) -> str:
    """Return `a, b or c`."""
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def quoted(text: str) -> str:
    """Return a user's text on one line, shortened, so that it can stand in a message."""
    shown = text if len(text) <= 80 else text[:79] + "…"
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in shown)


def diagnostic_of(root: Node, problem: Any) -> Iterator[Diagnostic]:
    """Yield what one error of jsonschema means; unknown keys give one each."""
    for found in _words_of(root, problem):
        yield replace(found, summary=_entry(root, list(problem.absolute_path)) + found.summary)


def _words_of(root: Node, problem: Any) -> Iterator[Diagnostic]:
    path = list(problem.absolute_path)
    node, where = _find(root, path)
    schema, wanted = problem.schema, problem.validator_value
    secret = "env" in path  # a value here may be a secret, and must never be shown
    match problem.validator:
        case "additionalProperties":
            yield from _unknown_keys(node, schema, where, hidden=secret)
        case "required":
            key = problem.message.split("'")[1]
            subject = _subject(where, named=node.get("name") is not None)
            yield error(f"{subject} has no `{key}`.", _example(_property(schema, key), key), node.at)
        case "type":
            yield error(_wrong_type(node, where, wanted, hidden=secret), _example(schema, where[-1:]), node.at)
        case "enum":
            options = [str(option) for option in wanted]
            hint = did_you_mean(str(node.value), options) or f"Write {one_of(options)}."
            yield error(f"`{quoted(node.text)}` is no {where[-1]}: it is {one_of(options)}.", hint, node.at)
        case "pattern" if "propertyNames" in problem.absolute_schema_path:
            key = _variable(problem.instance) if secret else problem.instance
            form = "org:ID, team:ID or project:ID" if path[:1] == ["quotas"] or not where else "letters, digits and _"
            yield error(f"`{quoted(key)}` can't be a name here.", f"Write {form}.", node.key_at(problem.instance))
        case "pattern":
            shown = "The value" if secret else f"`{quoted(node.text)}`"
            yield error(f"{shown} can't be a `{_name(where)}`.", _form(schema, where, path), node.at)
        case "minLength" | "minItems" | "minProperties" if "from_env" not in schema.get("properties", {}):
            yield error(f"`{_name(where)}` is empty.", _example(schema, where[-1:]), node.at)
        case "minProperties" | "maxProperties":
            hint = "Write one of {from_env: NAME}, {from_file: PATH} and {from_command: [argv]}."
            yield error(f"`{_name(where)}` has to name exactly one source.", hint, node.at)
        case "minimum" | "exclusiveMinimum" | "maximum":
            bound = {"minimum": "at least", "exclusiveMinimum": "more than", "maximum": "at most"}[problem.validator]
            yield error(
                f"`{_name(where)}` is {quoted(node.text)}; it has to be {bound} {wanted}.",
                _example(schema, where[-1:]),
                node.at,
            )
        case "maxLength":
            yield error(f"`{_name(where)}` is longer than {wanted} characters.", "Shorten it.", node.at)
        case _:
            yield error(f"`{_name(where)}`: {problem.message}.", "", node.at)


def _entry(root: Node, path: Sequence[str | int]) -> str:
    """Return `Model m, profile p: `: the entries that have a name, outermost first."""
    words, node = [], root
    for depth, step in enumerate(path):
        node = node.value[step]
        name = node.get("name") if depth and isinstance(step, int) else None
        if name is not None and name.text:
            kind = _KINDS.get(str(path[depth - 1]), "entry")
            words.append(f"{kind} `{quoted(name.text)}`")
    text = ", ".join(words)
    return f"{text[0].upper()}{text[1:]}: " if text else ""


def _find(root: Node, path: Sequence[str | int]) -> tuple[Node, list[str]]:
    """Return the node at a path, and the path's words."""
    node = root
    words: list[str] = []
    for step in path:
        node = node.value[step]
        word = str(step) if isinstance(step, str) else f"[{step}]"
        words.append(_variable(word) if words[-1:] == ["env"] else word)
    return node, words


def _variable(key: str) -> str:
    """Return a variable's name; of `NAME=value`, written by mistake, no more than the name."""
    match = _VARIABLE.match(key)
    name = match[0] if match else ""
    return key if name == key else f"{name}…"


def _unknown_keys(node: Node, schema: Any, where: Sequence[str], *, hidden: bool) -> Iterator[Diagnostic]:
    known = list(schema.get("properties", {}))
    for key in node.value:
        if key in known:
            continue
        near = did_you_mean(key, known)
        shown = "Unknown key" if hidden and not near else f"Unknown key `{quoted(key)}`"
        place = f" in `{_name(where)}`" if where and not where[-1].startswith("[") else ""
        yield error(f"{shown}{place}.", near or f"Known here: {', '.join(known)}.", node.key_at(key))


def _wrong_type(node: Node, where: Sequence[str], wanted: str | list[str], *, hidden: bool) -> str:
    words = [wanted] if isinstance(wanted, str) else [w for w in wanted if w != "null"]
    found = _found(node, hidden=hidden)
    whole = " GPUs are given whole." if where and "gpus" in where[-1] and isinstance(node.value, float) else ""
    return f"`{_name(where)}` is {found}; it has to be {one_of([_TYPES[w] for w in words])}.{whole}"


def _found(node: Node, *, hidden: bool) -> str:
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    kind = "text" if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else "number"
    if isinstance(value, bool):
        return kind
    return kind if hidden else f"the {kind} {quoted(node.text)}"


def _example(schema: Any, key: Sequence[str] | str) -> str:
    examples = schema.get("examples") if isinstance(schema, dict) else None
    name = key if isinstance(key, str) else "".join(key)
    if not examples:
        return "Write one." if not name or name.startswith("[") else f"Write `{name}: …`."
    shown = _flow(examples[0])
    return (
        f"Write for example `{shown}`." if name.startswith("[") or not name else f"Write for example `{name}: {shown}`."
    )


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k}: {_flow(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_flow, value)) + "]"
    return value if isinstance(value, str) else json.dumps(value)


def _property(schema: Any, key: str) -> Any:
    return schema.get("properties", {}).get(key, {})


def _form(schema: Any, where: Sequence[str], path: Sequence[str | int]) -> str:
    if path[:1] == ["hosts"] and len(path) == 3 and path[2] == "name":
        return f"Host names are part of file names: write {_HOST_NAMES}."
    if where[-1] in ("owner", "parent"):
        return "Write org:ID, team:ID or project:ID, without blanks."
    if where[-1] in ("address", "listen", "jump", "user"):
        return f"It has no blanks and does not begin with `-`. {_example(schema, where[-1:])}"
    return _example(schema, where[-1:])


def _subject(where: Sequence[str], *, named: bool) -> str:
    if not where:
        return "This entry"
    if where[-1].startswith("[") and len(where) > 1:
        return "it" if named else f"This {_KINDS.get(where[-2], 'entry')}"
    return f"`{_name(where)}`"


def _name(where: Sequence[str]) -> str:
    """Return the last words of a path, from the entry (a host, a profile …) on."""
    words: list[str] = []
    for word in reversed(where):
        words.insert(0, word)
        if word.startswith("["):  # the index may be another than in the file, and the place says more anyway
            words[0] = _KINDS.get(where[len(where) - len(words) - 1], where[len(where) - len(words) - 1])
            if len(words) > 1:
                words.pop(0)
            break
    text = ".".join(words).replace(".[", "[")
    return quoted(text) or "this"
