"""A value read from a file, and the place where it was written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeGuard

from llmgwctl.diagnostics import SourceRange


class Node:
    """One value with its place.

    `value` is a scalar, a `dict[str, Node]` or a `list[Node]`. `text` is a scalar as it was written, without
    quotes. `keys` holds the place of each key of a mapping. Keys are always text, as written.
    A node without a file was not read from one (a runtime model): its place is None.
    """

    __slots__ = ("column", "file", "keys", "line", "text", "value")

    def __init__(self, value: Any, text: str, file: str, line: int, column: int) -> None:
        self.value = value
        self.text = text
        self.file = file
        self.line = line
        self.column = column
        self.keys: dict[str, tuple[str, int, int]] = {}

    @property
    def at(self) -> SourceRange | None:
        """The place of the value."""
        return SourceRange(self.file, self.line, self.column) if self.file else None

    def key_at(self, key: str) -> SourceRange | None:
        """Return the place of a key; the mapping's own place where it has no such key."""
        place = self.keys.get(key)
        return SourceRange(*place) if place else self.at

    def get(self, key: str) -> Node | None:
        """Return the value under a key; None where it is absent, empty or this is no mapping."""
        if type(self.value) is not dict:
            return None
        node: Node | None = self.value.get(key)
        return None if node is None or node.value is None else node

    def items(self) -> list[tuple[str, Node]]:
        """Return the entries of a mapping in the order written."""
        return list(self.value.items()) if type(self.value) is dict else []

    def elements(self) -> list[Node]:
        """Return the elements of a list."""
        return list(self.value) if type(self.value) is list else []


def plain(node: Node) -> Any:
    """Return the value without its places."""
    value = node.value
    if type(value) is dict:
        return {key: plain(child) for key, child in value.items()}
    if type(value) is list:
        return [plain(child) for child in value]
    return value


def node_of(value: object) -> Node:
    """Return a node without a place for a value that was not read from a file."""
    if isinstance(value, Mapping):
        return Node({str(key): node_of(child) for key, child in value.items()}, "", "", 0, 0)
    if _is_sequence(value):
        return Node([node_of(child) for child in value], "", "", 0, 0)
    return Node(value, _written(value), "", 0, 0)


def _is_sequence(value: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(value, (list, tuple))


def _written(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else str(value)
