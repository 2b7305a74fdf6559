"""Reads the tools of other makers, and what the PCI bus says is built in."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from llmgwctl.hosts.probe.cells import value


@dataclass(frozen=True, slots=True)
class Npu:
    """One chip of an Ascend card; `device` is the number that programs use."""

    card: int
    device: int
    product: str
    health: str
    total_mib: int | None = None
    used_mib: int | None = None


_NPU_FIRST = re.compile(r"^\|\s*(\d+)\s+(\S.*?)\s*\|\s*([A-Za-z]+)\s*\|")
_NPU_SECOND = re.compile(
    r"^\|\s*(\d+)(?:\s+(\d+|-))?\s*\|\s*(?:[0-9A-Fa-f]{4}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d|NA|N/A)\s*\|(.*)\|"
)
_RATIO = re.compile(r"(\d+)\s*/\s*(\d+)")


def read_npu(text: str) -> tuple[Npu, ...]:
    """Read `npu-smi info`: two lines a chip; the last memory column is the device's own (HBM where it has any)."""
    found: list[Npu] = []
    first = None
    for line in text.splitlines():
        if "Process id" in line:
            break
        second = _NPU_SECOND.match(line)
        if second and first:
            ratios = _RATIO.findall(second[3])
            used, total = (int(n) for n in ratios[-1]) if ratios else (None, None)
            device = int(second[2]) if second[2] and second[2].isdigit() else len(found)
            found.append(Npu(int(first[1]), device, first[2], first[3], total, used))
            first = None
            continue
        first = _NPU_FIRST.match(line) or first
    return tuple(found)


def read_npu_mapping(text: str) -> tuple[Npu, ...]:
    """Read `npu-smi info -m`; the CPU of a card (`Mcu`) is no device."""
    found = []
    for line in text.splitlines():
        words = re.split(r"\s{2,}", line.strip())
        if len(words) >= 4 and words[0].isdigit() and words[2].isdigit():
            found.append(Npu(int(words[0]), int(words[2]), words[-1], "OK"))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Xpu:
    product: str
    total_mib: int | None = None


def read_xpu(text: str) -> tuple[Xpu, ...]:
    """Read `xpu-smi discovery`; the memory is told only with `-d ID`."""
    if text.lstrip().startswith("{"):
        return _xpu_json(text)
    found: list[Xpu] = []
    for line in text.splitlines():
        name = re.search(r"Device Name:\s*(.*?)\s*\|?\s*$", line)
        if name:
            found.append(Xpu(name[1]))
        size = re.search(r"Memory Physical Size:\s*([\d.]+)\s*MiB", line)
        if size and found:
            found[-1] = Xpu(found[-1].product, int(float(size[1])))
    return tuple(found)


def _xpu_json(text: str) -> tuple[Xpu, ...]:
    try:
        devices = json.loads(text)["device_list"]
        return tuple(
            Xpu(
                str(d["device_name"]),
                int(d["memory_physical_size_byte"]) // _MIB if "memory_physical_size_byte" in d else None,
            )
            for d in devices
        )
    except (ValueError, KeyError, TypeError):
        return ()


_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class PciDevice:
    """A device on the bus; ids are four hexadecimal digits, `kind` is the class (`0302`)."""

    address: str
    vendor: str
    device: str
    kind: str
    numa_node: int | None = None

    @property
    def is_display(self) -> bool:
        """Whether it is a graphics or 3D device."""
        return self.kind.startswith("03")

    @property
    def is_nvswitch(self) -> bool:
        """Whether it is one of NVIDIA's bridges between GPUs."""
        return self.vendor == "10de" and self.kind == "0680"


_LSPCI = re.compile(r"^(\S+) .*?\[([0-9a-f]{4})\]: .*\[([0-9a-f]{4}):([0-9a-f]{4})\]")


def read_lspci(text: str) -> tuple[PciDevice, ...]:
    """Read `lspci -nn`."""
    matches = (_LSPCI.match(line) for line in text.splitlines())
    return tuple(PciDevice(m[1], m[3], m[4], m[2]) for m in matches if m)


_MAKERS = {
    "19e5": "Huawei Ascend NPU",
    "1da3": "Intel Gaudi",
    "1e52": "Tenstorrent",
    "1ed5": "Moore Threads GPU",
    "1e36": "Enflame",
    "cabc": "Cambricon MLU",
    "1ae0": "Google TPU",
    "1d0f": "AWS Neuron",
    "1d22": "Kunlun XPU",
    "9999": "MetaX GPU",
}
_DEVICES = {
    "/dev/neuron0": "AWS Neuron",
    "/dev/davinci0": "Huawei Ascend NPU",
    "/dev/accel/accel0": "an accelerator (/dev/accel)",
    "/dev/accel0": "an accelerator (/dev/accel0)",
}


def unsupported(pci: tuple[PciDevice, ...], devices: tuple[str, ...]) -> tuple[str, ...]:
    """Name the accelerators of makers that no engine here is started on; built-in graphics are none."""
    names = {_MAKERS[d.vendor] for d in pci if d.vendor in _MAKERS and (d.kind == "1200" or d.is_display)}
    # Built-in Intel graphics is class 0300; the cards and data-centre GPUs that compute are 0380.
    names |= {"Intel GPU" for d in pci if d.vendor == "8086" and d.kind == "0380"}
    specific = {_DEVICES[d] for d in devices if d in _DEVICES}
    if names and any("accel" in s for s in specific):
        specific = {s for s in specific if "accel" not in s}
    return tuple(sorted(names | specific))


def pci_number(text: str | None) -> int | None:
    """Return a NUMA node; -1 is the kernel's word for none."""
    cell = value(text)
    return int(cell) if cell and cell.isdigit() else None
