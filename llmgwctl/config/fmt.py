"""The normal form of a YAML file: even indentation and blank lines; comments, quotes, order and meaning stay."""

from __future__ import annotations

import io
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import ScalarNode
from ruamel.yaml.resolver import BaseResolver
from ruamel.yaml.scalarstring import ScalarString
from ruamel.yaml.tag import Tag

from llmgwctl.config.documents import read_text, unified_line_ends
from llmgwctl.config.layout import comments, tidied, with_comments_along
from llmgwctl.config.nodes import plain
from llmgwctl.config.scalars import core_scalar
from llmgwctl.diagnostics import SourceRange, error
from llmgwctl.errors import ConfigError

_UNWRAPPED = 1 << 30
_ROUNDS = 4
_NULL, _MERGE = "tag:yaml.org,2002:null", "tag:yaml.org,2002:merge"


def format_text(text: str, filename: str) -> str:
    """Return a file's text in its normal form; the normal form of that is the same text.

    Two spaces a level, lists indented by two, at most one blank line in a row, none trailing, line ends without
    CR, no byte order mark. Raises ConfigError where the file can't be read, or where the normal form would lose a
    comment or mean something else.
    """
    text = unified_line_ends(text.removeprefix("\ufeff"))
    before = read_text(text, filename)
    if before.root is None:
        return tidied(text)
    try:
        formatted = _fixed_point(text, filename)
    except ConfigError:
        raise
    except Exception as problem:  # ruamel raises whatever it likes on text that libyaml takes
        raise _refusal(f"The file can't be formatted: {type(problem).__name__}.", filename) from problem
    try:
        after = read_text(formatted, filename)
    except ConfigError:
        raise _refusal("Formatting would break the file.", filename) from None
    if after.root is None or repr(plain(after.root)) != repr(plain(before.root)):
        raise _refusal("Formatting would change what the file means.", filename)
    _check_comments(text, formatted, filename)
    return formatted


def round_trip() -> YAML:
    """Return ruamel's reader and writer as used here: every scalar without quotes is text, kept as it was written.

    So nothing is reformatted (`1_000`, `0o17`, `1.50`, `~`), and what a scalar means is said in one place only,
    `scalars.core_scalar`.
    """
    reader = YAML(typ="rt")
    reader.Resolver = _TextOnly
    reader.preserve_quotes = True
    reader.width = _UNWRAPPED
    reader.allow_duplicate_keys = False
    reader.indent(mapping=2, sequence=4, offset=2)
    return reader


def value_of(read: Any) -> Any:
    """Return what `round_trip().load()` gave, as the plain value that the quick reader gives for the same text."""
    if isinstance(read, dict):
        return {str(key): value_of(child) for key, child in read.items()}
    if isinstance(read, list):
        return [value_of(child) for child in read]
    if isinstance(read, ScalarString) and not type(read).__name__.startswith("Plain"):
        return str(read)
    return core_scalar("" if read is None else str(read))


class _TextOnly(BaseResolver):
    """Takes every scalar for text, but for an empty one without quotes."""

    def __init__(self, version: Any = None, loader: Any = None, loadumper: Any = None) -> None:
        super().__init__(loadumper or loader)

    @property
    def processing_version(self) -> tuple[int, int]:
        return (1, 2)

    @property
    def versioned_resolver(self) -> dict[Any, Any]:
        return {}

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:
        if kind is ScalarNode and implicit[0] and value == "":
            return Tag(suffix=_NULL)
        if kind is ScalarNode and implicit[0] and value == "<<":
            return Tag(suffix=_MERGE)
        return super().resolve(kind, value, implicit)


def _fixed_point(text: str, filename: str) -> str:
    """Return the normal form that is its own; ruamel may need a second round for where a comment goes."""
    for _ in range(_ROUNDS):
        formatted = _normal(text)
        if formatted == text:
            return formatted
        text = formatted
    raise _refusal("Formatting finds no end.", filename)


def _normal(text: str) -> str:
    reader = round_trip()
    out = io.StringIO()
    reader.dump(reader.load(text), out)
    return tidied(with_comments_along(out.getvalue(), text))


def _check_comments(before: str, after: str, filename: str) -> None:
    kept = [comment for _, comment in comments(after)]
    for line, comment in comments(before):
        if comment in kept:
            kept.remove(comment)
            continue
        raise ConfigError(
            [
                error(
                    "Formatting would lose this comment.",
                    "Write it on a line of its own above the entry, or write the {…} or […] around it over several "
                    "lines with `-` and `key:`.",
                    SourceRange(filename, line, 1),
                )
            ]
        )


def _refusal(summary: str, filename: str) -> ConfigError:
    return ConfigError([error(summary, "It is left as it is.", SourceRange(filename, 1, 1))])
