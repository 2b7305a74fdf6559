"""Reads what listens, what runs, and what the kernel complained about."""

from __future__ import annotations

import re
from dataclasses import dataclass

_ENGINES = (
    ("vllm", re.compile(r"\bvllm\b|VLLM::", re.IGNORECASE)),
    ("sglang", re.compile(r"\bsglang\b", re.IGNORECASE)),
    ("llamacpp", re.compile(r"\bllama-server\b|\bllama serve\b")),
    ("ollama", re.compile(r"\bollama\b")),
    ("tgi", re.compile(r"text-generation-(?:launcher|server)|text-generation")),
    ("tei", re.compile(r"text-embeddings-router")),
    ("trtllm", re.compile(r"trtllm-serve|tritonserver")),
)


def engine_of(command: str) -> str | None:
    """Return the engine that a process's name or title shows."""
    return next((name for name, pattern in _ENGINES if pattern.search(command)), None)


@dataclass(frozen=True, slots=True)
class Listener:
    """A listening socket; without rights to see it, `process` is empty and `pid` None: taken by unknown."""

    address: str
    port: int
    process: str = ""
    pid: int | None = None


_SOCKET = re.compile(r"(\[[^\]]*\]|[^\s\[]\S*?|\*)(?:%[\w.-]+)?:(\d+)(?=\s|$)")
_USER = re.compile(r'\("([^"]*)",pid=(\d+)')


def read_listeners(text: str) -> tuple[Listener, ...]:
    """Read `ss -ltnp`, with or without header; of several owners the first is named."""
    found = []
    for line in text.splitlines():
        words = line.split()
        if not words or words[0] != "LISTEN":
            continue
        socket = _SOCKET.search(line)
        if not socket:
            continue
        user = _USER.search(line)
        address = socket[1].strip("[]")
        found.append(Listener(address, int(socket[2]), user[1] if user else "", int(user[2]) if user else None))
    return tuple(found)


def read_listening_ports(text: str) -> tuple[int, ...]:
    """Read the ports from `ss -ltn`, or from /proc/net/tcp and tcp6 (or both, where ss failed half-way)."""
    ports = set()
    for line in text.splitlines():
        words = line.split()
        if len(words) > 3 and words[3] == "0A":
            ports.add(int(words[1].rpartition(":")[2], 16))
        elif len(words) > 4 and words[0] == "LISTEN":
            port = words[3].rpartition(":")[2]
            if port.isdigit():
                ports.add(int(port))
    return tuple(sorted(ports))


@dataclass(frozen=True, slots=True)
class Process:
    pid: int
    parent: int | None
    state: str
    command: str


def read_ps(text: str) -> tuple[Process, ...]:
    """Read `ps`: columns by the header (pid, ppid, stat, and the command last)."""
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ()
    columns = lines[0].split()
    if "PID" not in columns:
        return ()
    found = []
    for line in lines[1:]:
        words = line.split()
        # A start time (`Wed Sep 17 12:51:13 2025`) is five words under one heading.
        wide = (
            4
            if "STARTED" in columns
            and len(words) > columns.index("STARTED")
            and words[columns.index("STARTED")].isalpha()
            else 0
        )
        last = len(columns) - 1 + wide
        cells = dict(zip(columns[: columns.index("STARTED")] if wide else columns[:-1], words, strict=False))
        if not cells.get("PID", "").isdigit():
            continue
        parent = cells.get("PPID", "")
        found.append(
            Process(
                int(cells["PID"]),
                int(parent) if parent.isdigit() else None,
                cells.get("STAT") or cells.get("S") or "",
                " ".join(words[last:]),
            )
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Xid:
    number: int
    pci: str
    text: str


_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d+),?\s*(.*)")
XID_MEANINGS = {
    # From NVIDIA's list of Xid errors.
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "preemptive cleanup",
    48: "double bit ECC error",
    61: "internal micro-controller breakpoint",
    62: "internal micro-controller halt",
    63: "row remapping or page retirement event",
    64: "row remapping or page retirement failure",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high single-bit ECC error rate",
    94: "contained ECC error",
    95: "uncontained ECC error",
    119: "GSP RPC timeout",
    120: "GSP error",
    154: "recovery action changed",
}
XID_FATAL = frozenset({48, 61, 62, 64, 74, 79, 95, 119, 120, 154})
"""After these a GPU must not be trusted until it is reset."""


def read_xids(text: str) -> tuple[Xid, ...]:
    """Read dmesg for the GPU driver's error numbers, each once per device."""
    found: dict[tuple[int, str], Xid] = {}
    for match in _XID.finditer(text):
        found.setdefault((int(match[2]), match[1]), Xid(int(match[2]), match[1], match[3].strip()))
    return tuple(found.values())


_BLOCKED = re.compile(r"task (nvidia-smi\S*?|nvidia-persist\S*?):(\d+) blocked for more than")
_AMD_RESET = re.compile(r"amdgpu ([0-9a-f:.]+): .*(?:ring \S+ timeout|GPU reset|GPU recovery disabled)")


def read_kernel_trouble(text: str) -> tuple[str, str] | None:
    """Read dmesg for a driver that hangs: (code, words); None where there is no such line."""
    blocked = _BLOCKED.search(text)
    if blocked:
        return "driver_hung", f"{blocked[1]} (pid {blocked[2]}) hangs in the driver; reboot the host."
    reset = _AMD_RESET.search(text)
    return ("amd_gpu_unresponsive", f"AMD GPU {reset[1]} does not answer; reset or reboot needed.") if reset else None
