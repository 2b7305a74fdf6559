"""Reads `df`."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Filesystem:
    """One line of `df`; `rough` where the sizes were rounded for people (`df -h`)."""

    device: str
    path: str
    size_kib: int
    available_kib: int
    rough: bool = False


# From the right, because the header is translated and a device's name may hold blanks.
_ROW = re.compile(r"^(.*?)\s+(\d[\d.,]*[KMGTPE]?i?)\s+(\S+)\s+(-?[\d.,]+[KMGTPE]?i?)\s+(\d+%|-)\s+(/.*)$")
_UNITS = {"": 1, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4, "E": 1024**5}


def read_df(text: str) -> tuple[Filesystem, ...]:
    """Read `df`, whatever the language of its header; plain numbers are KiB. A long device name may break its line."""
    found = []
    before = ""
    for line in text.splitlines():
        match = _ROW.match(before + " " + line.strip() if before else line)
        before = line.strip() if not match and line.strip() and len(line.split()) == 1 else ""
        if match:
            rough = bool(re.search(r"[KMGTPE]", match[2] + match[4]))
            found.append(Filesystem(match[1].strip(), match[6].rstrip(), _kib(match[2]), _kib(match[4]), rough))
    return tuple(found)


def _kib(text: str) -> int:
    match = re.fullmatch(r"(-?[\d.,]+)([KMGTPE]?)i?", text)
    return round(float(match[1].replace(",", ".")) * _UNITS[match[2]]) if match else 0
