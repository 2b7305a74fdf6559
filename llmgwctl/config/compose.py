"""YAML text to nodes: libyaml's events, put together without recursion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

import yaml
from yaml import events

from llmgwctl.config.nodes import Node
from llmgwctl.config.scalars import core_scalar
from llmgwctl.diagnostics import Diagnostic, SourceRange, error
from llmgwctl.errors import ConfigError

DEPTH_LIMIT = 64
"""Levels of nesting; a configuration needs about ten."""

ALIASED_NODES_LIMIT = 200_000
"""Values that aliases may add to a file; a few lines of nested aliases can otherwise stand for billions."""


class UnreadableError(ConfigError):
    """The text stops making sense here; carries what to tell the user."""

    def __init__(self, diagnostic: Diagnostic) -> None:
        super().__init__([diagnostic])


def compose(text: str, file: str) -> tuple[Node | None, list[Diagnostic]]:
    """Return the text's one document (None where it is empty), and the duplicate keys that were passed over.

    Merge keys (`<<: *name`) are taken in as YAML 1.1 and ruamel do: what is written in the mapping itself wins, and
    the first of several merged mappings wins over the later ones. Raises UnreadableError.
    """
    composer = _Composer(file)
    try:
        for event in _parse(text):
            composer.take(event)
    except yaml.MarkedYAMLError as problem:
        raise UnreadableError(_syntax(problem, text, file)) from None
    except yaml.YAMLError as problem:
        raise UnreadableError(error(f"This is not YAML: {problem}.", at=SourceRange(file, 1, 1))) from None
    return composer.root, composer.diagnostics


def _parse(text: str) -> Iterator[Any]:
    if not yaml.__with_libyaml__:
        return iter(yaml.parse(text, Loader=yaml.SafeLoader))
    return iter(yaml.CLoader(text).get_event, None)


class _Open:
    """A mapping or list that is not finished."""

    __slots__ = ("anchor", "is_map", "key", "key_place", "merges", "node", "size_before")

    def __init__(self, node: Node, is_map: bool, anchor: str | None, size_before: int) -> None:
        self.node = node
        self.is_map = is_map
        self.anchor = anchor
        self.size_before = size_before
        self.key: str | None = None
        self.key_place = ("", 0, 0)
        self.merges: list[Node] = []


class _Composer:
    def __init__(self, file: str) -> None:
        self.file = file
        self.root: Node | None = None
        self.diagnostics: list[Diagnostic] = []
        self._stack: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int] | None] = {}
        self._size = 0
        self._documents = 0

    def take(self, event: Any) -> None:
        kind = type(event)
        if kind is events.ScalarEvent:
            self._scalar(event)
        elif kind is events.MappingStartEvent:
            self._open(event, {}, is_map=True)
        elif kind is events.SequenceStartEvent:
            self._open(event, [], is_map=False)
        elif kind is events.MappingEndEvent or kind is events.SequenceEndEvent:
            self._close()
        elif kind is events.AliasEvent:
            self._alias(event)
        elif kind is events.DocumentStartEvent:
            self._document(event)

    def _document(self, event: Any) -> None:
        self._documents += 1
        if self._documents > 1:
            self._stop(event, "A second document begins here.", "Put it into a file of its own, or remove the `---`.")
        if event.version and tuple(event.version) != (1, 2):
            self._stop(event, "Files are read as YAML 1.2.", "Remove the %YAML line.")

    def _scalar(self, event: Any) -> None:
        mark = event.start_mark
        line, column, text = mark.line + 1, mark.column + 1, event.value
        if "\0" in text:
            self._stop(event, "The text has a NUL character in it.", "Remove it; no program could be given such text.")
        top = self._stack[-1] if self._stack else None
        if top is not None and top.is_map and top.key is None:
            if event.anchor:
                self._anchors[event.anchor] = (Node(text, text, self.file, line, column), 1)
            top.key = "\0merge" if text == "<<" and event.implicit[0] else text
            top.key_place = (self.file, line, column)
            return
        self._size += 1
        value: object = core_scalar(text) if event.implicit[0] else text
        if event.tag is not None:
            self._stop_at_tag(event)
        node = Node(value, text, self.file, line, column)
        if event.anchor:
            self._anchors[event.anchor] = (node, 1)
        self._add(node)

    def _open(self, event: Any, value: Any, *, is_map: bool) -> None:
        top = self._stack[-1] if self._stack else None
        if top is not None and top.is_map and top.key is None:
            self._stop(event, "A key has to be text.", 'Text that begins with { or [ needs quotes: "{…}".')
        if len(self._stack) >= DEPTH_LIMIT:
            self._stop(event, f"This is nested more than {DEPTH_LIMIT} levels deep.", "No setting is so deep.")
        if event.tag is not None:
            self._stop_at_tag(event)
        mark = event.start_mark
        node = Node(value, "", self.file, mark.line + 1, mark.column + 1)
        if event.anchor:
            self._anchors[event.anchor] = None
        self._stack.append(_Open(node, is_map, event.anchor, self._size))
        self._size += 1

    def _close(self) -> None:
        done = self._stack.pop()
        for source in done.merges:
            for key, child in source.value.items():
                if key not in done.node.value:
                    done.node.value[key] = child
                    done.node.keys[key] = source.keys[key]
        if done.anchor:
            self._anchors[done.anchor] = (done.node, self._size - done.size_before)
        self._add(done.node)

    def _alias(self, event: Any) -> None:
        if event.anchor not in self._anchors:
            # Not quoted: it may be a password that begins with *.
            self._stop(
                event,
                "This alias refers to nothing.",
                "Write the same name with & before the value it means; text that begins with * needs quotes.",
            )
        target = self._anchors[event.anchor]
        if target is None:
            self._stop(event, f"*{event.anchor} contains itself.", "Write out what is meant.")
        node, size = target
        top = self._stack[-1] if self._stack else None
        if top is not None and top.is_map and top.key is None:
            if not isinstance(node.value, str):
                self._stop(event, "A key has to be text.", "Write out the key.")
            top.key = node.value
            top.key_place = (self.file, event.start_mark.line + 1, event.start_mark.column + 1)
            return
        self._size += size
        if size > 1 and self._size > ALIASED_NODES_LIMIT + event.start_mark.index:
            self._stop(
                event,
                f"With *{event.anchor} the aliases stand for more than {ALIASED_NODES_LIMIT} values.",
                "Write out what is meant.",
            )
        self._add(node)

    def _add(self, node: Node) -> None:
        if not self._stack:
            self.root = node
            return
        top = self._stack[-1]
        if not top.is_map:
            top.node.value.append(node)
            return
        key, top.key = top.key, None
        if key is None:  # cannot be: a container in key position was refused when it was opened
            return
        if key == "\0merge":
            self._merge(top, node)
        elif key in top.node.value:
            first = SourceRange(*top.node.keys[key])
            self.diagnostics.append(
                error(
                    f"The key `{key}` is written twice; first at {first}.", "Remove one.", SourceRange(*top.key_place)
                )
            )
        else:
            top.node.value[key] = node
            top.node.keys[key] = top.key_place

    def _merge(self, top: _Open, node: Node) -> None:
        sources = node.value if type(node.value) is list else [node]
        for source in sources:
            if type(source.value) is not dict:
                raise UnreadableError(
                    error(
                        "`<<` takes in the entries of another mapping.",
                        "Write `<<: *name`, where &name stands before a mapping.",
                        SourceRange(*top.key_place),
                    )
                )
        top.merges.extend(sources)

    def _stop_at_tag(self, event: Any) -> NoReturn:
        # Not quoted: it may be a password that begins with !.
        self._stop(
            event,
            "This tag means nothing here.",
            "Remove it; text that begins with ! needs quotes, and so does text that looks like a number.",
        )

    def _stop(self, event: Any, summary: str, detail: str) -> NoReturn:
        mark = event.start_mark
        raise UnreadableError(error(summary, detail, SourceRange(self.file, mark.line + 1, mark.column + 1)))


def _syntax(problem: yaml.MarkedYAMLError, text: str, file: str) -> Diagnostic:
    """Say a syntax error in plain words where its cause is clear."""
    mark = problem.problem_mark or problem.context_mark
    line, column = (mark.line, mark.column) if mark else (0, 0)
    words = problem.problem or "it ends too early"
    lines = text.split("\n")
    written = lines[line] if line < len(lines) else ""
    place = SourceRange(file, line + 1, column + 1)
    character = written[column : column + 1]
    if "\t" in written[: column + 1] and "cannot start any token" in words:
        column = written.index("\t")
        place = SourceRange(file, line + 1, column + 1)
        return error("A tab is used to indent.", "YAML takes only spaces: use two for each level.", place)
    if "cannot start any token" in words:
        return error(f"Text can't begin with {character}.", f'Put it in quotes: "{character}…".', place)
    if "mapping values are not allowed" in words:
        return error(
            "A `key: value` can't begin here.",
            "Check the indentation, or put text that has a colon and a blank in it into quotes.",
            place,
        )
    context = f" ({problem.context})" if problem.context else ""
    hint = "Check the indentation, quotes and brackets at this place and in the lines above it."
    return error(f"This is not valid YAML: {words}{context}.", hint, place)
