"""Reads nvidia-smi's texts for people: `-q`, and the table, whose names are cut and whose layout changes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmgwctl.hosts.probe.cells import number, shared_memory, sick, value
from llmgwctl.hosts.probe.nvidia import GpuProcess, GpuRow, MigRow
from llmgwctl.hosts.probe.nvidia_xml import Report, health_of

_QUERY_GPU = re.compile(r"^GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d)\s*$")
_QUERY_LINE = re.compile(r"^( *)(.+?)\s*(?: : ?(.*))?$")


def read_query(text: str) -> Report:
    """Read `-q`: indented `name : value` lines under each GPU's address."""
    head: dict[str, str] = {}
    gpus: list[GpuRow] = []
    cells = head
    sections: list[tuple[int, str]] = []
    processes: list[GpuProcess] = []
    bus_id = ""

    def close() -> None:
        if cells is not head:
            gpus.append(_query_gpu(len(gpus), bus_id, cells, tuple(processes)))

    for line in text.splitlines():
        started = _QUERY_GPU.match(line)
        if started:
            close()
            cells, sections, processes, bus_id = {}, [], [], started[1]
            continue
        match = _QUERY_LINE.match(line)
        if not match or not line.strip():
            continue
        depth, name, text_value = len(match[1]), match[2].strip(), match[3]
        while sections and sections[-1][0] >= depth:
            sections.pop()
        path = "/".join([s for _, s in sections] + [name])
        if name == "Process ID" and text_value is not None:
            processes.append(GpuProcess(number(text_value) or 0, ""))
        elif processes and "Process ID/" in path:
            processes[-1] = _process_detail(processes[-1], name, text_value or "")
        if text_value is None or name == "Process ID":
            sections.append((depth, name))
        else:
            cells.setdefault(path, text_value.strip())
    close()
    return Report(
        tuple(gpus),
        value(head.get("Driver Version") or head.get("KMD Version")),
        _cuda(head),
        head.get("Attached GPUs"),
    )


def _cuda(head: dict[str, str]) -> str | None:
    for name in ("CUDA Version", "CUDA UMD Version"):
        text = value(head.get(name))
        if text and text[0].isdigit():
            return text.split()[0]
    return None


def _process_detail(process: GpuProcess, name: str, text: str) -> GpuProcess:
    if name == "Type":
        return GpuProcess(process.pid, process.name, process.used_mib, text.strip())
    if name == "Name":
        return GpuProcess(process.pid, text.strip(), process.used_mib, process.kind)
    if name == "Used GPU Memory":
        return GpuProcess(process.pid, process.name, number(text), process.kind)
    return process


def _query_gpu(index: int, bus_id: str, cells: dict[str, str], processes: tuple[GpuProcess, ...]) -> GpuRow:
    total_cell = cells.get("FB Memory Usage/Total")
    health = next(
        (
            c
            for c in map(
                sick, (cells.get("Product Name"), total_cell, cells.get("Utilization/Gpu"), cells.get("GPU UUID"))
            )
            if c
        ),
        "",
    ) or health_of(
        reset_required=cells.get("GPU Reset Status/Reset Required"),
        recovery_action=cells.get("GPU Recovery Action"),
        remap_pending=cells.get("Remapped Rows/Pending"),
        remap_failure=cells.get("Remapped Rows/Remapping Failure Occurred"),
        retirement_pending=cells.get("Retired Pages/Pending Page Blacklist"),
        fabric_state=cells.get("Fabric/State"),
        fabric_status=cells.get("Fabric/Status"),
    )
    if health == "ok" and "unknown error" in (total_cell or "").lower():
        health = "gpu_handle_unknown_error"
    return GpuRow(
        index=index,
        uuid=value(cells.get("GPU UUID")) or "",
        bus_id=bus_id,
        product=value(cells.get("Product Name")) or "",
        total_mib=number(total_cell),
        used_mib=number(cells.get("FB Memory Usage/Used")),
        unified=shared_memory(total_cell),
        health=health,
        mig_mode=cells.get("MIG Mode/Current"),
        fabric_state=cells.get("Fabric/State"),
        ecc=cells.get("ECC Mode/Current") or cells.get("Ecc Mode/Current"),
        remap_pending=cells.get("Remapped Rows/Pending"),
        persistence=cells.get("Persistence Mode"),
        processes=processes,
    )


@dataclass(frozen=True, slots=True)
class Table:
    """The table for people; `truncated` where its last border is missing."""

    gpus: tuple[GpuRow, ...]
    driver: str | None
    cuda: str | None
    processes: tuple[GpuProcess, ...]
    truncated: bool
    fan_errors: tuple[int, ...] = ()
    foreign: str = ""


_HEADER = re.compile(r"(?:Driver|KMD) Version:\s*(\S+)")
_HEADER_CUDA = re.compile(r"CUDA (?:UMD )?Version:\s*(\d\S*)")
_FIRST = re.compile(
    r"^\|\s*(\d+)\s+(\S.*?)\s+(On|Off|N/A|ERR!)\s*\|\s*([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|ERR!|N/A)"
)
_USED = re.compile(r"(\d+)MiB\s*/\s*(\d+)MiB")
_PROCESS = re.compile(
    r"^\|\s*(\d+)\s+(?:(?:\d+|N/A)\s+(?:\d+|N/A)\s+)?(\d+)\s+(C\+G|G\+C|C|G|M\+C)\s+(.*?)\s+(\d+MiB|N/A|\[N/A\])\s*\|"
)
_MIG = re.compile(r"^\|\s*(\d+)\s+(\d+)\s+(\d+)\s+(\d+)\s*\|\s*(\d+)MiB\s*/\s*(\d+)MiB")


def read_table(text: str) -> Table:
    """Read the table: only where nothing better was captured, since names are cut in it."""
    lines = [line.rstrip() for line in text.splitlines()]
    driver, cuda = _HEADER.search(text), _HEADER_CUDA.search(text)
    gpus: list[GpuRow] = []
    processes: list[GpuProcess] = []
    migs: list[MigRow] = []
    fans: list[int] = []
    part = "gpus"
    place = 0
    while place < len(lines):
        line = lines[place]
        if "MIG devices:" in line:
            part = "mig"
        elif "Processes:" in line:
            part = "processes"
        elif part == "mig" and (mig := _MIG.match(line)):
            numbers = [int(n) for n in mig.groups()]
            migs.append(
                MigRow(numbers[0], numbers[3], numbers[1], numbers[2], total_mib=numbers[5], used_mib=numbers[4])
            )
        elif part == "processes" and (process := _PROCESS.match(line)):
            processes.append(GpuProcess(int(process[2]), process[4], number(process[5]), process[3], process[1]))
        elif part == "gpus" and (first := _FIRST.match(line)):
            row, fan = _table_gpu(first, lines[place + 1 : place + 3])
            gpus.append(row)
            if fan:
                fans.append(row.index or 0)
        place += 1
    widths = {len(line) for line in lines if line.startswith("+-") and line.endswith("-+")}
    body = [line for line in lines if line.startswith(("|", "+"))]
    truncated = bool(body) and not (body[-1].startswith("+-") and len(body[-1]) in widths and body[-1].endswith("-+"))
    with_mig = tuple(_with_mig(g, [m for m in migs if m.gpu == g.index]) for g in gpus)
    return Table(
        with_mig,
        driver[1] if driver else None,
        cuda[1] if cuda else None,
        tuple(processes),
        truncated,
        tuple(fans),
        _foreign(with_mig, processes),
    )


def _table_gpu(first: re.Match[str], below: list[str]) -> tuple[GpuRow, bool]:
    cells = [[c.strip() for c in line.strip("|").split("|")] for line in below if line.startswith("|")]
    second = cells[0] if cells and len(cells[0]) >= 3 else ["", "", ""]
    third = cells[1] if len(cells) > 1 and len(cells[1]) >= 3 else None
    memory = _USED.search(second[1])
    fan = second[0].startswith("ERR!")
    codes = {sick(c) for c in (*second, first[2])}
    health = next((c for c in ("gpu_lost", "gpu_requires_reset", "gpu_sensor_error") if c in codes), "ok")
    utilization = re.search(r"(\d+)%", second[2])
    return (
        GpuRow(
            index=int(first[1]),
            bus_id=value(first[4]) or "",
            product=value(first[2]) or "",
            total_mib=int(memory[2]) if memory else None,
            used_mib=int(memory[1]) if memory else None,
            unified=not memory and shared_memory(re.sub(r"\s*/.*", "", second[1])),
            health=health,
            mig_mode=third[2] if third else None,
            utilization=utilization[1] if utilization else None,
        ),
        fan,
    )


def _with_mig(gpu: GpuRow, migs: list[MigRow]) -> GpuRow:
    if not migs:
        return gpu
    return GpuRow(
        index=gpu.index,
        bus_id=gpu.bus_id,
        product=gpu.product,
        total_mib=gpu.total_mib,
        used_mib=gpu.used_mib,
        health=gpu.health,
        mig_mode=gpu.mig_mode,
        mig=tuple(migs),
    )


IDLE_MIB = 300
"""Used memory that no process accounts for, and is still no sign of one.

Seen on idle cards: 0 to 116 MiB without any process, up to 35 beside a desktop's; the least that a hidden CUDA
program was seen to hold is 558 MiB.
"""


def _foreign(gpus: tuple[GpuRow, ...], processes: list[GpuProcess]) -> str:
    if processes:
        return ""
    used = [g for g in gpus if (g.used_mib or 0) > IDLE_MIB and not g.mig]
    if not used:
        return ""
    busiest = max(int(g.utilization or 0) for g in used)
    also = f" and {busiest} % utilisation" if busiest else ""
    return f"memory{also} with no visible process: treat as busy by an unknown process"
