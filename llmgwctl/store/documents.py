"""JSON files read strictly: whatever Python's reader lets pass, or fails at, is one kind of problem."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from pathlib import Path
from typing import Any

LARGEST_BYTES = 1024 * 1024 * 1024
"""What a device or a pipe without an end may give before it is too much."""

_DIGITS = 18
_DEPTH = 100
_VERSION = re.compile(r"([0-9]{1,9})(?:\.([0-9]{1,9}))?(?:\.[0-9]{1,9})*", re.ASCII)


class DocumentError(ValueError):
    """A file holds no JSON that can be used; the message says why, without the file's name."""


def read_text(path: Path, *, regular: bool = False) -> str:
    """Return a file's text; `regular` refuses pipes and devices, before they are waited for.

    Raises FileNotFoundError, and DocumentError for everything else.
    """
    try:
        flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_NONBLOCK if regular else 0)
        with os.fdopen(os.open(path, flags), "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISDIR(mode):
                raise DocumentError("it is a directory")
            if regular and not stat.S_ISREG(mode):
                raise DocumentError("it is no regular file")
            content = file.read(LARGEST_BYTES + 1)
    except FileNotFoundError:
        raise
    except OSError as problem:
        raise DocumentError(problem.strerror or str(problem)) from None
    if len(content) > LARGEST_BYTES:
        raise DocumentError("it is larger than 1 GiB")
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as problem:
        raise DocumentError(f"byte {content[problem.start]:#04x} at offset {problem.start} is not UTF-8") from None


def parse(text: str) -> Any:
    """Return what a JSON text says. Raises DocumentError."""
    try:
        return json.loads(
            text, object_pairs_hook=_object, parse_constant=_constant, parse_int=_whole, parse_float=_number
        )
    except DocumentError:
        raise
    except RecursionError:
        raise DocumentError("it is nested too deeply") from None
    except ValueError as problem:
        raise DocumentError(str(problem)) from None


def version_of(value: object) -> tuple[int, int] | None:
    """Return a format version as numbers; None where it is none."""
    match = _VERSION.fullmatch(value) if isinstance(value, str) else None
    return (int(match[1]), int(match[2] or 0)) if match else None


def too_deep(value: object) -> bool:
    """Whether a value is nested so deeply that it could be read, and perhaps not be written again."""
    level = [value]
    for _ in range(_DEPTH):
        level = [child for item in level for child in _children(item)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise DocumentError(f"the key {double!r} stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise DocumentError(f"{name} is no number that JSON knows")


def _whole(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise DocumentError(f"the number {digits[:_DIGITS]}… is too large")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise DocumentError(f"the number {digits[:_DIGITS]} is too large")
    return value
