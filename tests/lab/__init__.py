"""A lab of real hosts on one machine: each has its own systemd, sshd, address, network and (pretended) GPUs."""

from .gpus import Gpu, GpuProcess
from .host import Host, Listener, Process
from .lab import Lab
from .llama import LlamaAssets, llama_assets
from .system import LabUnavailableError

__all__ = [
    "Gpu",
    "GpuProcess",
    "Host",
    "Lab",
    "LabUnavailableError",
    "Listener",
    "LlamaAssets",
    "Process",
    "llama_assets",
]
