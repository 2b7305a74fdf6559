"""The cells that tools print: sizes, and the words that mean `no value`."""

from __future__ import annotations

import re

_NO_VALUE = frozenset(
    [
        "n/a",
        "not supported",
        "unknown error",
        "err!",
        "gpu is lost",
        "gpu requires reset",
        "insufficient permissions",
        "requested functionality has been deprecated",
        "not available",
        "none",
        "-",
        "",
    ]
)
_SHARED = frozenset({"n/a", "not supported"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def value(cell: str | None) -> str | None:
    """Return a cell's text, None where it stands for no value."""
    if cell is None:
        return None
    text = cell.strip()
    return None if text.strip("[]").strip().lower() in _NO_VALUE else text


def number(cell: str | None) -> int | None:
    """Return the whole number at the start of a cell (`81559 MiB`), None where it has no value."""
    text = value(cell)
    match = _NUMBER.match(text) if text else None
    return int(float(match[0])) if match else None


def sick(cell: str | None) -> str | None:
    """Return the health code that a cell stands for; most cells without a value say nothing about health."""
    text = (cell or "").lower()
    if "requires reset" in text or "requires a reset" in text:
        return "gpu_requires_reset"
    if "is lost" in text or "fallen off the bus" in text:
        return "gpu_lost"
    return "gpu_sensor_error" if "err!" in text else None


def shared_memory(cell: str | None) -> bool:
    """Return whether a memory cell says that the GPU has no memory of its own."""
    return cell is not None and cell.strip().strip("[]").strip().lower() in _SHARED


def json_part(text: str) -> str:
    """Return the text from the first `{` or `[` that starts a line on: tools print warnings before their JSON."""
    match = re.search(r"^\s*[\[{]", text, re.MULTILINE)
    return text[match.start() :] if match else ""
