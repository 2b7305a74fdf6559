"""What a JSON Schema has against a value, said to a person: the place, what was found, what to write instead."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from llmgwctl.config.nodes import Node
from llmgwctl.config.scalars import LONGEST_NUMBER, core_scalar
from llmgwctl.config.wording import did_you_mean, one_of, quoted
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
_UNITS = "(us|ms|s|m|h|d)"
_UNSIGNED = re.compile(r"[0-9]{1,30}(?:\.[0-9]+)?")
_DECIMAL = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?")
_HOST_NAMES = "letters, digits and . _ - : % + @, not beginning with . or -"


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
            hint = _quotes(node, schema, where, hidden=secret) or _example(schema, where[-1:])
            yield error(_wrong_type(node, where, schema, hidden=secret), hint, node.at)
        case "enum":
            options = [str(option) for option in wanted]
            hint = did_you_mean(str(node.value), options) or f"Write {one_of(options)}."
            yield error(f"`{quoted(node.text)}` is no {where[-1]}: it is {one_of(options)}.", hint, node.at)
        case "pattern" if "propertyNames" in problem.absolute_schema_path:
            key = _variable(problem.instance) if secret else problem.instance
            form = "org:ID, team:ID or project:ID" if path[:1] == ["quotas"] or not where else "letters, digits and _"
            yield error(f"`{quoted(key)}` can't be a name here.", f"Write {form}.", node.key_at(problem.instance))
        case "pattern" if node.value == "" and not secret:
            yield error(f"`{_name(where)}` is empty.", _form(schema, where, path), node.at)
        case "pattern" | "maximum" if _is_duration(schema) and _UNSIGNED.fullmatch(node.text):
            hint = f"Write `{where[-1]}: {quoted(node.text)}s`, or with another unit: us, ms, m, h or d."
            yield error(f"`{_name(where)}` is {quoted(node.text)}, without a unit.", hint, node.at)
        case "maximum" if _is_duration(schema):
            yield error(f"`{quoted(node.text)}` can't be the `{_name(where)}`.", _example(schema, where[-1:]), node.at)
        case "pattern":
            shown = "The value" if secret else f"`{quoted(node.text)}`"
            yield error(f"{shown} can't be the `{_name(where)}`.", _form(schema, where, path), node.at)
        case "minLength" | "minItems" | "minProperties" if "from_env" not in schema.get("properties", {}):
            yield error(f"{_what(where)} is empty.", _example(schema, where[-1:]), node.at)
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


def _wrong_type(node: Node, where: Sequence[str], schema: Any, *, hidden: bool) -> str:
    wanted = schema["type"]
    words = [wanted] if isinstance(wanted, str) else [w for w in wanted if w != "null"]
    found = _found(node, hidden=hidden)
    of_gpus = bool(where) and ("gpus" in where[-1] or where[-2:-1] == ["gpu_classes"])
    whole = " GPUs are given whole." if of_gpus and isinstance(node.value, float) else ""
    kinds = "a time with a unit" if _is_duration(schema) else one_of([_TYPES[w] for w in words])
    return f"{_what(where)} is {found}; it has to be {kinds}.{whole}"


def _found(node: Node, *, hidden: bool) -> str:
    value = node.value
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        if len(value) > LONGEST_NUMBER and _DECIMAL.fullmatch(value):
            return f"a number of {len(value)} characters"
        return "text" if hidden else f"the text {quoted(node.text)}"
    return "a number" if hidden else f"the number {quoted(node.text)}"


def _quotes(node: Node, schema: Any, where: Sequence[str], *, hidden: bool) -> str:
    """Return what to do where only quotes are missing, or too many; nothing where it is something else."""
    wanted = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    key = "" if where[-1:] == [] or where[-1].startswith("[") else f"{where[-1]}: "
    if isinstance(node.value, (bool, int, float)) and "string" in wanted:
        if not re.search(schema.get("pattern", ""), node.text) or "enum" in schema:
            return ""
        return "Put it into quotes." if hidden else f'Put it into quotes: `{key}"{quoted(node.text)}"`.'
    if isinstance(node.value, str) and not hidden:
        meant = core_scalar(node.value)
        kinds = {bool: "boolean", int: "integer", float: "number"}
        kind = kinds.get(type(meant), "")
        if kind in wanted or (kind == "integer" and "number" in wanted):
            return f"Take the quotes off: `{key}{quoted(node.value)}`."
    return ""


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
    if where[-1] == "replica_dir":
        return f"It is the whole path of a folder of its own, without `.` and `..`. {_example(schema, where[-1:])}"
    if where[-1] in ("address", "listen", "jump", "user"):
        return f"It has no blanks and does not begin with `-`. {_example(schema, where[-1:])}"
    return _example(schema, where[-1:])


def _subject(where: Sequence[str], *, named: bool) -> str:
    if not where:
        return "This entry"
    if where[-1].startswith("[") and len(where) > 1:
        return "it" if named else f"This {_KINDS.get(where[-2], 'entry')}"
    return f"`{_name(where)}`"


def _is_duration(schema: Any) -> bool:
    return _UNITS in schema.get("pattern", "")


def _what(where: Sequence[str]) -> str:
    """Return what a value is: the key that it is under, or one of the list under it."""
    in_list = len(where) > 1 and where[-1].startswith("[") and where[-2] not in _KINDS
    return f"{'One of ' if in_list else ''}`{_name(where)}`"


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
