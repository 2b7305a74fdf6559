"""Reads amd-smi and rocm-smi, as JSON and as text; what they call MB is MiB."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

from llmgwctl.hosts.probe.cells import json_part, number, value

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class AmdGpu:
    """An AMD GPU as printed; `product` is empty where the tool doesn't name it. `device_id` is `0x74a1`-like."""

    index: int
    product: str = ""
    device_id: str = ""
    total_mib: int | None = None
    used_mib: int | None = None
    bus_id: str = ""
    unique_id: str = ""
    compute_partition: str = ""
    memory_partition: str = ""
    partition_id: int | None = None


@dataclass(frozen=True, slots=True)
class AmdReport:
    gpus: tuple[AmdGpu, ...]
    driver: str | None = None


def read_amd_json(text: str) -> AmdReport | None:
    """Read `amd-smi static --json`: an array, `{"gpu_data": […]}`, or several arrays in a row; None without JSON."""
    gpus: dict[int, AmdGpu] = {}
    driver = None
    found = False
    for document in _documents(json_part(text)):
        found = True
        entries = document.get("gpu_data") if isinstance(document, dict) else document
        for entry in entries if isinstance(entries, list) else []:
            if not isinstance(entry, dict) or not isinstance(entry.get("gpu"), int):
                continue
            index = int(str(entry["gpu"]))
            gpus[index] = _merge(gpus.get(index), _json_gpu(index, entry))
            driver = driver or value(_text(_at(entry, "driver", "version")))
    return AmdReport(tuple(g for _, g in sorted(gpus.items())), driver) if found else None


def _json_gpu(index: int, entry: dict[str, Json]) -> AmdGpu:
    product = _text(_at(entry, "asic", "market_name")) or _text(_at(entry, "board", "product_name"))
    total = _size(_at(entry, "vram", "size")) or _size(_at(entry, "mem_usage", "total_vram"))
    return AmdGpu(
        index,
        value(product) or "",
        value(_text(_at(entry, "asic", "device_id"))) or "",
        total,
        _size(_at(entry, "mem_usage", "used_vram")),
        value(_text(_at(entry, "bus", "bdf"))) or "",
        value(_text(_at(entry, "asic", "asic_serial"))) or "",
        value(_text(_at(entry, "partition", "compute_partition"))) or "",
        value(_text(_at(entry, "partition", "memory_partition"))) or "",
        number(_text(_at(entry, "partition", "partition_id"))),
    )


def _merge(old: AmdGpu | None, new: AmdGpu) -> AmdGpu:
    if old is None:
        return new
    return AmdGpu(
        new.index,
        new.product or old.product,
        new.device_id or old.device_id,
        old.total_mib if new.total_mib is None else new.total_mib,
        old.used_mib if new.used_mib is None else new.used_mib,
        new.bus_id or old.bus_id,
        new.unique_id or old.unique_id,
        new.compute_partition or old.compute_partition,
        new.memory_partition or old.memory_partition,
        old.partition_id if new.partition_id is None else new.partition_id,
    )


def _documents(text: str) -> Iterator[Json]:
    decoder = json.JSONDecoder()
    place = 0
    while True:
        match = re.compile(r"[\[{]").search(text, place)
        if not match:
            return
        try:
            document, place = decoder.raw_decode(text, match.start())
        except ValueError:
            return
        yield document


def _at(entry: Json, *names: str) -> Json:
    for name in names:
        entry = entry.get(name) if isinstance(entry, dict) else None
    return entry


def _text(item: Json) -> str:
    return "" if item is None or isinstance(item, (dict, list)) else str(item)


def _size(item: Json) -> int | None:
    """Return MiB of `{"value": 196592, "unit": "MB"}`, `196592 MB` or a plain number."""
    if isinstance(item, dict):
        amount, unit = number(_text(item.get("value"))), _text(item.get("unit"))
    else:
        text = _text(item)
        amount, unit = number(text), re.sub(r"[\d.\s]+", "", text)
    if amount is None:
        return None
    return {"": amount, "B": amount // _MIB, "GB": amount * 1024, "GiB": amount * 1024}.get(unit, amount)


_INDENT = re.compile(r"^( *)([A-Za-z0-9_ ]+?):(?:\s+(.*))?$")


def read_amd_text(text: str) -> AmdReport:
    """Read `amd-smi static`: indented sections under `GPU: N`; blocks of CPUs are passed over."""
    found: list[dict[str, str]] = []
    cells: dict[str, str] = {}
    sections: list[tuple[int, str]] = []
    for line in text.splitlines():
        match = _INDENT.match(line.rstrip())
        if not match:
            continue
        depth, name, rest = len(match[1]), match[2].strip().upper(), match[3]
        if depth == 0:
            cells, sections = {}, []
            if name == "GPU" and (rest or "").strip().isdigit():
                cells["GPU"] = (rest or "").strip()
                found.append(cells)
            continue
        while sections and sections[-1][0] >= depth:
            sections.pop()
        if rest is None or not rest.strip():
            sections.append((depth, name))
        else:
            cells.setdefault("/".join([s for _, s in sections] + [name]), rest.strip())
    drivers = [value(c.get("DRIVER/VERSION") or c.get("DRIVER/DRIVER_VERSION")) for c in found]
    return AmdReport(tuple(map(_text_gpu, found)), next((d for d in drivers if d), None))


def _text_gpu(cells: dict[str, str]) -> AmdGpu:
    product = value(cells.get("ASIC/MARKET_NAME")) or value(cells.get("BOARD/PRODUCT_NAME"))
    return AmdGpu(
        int(cells["GPU"]),
        product or "",
        value(cells.get("ASIC/DEVICE_ID")) or "",
        _size(cells.get("VRAM/SIZE") or cells.get("VRAM/VRAM_SIZE")),
        None,
        value(cells.get("BUS/BDF")) or "",
        value(cells.get("ASIC/ASIC_SERIAL")) or "",
        value(cells.get("PARTITION/COMPUTE_PARTITION")) or "",
        value(cells.get("PARTITION/MEMORY_PARTITION")) or "",
        number(cells.get("PARTITION/PARTITION_ID")),
    )


def read_rocm_json(text: str) -> AmdReport | None:
    """Read `rocm-smi … --json`; None without JSON. Names differ in case between versions, and may be missing."""
    document = next(_documents(json_part(text)), None)
    if not isinstance(document, dict):
        return None
    gpus = []
    for name, card in document.items():
        match = re.fullmatch(r"card(\d+)", name)
        if match and isinstance(card, dict):
            gpus.append(_rocm_gpu(int(match[1]), {k.lower(): _text(v) for k, v in card.items()}))
    system = document.get("system")
    driver = (
        next((_text(v) for k, v in system.items() if k.lower() == "driver version"), None)
        if isinstance(system, dict)
        else None
    )
    return AmdReport(tuple(sorted(gpus, key=lambda g: g.index)), value(driver))


def _rocm_gpu(index: int, cells: dict[str, str]) -> AmdGpu:
    total, used = number(cells.get("vram total memory (b)")), number(cells.get("vram total used memory (b)"))
    names = [value(cells.get(k)) for k in ("card series", "device name", "card model")]
    ids = [value(cells.get(k)) for k in ("device id", "gpu id", "card model")]
    return AmdGpu(
        index,
        next((n for n in names if n and not n.startswith("0x")), ""),
        next((i for i in ids if i and i.startswith("0x")), ""),
        None if total is None else total // _MIB,
        None if used is None else used // _MIB,
        value(cells.get("pci bus")) or "",
        value(cells.get("unique id")) or "",
    )


def read_rocm_table(text: str) -> AmdReport:
    """Read rocm-smi's concise table: it tells how many GPUs there are, and neither their names nor sizes."""
    lines = [line.split() for line in text.splitlines()]
    header = next((i for i, w in enumerate(lines) if w and w[0] in ("GPU", "Device")), None)
    if header is None:
        return AmdReport(())
    return AmdReport(tuple(AmdGpu(int(w[0])) for w in lines[header + 1 :] if len(w) > 3 and w[0].isdigit()))
