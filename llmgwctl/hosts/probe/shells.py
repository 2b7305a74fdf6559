"""Tells a payload from what login shells print around it."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Polluted:
    """Output with noise before it: `banner` is the noise, `payload` the rest."""

    banner: tuple[str, ...]
    payload: tuple[str, ...]


_MARKER = re.compile(r"^_{2,}[A-Z_]+_{2,}$|^[-=#]{3,}\s?BEGIN\b.*$|^<<<.*>>>$")
_GPU_LINE = re.compile(r"^GPU \d+: |^\|\s*NVIDIA-SMI|^\d+, \S")


def split_banner(text: str) -> Polluted:
    """Split at a marker; without one at the first line that looks like a tool's answer."""
    lines = [line for line in text.splitlines() if line.strip()]
    for place, line in enumerate(lines):
        if _MARKER.match(line.strip()):
            return Polluted(tuple(lines[:place]), tuple(lines[place + 1 :]))
    for place, line in enumerate(lines):
        if _GPU_LINE.match(line):
            return Polluted(tuple(lines[:place]), tuple(lines[place:]))
    return Polluted(tuple(lines), ())
