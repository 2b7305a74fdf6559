"""Reads nvidia-smi's lists: CSV queries, `-L`, and what belongs to them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from llmgwctl.hosts.probe.cells import number, shared_memory, sick, value

QUERY = ("index", "uuid", "pci.bus_id", "name", "memory.total", "memory.used", "driver_version", "mig.mode.current")
"""Old fields only: one that a driver doesn't know fails the whole query."""
APPS_QUERY = ("gpu_uuid", "pid", "used_gpu_memory", "process_name")


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process on a GPU; `kind` is `C`, `G` or `C+G`, empty where it isn't told."""

    pid: int
    name: str
    used_mib: int | None = None
    kind: str = ""
    gpu: str = ""


@dataclass(frozen=True, slots=True)
class MigRow:
    """A slice as printed; memory belongs to the GPU instance `gi`, which several slices may share."""

    gpu: int
    index: int
    gi: int | None = None
    ci: int | None = None
    profile: str = ""
    uuid: str = ""
    total_mib: int | None = None
    used_mib: int | None = None


@dataclass(frozen=True, slots=True)
class GpuRow:
    """A GPU as printed; `health` is `ok` or a code. Raw cells are kept where their wording is of use."""

    index: int | None = None
    uuid: str = ""
    bus_id: str = ""
    product: str = ""
    total_mib: int | None = None
    used_mib: int | None = None
    driver: str | None = None
    unified: bool = False
    health: str = "ok"
    mig_mode: str | None = None
    fabric_state: str | None = None
    ecc: str | None = None
    remap_pending: str | None = None
    persistence: str | None = None
    utilization: str | None = None
    compute_cap: str | None = None
    processes: tuple[GpuProcess, ...] = ()
    mig: tuple[MigRow, ...] = ()

    @property
    def virtual(self) -> bool:
        """Whether it is a vGPU, by its name."""
        return bool(_VGPU.search(self.product))


_VGPU = re.compile(r"(?:^GRID |-\d+[QCAB]\d?(?:ME|MEP)?$)")
_UNIT = re.compile(r"\s*\[[^\]]*\]$")


def read_csv(text: str, fields: Sequence[str] = ()) -> tuple[GpuRow, ...]:
    """Read `--query-gpu`; `fields` names the columns where there is no header (else they are told from their form)."""
    lines = [line for line in text.splitlines() if line.strip()]
    columns = list(fields)
    start = 0
    for number_, line in enumerate(lines):
        names = [_UNIT.sub("", c).strip() for c in line.split(",")]
        if all(map(_COLUMN.fullmatch, names)) and any(n in _COLUMNS or n.startswith("memory.") for n in names):
            columns, start = names, number_ + 1
            break
    rows = []
    for line in lines[start:]:
        cells = [c.strip() for c in line.split(", ")] if ", " in line else [c.strip() for c in line.split(",")]
        if columns:
            if len(cells) == len(columns):
                rows.append(_row(dict(zip(columns, cells, strict=True))))
        elif len(cells) > 1:
            guessed = _by_form(cells)
            if guessed:
                rows.append(guessed)
    return tuple(rows)


_COLUMN = re.compile(r"[a-z][A-Za-z0-9_.]*")
_COLUMNS = frozenset({"index", "name", "uuid", "gpu_uuid", "gpu_name", "driver_version", "pci.bus_id", "timestamp"})


def _row(cells: dict[str, str]) -> GpuRow:
    total_cell = cells.get("memory.total")
    total, used = number(total_cell), number(cells.get("memory.used"))
    if total_cell is None:
        parts = [number(cells.get(f"memory.{part}")) for part in ("reserved", "used", "free")]
        if parts[1] is not None and parts[2] is not None:
            total = sum(p or 0 for p in parts)
    health = next((code for code in map(sick, cells.values()) if code), "ok")
    if health == "ok" and "unknown error" in (total_cell or "").lower():
        health = "gpu_handle_unknown_error"
    return GpuRow(
        index=number(cells.get("index")),
        uuid=value(cells.get("uuid") or cells.get("gpu_uuid")) or "",
        bus_id=value(cells.get("pci.bus_id") or cells.get("gpu_bus_id")) or "",
        product=value(cells.get("name") or cells.get("gpu_name")) or "",
        total_mib=total,
        used_mib=used,
        driver=value(cells.get("driver_version") or cells.get("kmd_version")),
        unified=shared_memory(total_cell),
        health=health,
        mig_mode=cells.get("mig.mode.current"),
        fabric_state=cells.get("fabric.state"),
        ecc=cells.get("ecc.mode.current"),
        remap_pending=cells.get("remapped_rows.pending"),
        persistence=cells.get("persistence_mode"),
        utilization=cells.get("utilization.gpu"),
        compute_cap=cells.get("compute_cap"),
    )


_DRIVER = re.compile(r"\d{3}\.\d{1,3}\.\d{1,3}")


def _by_form(cells: list[str]) -> GpuRow | None:
    """Tell headerless cells apart by their form; a number that could be two things is taken as neither."""
    named: dict[str, str] = {}
    rest = []
    for place, cell in enumerate(cells):
        if place == 0 and cell.isdigit():
            named["index"] = cell
        elif cell.startswith(("GPU-", "MIG-")):
            named["uuid"] = cell
        elif re.fullmatch(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", cell):
            named["pci.bus_id"] = cell
        elif _DRIVER.fullmatch(cell):
            named["driver_version"] = cell
        elif "name" not in named and re.search(r"[A-Za-z]", cell) and value(cell) and not _measured(cell):
            named["name"] = cell
        else:
            rest.append(cell)
    if "name" not in named and "uuid" not in named:
        return None
    sizes = [c for c in rest if re.fullmatch(r"\d+(?: MiB)?", c)]
    largest = max(sizes, key=lambda c: number(c) or 0, default=None)
    if largest is not None and (number(largest) or 0) >= 1024:
        named["memory.total"] = largest
        sizes.remove(largest)
        in_mib = [c for c in sizes if c.endswith("MiB")]
        others = in_mib or sizes
        if len(others) == 1:
            named["memory.used"] = others[0]
    elif rest and not any(number(c) is not None for c in rest):
        named["memory.total"] = rest[0]
    row = _row(named)
    return row if row.health != "ok" else _with_health(row, rest)


def _with_health(row: GpuRow, cells: list[str]) -> GpuRow:
    code = next((c for c in map(sick, cells) if c), None)
    return row if code is None else GpuRow(index=row.index, uuid=row.uuid, product=row.product, health=code)


def _measured(cell: str) -> bool:
    return bool(re.fullmatch(r"-?[\d.]+\s*(?:MiB|%|W|MHz|C)?|P\d+", cell))


def read_apps(text: str, fields: Sequence[str] = ()) -> tuple[GpuProcess, ...]:
    """Read `--query-compute-apps`; a MIG slice's process is listed under its card."""
    lines = [line for line in text.splitlines() if line.strip()]
    columns = list(fields)
    processes = []
    for line in lines:
        names = [_UNIT.sub("", c).strip() for c in line.split(",")]
        if "pid" in names:
            columns = names
            continue
        # The last column may be a name with commas.
        cells = [c.strip() for c in line.split(",", max(0, len(columns) - 1))]
        if len(cells) != len(columns):
            continue
        row = dict(zip(columns, cells, strict=True))
        pid = number(row.get("pid"))
        if pid is not None:
            used = row.get("used_gpu_memory") or row.get("used_memory")
            name = row.get("process_name") or row.get("name") or ""
            processes.append(GpuProcess(pid, name, number(used), "C", row.get("gpu_uuid", "")))
    return tuple(processes)


_LISTED = re.compile(r"^GPU (\d+): (.*?)(?: \(UUID: ([^)]+)\))?\s*$")
_LISTED_MIG = re.compile(r"^\s+MIG (\S+)\s+Device\s+(\d+): \(UUID: ([^)]+)\)")


def read_list(text: str) -> tuple[GpuRow, ...]:
    """Read `-L`: the GPUs, and the slices with their profiles and UUIDs."""
    found: list[tuple[re.Match[str], list[MigRow]]] = []
    for line in text.splitlines():
        gpu = _LISTED.match(line)
        if gpu:
            found.append((gpu, []))
            continue
        mig = _LISTED_MIG.match(line)
        if mig and found:
            found[-1][1].append(MigRow(int(found[-1][0][1]), int(mig[2]), profile=mig[1], uuid=mig[3]))
    return tuple(
        GpuRow(index=int(m[1]), product=m[2].strip(), uuid=m[3] or "", health=sick(m[2]) or "ok", mig=tuple(slices))
        for m, slices in found
    )
