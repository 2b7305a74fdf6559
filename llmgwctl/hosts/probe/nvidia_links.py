"""Reads how GPUs are linked (`topo -m`, `nvlink --status`), `pmon` and `--version`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from llmgwctl.hosts.probe.cells import number

_ANSI = re.compile(r"\x1b?\[[0-9;]*m")
_DEVICE = re.compile(r"(?:GPU|NIC|mlx)\S*")
_NEAREST = ("PIX", "PXB", "PHB", "NODE", "SYS")
_NIC_NAME = re.compile(r"^\s*(NIC\d+): (\S+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Topology:
    """Links between GPUs by pair (`GPU0-GPU1`), NUMA nodes by GPU, and each GPU's nearest network card."""

    gpus: int
    nics: int
    links: dict[str, str] = field(default_factory=dict)
    numa: dict[str, int | None] = field(default_factory=dict)
    nearest_nic: dict[str, str] = field(default_factory=dict)

    @property
    def nvlink_all_to_all(self) -> bool:
        """Whether every pair of GPUs is joined by NVLink."""
        return bool(self.links) and all(link.startswith("NV") for link in self.links.values())

    @property
    def nvlink_count(self) -> int | None:
        """How many links join each pair; None where pairs differ."""
        counts = {number(link[2:]) for link in self.links.values()} if self.nvlink_all_to_all else set()
        return counts.pop() if len(counts) == 1 else None


def read_topology(text: str) -> Topology:
    """Read the matrix; columns behind the devices may be empty, so NUMA goes by its place in the header."""
    lines = [_ANSI.sub("", line) for line in text.splitlines()]
    header_at = next((i for i, line in enumerate(lines) if re.match(r"\s+(?:GPU|NIC)\d", line)), None)
    if header_at is None:
        return Topology(0, 0)
    header = lines[header_at]
    devices = _DEVICE.findall(re.split(r"CPU Affinity|NUMA Affinity|GPU NUMA", header)[0])
    rows = {}
    for line in lines[header_at + 1 :]:
        words = line.split()
        if not words or words[0] not in devices:
            continue
        rows[words[0]] = (dict(zip(devices, words[1:], strict=False)), line)
    gpus = [d for d in devices if d.startswith("GPU")]
    nics = [d for d in devices if not d.startswith("GPU")]
    names = dict(_NIC_NAME.findall(text))
    links, numa, nearest = {}, {}, {}
    for place, gpu in enumerate(gpus):
        if gpu not in rows:
            continue
        cells, line = rows[gpu]
        for other in gpus[place + 1 :]:
            links[f"{gpu}-{other}"] = cells.get(other, "")
        numa[gpu] = _numa(header, line)
        ranked = [(_NEAREST.index(cells[n]), i, n) for i, n in enumerate(nics) if cells.get(n) in _NEAREST]
        if ranked:
            nic = min(ranked)[2]
            nearest[gpu] = names.get(nic, nic)
    return Topology(len(gpus), len(nics), links, numa, nearest)


def _numa(header: str, line: str) -> int | None:
    if "\t" in header:
        columns = [c.strip() for c in header.split("\t")]
        cells = [c.strip() for c in line.split("\t")]
        place = columns.index("NUMA Affinity") if "NUMA Affinity" in columns else len(cells)
        return number(cells[place]) if place < len(cells) else None
    start = header.find("NUMA Affinity")
    if start < 0:
        return None
    end = header.find("GPU NUMA", start)
    return number(line[start : end if end > 0 else None].strip() or None)


@dataclass(frozen=True, slots=True)
class NvlinkStatus:
    """NVLinks of each GPU; `summary` where all are alike."""

    gpus: int
    summary: str


def read_nvlink(text: str) -> NvlinkStatus:
    """Read `nvlink --status`."""
    counts: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("GPU "):
            counts.append([])
        link = re.match(r"\s+Link \d+: (?:(\S+) GB/s|<?inactive>?)", line)
        if link and counts and link[1]:
            counts[-1].append(link[1])
    kinds = {(len(c), *sorted(set(c))) for c in counts}
    if len(kinds) == 1 and counts and len(set(counts[0])) == 1:
        summary = f"{len(counts[0])} links x {counts[0][0]} GB/s per GPU"
    elif not any(counts):
        summary = "no active links"
    else:
        summary = "; ".join(f"GPU {i}: {len(c)} links" for i, c in enumerate(counts))
    return NvlinkStatus(len(counts), summary)


def read_pmon(text: str) -> tuple[tuple[int, int, str], ...]:
    """Read `pmon`: (GPU, pid, name) of each process once; samples repeat, and an idle GPU has `-` for a pid."""
    found: dict[tuple[int, int], str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) >= 4 and words[0].isdigit() and words[1].isdigit():
            found[(int(words[0]), int(words[1]))] = words[-1]
    return tuple((gpu, pid, name) for (gpu, pid), name in found.items())


def read_version(text: str) -> tuple[str | None, str | None]:
    """Read `--version`: (driver, CUDA); a newer driver says `Deprecated, see …` under the old names."""
    values = {}
    for line in text.splitlines():
        name, colon, rest = line.partition(":")
        if colon:
            values[name.strip().lower()] = rest.strip()
    driver = _first_number(values, "driver version", "kmd version", "nvidia-smi version")
    return driver, _first_number(values, "cuda version", "cuda umd version")


def _first_number(values: dict[str, str], *names: str) -> str | None:
    return next((values[n].split()[0] for n in names if values.get(n, "")[:1].isdigit()), None)
