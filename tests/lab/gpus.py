"""The GPUs that a host in the lab pretends to have, as the file that its nvidia-smi and lspci read."""

import json
import uuid
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

# PCI device id and compute capability; any other product gets the H100's.
MODELS = {
    "NVIDIA H100 80GB HBM3": ("0x233010DE", "9.0"),
    "NVIDIA H200": ("0x233510DE", "9.0"),
    "NVIDIA A100-SXM4-80GB": ("0x20B210DE", "8.0"),
    "NVIDIA L40S": ("0x26B910DE", "8.9"),
    "NVIDIA L4": ("0x27B810DE", "8.9"),
}


@dataclass(frozen=True)
class GpuProcess:
    """A process that nvidia-smi names although the lab doesn't run it."""

    pid: int
    name: str
    memory_mib: int
    type: str = "C"


@dataclass(frozen=True)
class Gpu:
    """One pretended GPU; an empty uuid is filled in from the host and the index.

    `health` is one of ok, requires_reset, lost, unknown_error, remap_pending. `used_mib` is held by no visible process.
    """

    product: str = "NVIDIA H100 80GB HBM3"
    memory_mib: int = 81559
    uuid: str = ""
    index: int = -1
    health: str = "ok"
    used_mib: int = 0
    reserved_mib: int = 479
    processes: tuple[GpuProcess, ...] = ()


def numbered(host: str, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Give each GPU its index and a UUID that stays the same for this host and index."""
    done = []
    for place, gpu in enumerate(gpus):
        index = place if gpu.index < 0 else gpu.index
        name = gpu.uuid or f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{index}.{host}.lab')}"
        done.append(replace(gpu, index=index, uuid=name))
    return tuple(done)


def config_text(gpus: Sequence[Gpu], *, fault: str | None, delay_s: float) -> str:
    """Write the file that the fake nvidia-smi answers from."""
    entries = []
    for gpu in gpus:
        device_id, compute_cap = MODELS.get(gpu.product, ("0x233010DE", "9.0"))
        entries.append(asdict(gpu) | {"bus_id": bus_id(gpu.index), "device_id": device_id, "compute_cap": compute_cap})
    head = {"driver_version": "570.133.20", "cuda_version": "12.8", "fault": fault, "delay_s": delay_s}
    return json.dumps(head | {"gpus": entries}, indent=1)


def lspci_text(gpus: Sequence[Gpu]) -> str:
    """Write what `lspci -nn` shows of the GPUs."""
    lines = ["00:00.0 Host bridge [0600]: Intel Corporation 440FX - 82441FX PMC [Natoma] [8086:1237] (rev 02)"]
    for gpu in gpus:
        device = MODELS.get(gpu.product, ("0x233010DE", ""))[0][2:6].lower()
        lines.append(
            f"{bus_id(gpu.index)[9:]} 3D controller [0302]: NVIDIA Corporation Device [10de:{device}] (rev a1)"
        )
    return "\n".join(lines) + "\n"


def bus_id(index: int) -> str:
    """Place a GPU on the pretended PCI bus."""
    return f"00000000:{0x10 + index:02X}:00.0"
