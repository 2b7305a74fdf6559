"""Frozen dataclasses to JSON values and back, by their annotations."""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Callable, Collection, Mapping
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from llmgwctl.domain.catalog import SecretRef

T = TypeVar("T")

_QUOTED = 60
"""Of a value that does not fit, so many characters are shown."""


class CodecError(ValueError):
    """A value does not have the shape that its type says; the message begins with the path to it."""


def encode(value: Any) -> Any:
    """Return a value as JSON knows it; tuples become lists, enums their values, secret references one-key objects."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, SecretRef):
        return {value.kind: list(value.source) if value.kind == "from_command" else value.source[0]}
    if dataclasses.is_dataclass(value):
        return {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: encode(item) for key, item in value.items()}
    return [encode(item) for item in value]


def decode(kind: Callable[..., T], data: Any, path: str = "", *, strict: bool = False) -> T:
    """Return a value of a dataclass type; absent fields get their defaults.

    Unknown fields are let be, unless it is `strict`. Raises CodecError naming the place that does not fit.
    """
    return typing.cast(T, _decoder(kind, strict)(data, path))


@cache
def _decoder(kind: Any, strict: bool) -> Callable[[Any, str], Any]:
    """Return the decoder of one type; made once, because a state holds thousands of the same."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _dataclass_decoder(kind, strict)
    origin, args = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or kind is object:
        return lambda data, _path: data
    if origin in (typing.Union, types.UnionType):
        return _union_decoder(args, strict)
    if origin is tuple:
        return _tuple_decoder(args, strict)
    if origin in (dict, Mapping) or kind is Mapping:
        item = _decoder(args[1], strict) if args else _decoder(object, strict)
        return lambda data, path: {k: item(v, f"{path}.{k}") for k, v in _expect(data, dict, path).items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_decoder(kind)
    if kind is float:
        return lambda data, path: float(_expect(data, (int, float), path))
    if kind in (int, str, bool):
        return lambda data, path: _expect(data, kind, path)
    raise TypeError(f"no decoder for {kind!r}")


def _expect(data: Any, kind: Any, path: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind in (int, (int, float))):
        name = kind.__name__ if isinstance(kind, type) else "number"
        words = {
            "dict": "an object",
            "list": "a list",
            "str": "a text",
            "int": "a whole number",
            "bool": "true or false",
        }
        raise CodecError(f"{path or 'the document'} should be {words.get(name, 'a number')}, not {kind_of(data)}")
    return data


def kind_of(data: Any) -> str:
    """Return what a JSON value is, in words; short ones themselves."""
    if data is None or isinstance(data, bool):
        return {None: "null", True: "true", False: "false"}[data]
    if isinstance(data, dict | list):
        return "an object" if isinstance(data, dict) else "a list"
    text = repr(data)
    return text if len(text) <= _QUOTED else f"{text[:_QUOTED]}…"


def _dataclass_decoder(kind: type, strict: bool) -> Callable[[Any, str], Any]:
    if kind is SecretRef:
        return _secret_ref
    hints = typing.get_type_hints(kind)
    fields = [(f.name, hints[f.name], _is_required(f)) for f in dataclasses.fields(kind) if f.init]
    known = frozenset(name for name, _, _ in fields)
    decoders: list[tuple[str, Callable[[Any, str], Any], bool]] = []

    def decode_fields(data: Any, path: str) -> Any:
        if not decoders:  # made late, so that a type may hold itself
            decoders.extend((name, _decoder(hint, strict), required) for name, hint, required in fields)
        _expect(data, dict, path)
        if strict and not data.keys() <= known:
            raise CodecError(unknown_keys(data, known, path))
        values = {}
        for name, decoder, required in decoders:
            if name in data:
                values[name] = decoder(data[name], f"{path}.{name}" if path else name)
            elif required:
                raise CodecError(f"{path or 'the document'} lacks {name}")
        return kind(**values)

    return decode_fields


def unknown_keys(data: Mapping[str, Any], known: Collection[str], path: str) -> str:
    """Say which key is not known, and which may have been meant."""
    key = min(data.keys() - set(known))
    close = difflib.get_close_matches(key, known, n=1)
    return f"{path or 'the document'} has the unknown key {key!r}" + (f" (did you mean {close[0]!r}?)" if close else "")


def _is_required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _secret_ref(data: Any, path: str) -> SecretRef:
    if isinstance(data, dict) and len(data) == 1:
        kind, source = next(iter(data.items()))
        if kind in ("from_env", "from_file") and isinstance(source, str):
            return SecretRef(kind, (source,))
        if kind == "from_command" and isinstance(source, list) and source and all(isinstance(w, str) for w in source):
            return SecretRef(kind, tuple(source))
    raise CodecError(f"{path} should be a text, or one of from_env, from_file and from_command")


def _union_decoder(args: tuple[Any, ...], strict: bool) -> Callable[[Any, str], Any]:
    rest = [a for a in args if a is not type(None)]
    optional = len(rest) < len(args)
    if len(rest) == 1:
        inner = _decoder(rest[0], strict)
        return lambda data, path: None if data is None and optional else inner(data, path)
    if all(a in (int, float, str, bool) for a in rest):
        scalars = tuple(rest)
        return lambda data, path: data if (data is None and optional) else _expect(data, scalars, path)
    texts = str in rest
    others = [_decoder(a, strict) for a in rest if a is not str]

    def decode_union(data: Any, path: str) -> Any:
        if (data is None and optional) or (texts and isinstance(data, str)):
            return data
        return others[0](data, path)

    return decode_union


def _tuple_decoder(args: tuple[Any, ...], strict: bool) -> Callable[[Any, str], Any]:
    if len(args) == 2 and args[1] is Ellipsis:
        item = _decoder(args[0], strict)
        return lambda data, path: tuple(item(v, f"{path}[{i}]") for i, v in enumerate(_expect(data, list, path)))
    items = [_decoder(a, strict) for a in args]

    def decode_tuple(data: Any, path: str) -> Any:
        if len(_expect(data, list, path)) != len(items):
            raise CodecError(f"{path} should have {len(items)} entries")
        return tuple(item(v, f"{path}[{i}]") for i, (item, v) in enumerate(zip(items, data, strict=True)))

    return decode_tuple


def _enum_decoder(kind: type[Enum]) -> Callable[[Any, str], Any]:
    def decode_enum(data: Any, path: str) -> Any:
        try:
            return kind(data)
        except ValueError:
            known = ", ".join(str(m.value) for m in kind)
            raise CodecError(f"{path} is {kind_of(data)}, which is none of: {known}") from None

    return decode_enum
