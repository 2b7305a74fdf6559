"""Reads processors, memory and control groups."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

NO_LIMIT = 0x7FFFFFFFFFFFF000
"""The kernel's way to say `no limit` in a v1 control group (the largest page-aligned number)."""


@dataclass(frozen=True, slots=True)
class Cpuinfo:
    processors: int
    sockets: int
    model: str
    flags: frozenset[str]


def read_cpuinfo(text: str) -> Cpuinfo:
    """Read /proc/cpuinfo; ARM names no model, and has `Features`."""
    count, sockets, model, flags = 0, set(), "", frozenset[str]()
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if not colon:
            continue
        name, rest = name.strip(), rest.strip()
        if name == "processor" and rest.isdigit():
            count += 1
        elif name == "physical id":
            sockets.add(rest)
        elif name == "model name" and not model:
            model = rest
        elif name in ("flags", "Features") and not flags:
            flags = frozenset(rest.split())
    return Cpuinfo(count, len(sockets), model, flags)


def read_lscpu(text: str) -> dict[str, str]:
    """Read lscpu's lines, or its JSON (nested in newer versions)."""
    if text.lstrip().startswith("{"):
        try:
            entries = json.loads(text).get("lscpu", [])
        except (ValueError, AttributeError):
            return {}
        found: dict[str, str] = {}
        while entries:
            entry = entries.pop(0)
            found.setdefault(str(entry.get("field", "")).rstrip(": "), str(entry.get("data") or ""))
            entries[:0] = entry.get("children", [])
        return found
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): rest.strip() for name, colon, rest in pairs if colon}


def decimal(text: str | None) -> float | None:
    """Return a number whose decimal sign may be a comma."""
    try:
        return float((text or "").replace(",", "."))
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class Meminfo:
    """Sizes in kB as printed; `hugetlb_kb` is what huge pages of every size keep from ordinary use."""

    total_kb: int | None
    available_kb: int | None
    swap_kb: int | None = None
    hugepages: int | None = None
    hugepage_kb: int | None = None
    hugetlb_kb: int = 0

    @property
    def ordinary_kb(self) -> int | None:
        """What is left of the total for ordinary memory."""
        return None if self.total_kb is None else max(0, self.total_kb - self.hugetlb_kb)


def read_meminfo(text: str) -> Meminfo:
    """Read /proc/meminfo, whole or cut."""
    return meminfo_of({n.strip(): r for n, c, r in (line.partition(":") for line in text.splitlines()) if c})


def meminfo_of(cells: Mapping[str, str]) -> Meminfo:
    """Read /proc/meminfo's lines by name; without MemAvailable (before Linux 3.14) free and cached memory count."""

    def kb(name: str) -> int | None:
        words = cells.get(name, "").split()
        return int(words[0]) if words and words[0].lstrip("-").isdigit() else None

    total, available = kb("MemTotal"), kb("MemAvailable")
    if available is None and (free := kb("MemFree")) is not None:
        available = free + (kb("Buffers") or 0) + (kb("Cached") or 0)
    pages, page_kb = kb("HugePages_Total"), kb("Hugepagesize")
    hugetlb = kb("Hugetlb")
    if hugetlb is None:
        hugetlb = (pages or 0) * (page_kb or 0)
    return Meminfo(total or None, available, kb("SwapTotal"), pages, page_kb, hugetlb)


def read_free(text: str) -> tuple[int, int] | None:
    """Read `free`: (total, available) in its own unit; None where there is no line of memory."""
    for line in text.splitlines():
        match = re.match(r"\S+:\s+(-?\d+)\s+(-?\d+)\s+(-?\d+)(.*)", line)
        if match:
            rest = match[4].split()
            return int(match[1]), int(rest[-1]) if rest and rest[-1].lstrip("-").isdigit() else int(match[3])
    return None


def cpu_count(ranges: str) -> int:
    """Count the processors in a list like `0-5,48-53`, or `0-62:2/4`-like strides."""
    count = 0
    for part in ranges.strip().split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+)(?::(\d+))?)?", part.strip())
        if match:
            first, last, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
            count += max(0, (last - first) // step + 1)
    return count


def quota_millicores(cpu_max: str) -> int | None:
    """Return the limit of a `QUOTA PERIOD` line in thousandths of a processor; None for `max` and -1."""
    words = cpu_max.split()
    if len(words) != 2 or not words[0].isdigit() or not words[1].isdigit() or int(words[1]) == 0:
        return None
    return int(words[0]) * 1000 // int(words[1])


def limit_bytes(text: str) -> int | None:
    """Return a memory limit; None for `max` and for the v1 way to say so."""
    text = text.strip()
    if not text.isdigit():
        return None
    size = int(text)
    return None if size >= NO_LIMIT else size


def read_cgroup(text: str) -> dict[str, str]:
    """Read `grep -H .` over a control group's files, as file name to text; a bare value has the name ``."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        path, colon, rest = line.partition(":")
        if colon and "/" in path:
            found[path.rpartition("/")[2]] = rest.strip()
        elif line.strip():
            found[""] = line.strip()
    return found
