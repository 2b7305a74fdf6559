"""Reads `nvidia-smi -q -x`, whose elements change names between drivers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from llmgwctl.hosts.probe.cells import number, shared_memory, sick, value
from llmgwctl.hosts.probe.nvidia import GpuProcess, GpuRow, MigRow


@dataclass(frozen=True, slots=True)
class Report:
    """What `-q -x` or `-q` says; `attached` is the count it claims; `complete` is False where it was cut."""

    gpus: tuple[GpuRow, ...]
    driver: str | None = None
    cuda: str | None = None
    attached: str | None = None
    dtd: str | None = None
    complete: bool = True

    @property
    def truncated(self) -> bool:
        """Whether fewer GPUs are printed than claimed, or the text is cut."""
        claimed = number(self.attached)
        return not self.complete or (claimed is not None and claimed != len(self.gpus))


_START = re.compile(r"<\?xml|<!DOCTYPE nvidia_smi_log|<nvidia_smi_log")
_END = "</nvidia_smi_log>"
_GPU = re.compile(r"<gpu\b.*?</gpu>", re.DOTALL)
_DTD = re.compile(r"nvsmi_device_v\d+")


def read_xml(text: str) -> Report | None:
    """Read the XML, with whatever is printed before or after it; None where there is none."""
    start = _START.search(text)
    if start is None:
        return None
    end = text.find(_END, start.start())
    complete = end >= 0
    body = text[start.start() : end + len(_END)] if complete else text[start.start() :]
    if "<!ENTITY" in body:  # nvidia-smi defines none; anything else isn't read
        return None
    # Expat takes the declaration only at the very beginning, and the DTD is not needed.
    root_at = body.find("<nvidia_smi_log")
    try:
        root = ElementTree.fromstring(body[root_at:])
    except ElementTree.ParseError:
        complete = False
        root = _from_pieces(body)
    dtd = _DTD.search(body)
    gpus = tuple(_gpu(place, gpu) for place, gpu in enumerate(root.iter("gpu")))
    return Report(
        gpus,
        value(root.findtext("driver_version") or root.findtext("kmd_version")),
        value(root.findtext("cuda_version") or root.findtext("cuda_umd_version")),
        root.findtext("attached_gpus"),
        dtd[0] if dtd else None,
        complete,
    )


def _from_pieces(body: str) -> Element:
    root = Element("nvidia_smi_log")
    for piece in _GPU.findall(body):
        try:
            root.append(ElementTree.fromstring(piece))
        except ElementTree.ParseError:
            continue
    for tag in ("driver_version", "cuda_version", "attached_gpus"):
        match = re.search(rf"<{tag}>([^<]*)</{tag}>", body)
        if match:
            child = Element(tag)
            child.text = match[1]
            root.append(child)
    return root


def _gpu(place: int, gpu: Element) -> GpuRow:
    total_cell = gpu.findtext("fb_memory_usage/total")
    mig_cell = gpu.findtext("mig_mode/current_mig")
    pending = gpu.findtext("remapped_rows/remapped_row_pending")
    return GpuRow(
        # Without a printed index, the position: the driver numbers by PCI address, and prints in that order.
        index=place,
        uuid=value(gpu.findtext("uuid")) or "",
        bus_id=value(gpu.findtext("pci/pci_bus_id")) or gpu.get("id") or "",
        product=value(gpu.findtext("product_name")) or "",
        total_mib=number(total_cell),
        used_mib=number(gpu.findtext("fb_memory_usage/used")),
        unified=shared_memory(total_cell),
        health=_health(gpu, total_cell, pending),
        mig_mode=mig_cell,
        fabric_state=gpu.findtext("fabric/state"),
        ecc=gpu.findtext("ecc_mode/current_ecc"),
        remap_pending=pending,
        persistence=gpu.findtext("persistence_mode"),
        processes=tuple(_processes(gpu)),
        mig=tuple(_mig(place, gpu)),
    )


def _health(gpu: Element, total_cell: str | None, pending: str | None) -> str:
    for cell in (gpu.findtext("product_name"), gpu.findtext("uuid"), total_cell, gpu.findtext("utilization/gpu_util")):
        code = sick(cell)
        if code:
            return code
    if "unknown error" in (total_cell or "").lower():
        return "gpu_handle_unknown_error"
    return health_of(
        reset_required=gpu.findtext("gpu_reset_status/reset_required"),
        recovery_action=gpu.findtext("gpu_recovery_action"),
        remap_pending=pending,
        remap_failure=gpu.findtext("remapped_rows/remapped_row_failure"),
        retirement_pending=gpu.findtext("retired_pages/pending_retirement")
        or gpu.findtext("retired_pages/pending_blacklist"),
        fabric_state=gpu.findtext("fabric/state"),
        fabric_status=gpu.findtext("fabric/status"),
    )


def health_of(
    *,
    reset_required: str | None,
    recovery_action: str | None,
    remap_pending: str | None,
    remap_failure: str | None,
    retirement_pending: str | None,
    fabric_state: str | None,
    fabric_status: str | None,
) -> str:
    """Return `ok` or the code of the worst that a detailed report says; absent and `N/A` cells say nothing."""
    if _yes(reset_required):
        return "gpu_requires_reset"
    if _yes(remap_failure):
        return "gpu_row_remap_failed"
    action = value(recovery_action)
    if _yes(remap_pending) or _yes(retirement_pending) or (action and action.lower() not in ("none", "drain p2p")):
        return "gpu_reset_required"
    state, status = value(fabric_state), value(fabric_status)
    if state and (state.lower() != "completed" or (status and status.lower() != "success")):
        return "fabric_not_ready"
    return "ok"


def _yes(cell: str | None) -> bool:
    return (cell or "").strip().lower() == "yes"


def _processes(gpu: Element) -> list[GpuProcess]:
    uuid = value(gpu.findtext("uuid")) or ""
    found = []
    for info in gpu.iterfind("processes/process_info"):
        pid = number(info.findtext("pid"))
        if pid is not None:
            name = info.findtext("process_name") or ""
            found.append(GpuProcess(pid, name, number(info.findtext("used_memory")), info.findtext("type") or "", uuid))
    return found


def _mig(place: int, gpu: Element) -> list[MigRow]:
    return [
        MigRow(
            place,
            number(device.findtext("index")) or 0,
            number(device.findtext("gpu_instance_id")),
            number(device.findtext("compute_instance_id")),
            total_mib=number(device.findtext("fb_memory_usage/total")),
            used_mib=number(device.findtext("fb_memory_usage/used")),
        )
        for device in gpu.iterfind("mig_devices/mig_device")
    ]
