"""Tells what a host says of its processors, memory and disks, as plain facts."""

from __future__ import annotations

from llmgwctl.hosts.probe import storage, system
from llmgwctl.hosts.probe.cells import number
from llmgwctl.hosts.probe.telling import Fact, Facts


def cgroup_facts(text: str, *_: object) -> Facts:
    """Read a control group's files."""
    values = system.read_cgroup(text)
    limit = next(
        (system.limit_bytes(values[k]) for k in ("memory.max", "memory.limit_in_bytes", "") if k in values), None
    )
    shown: dict[str, Fact] = {k: v for k, v in values.items() if k}
    facts: Facts = {"values": shown, "memory_limit_mib": None if limit is None else limit // (1024 * 1024)}
    cpus = values.get("cpuset.cpus.effective") or values.get("cpuset.cpus")
    facts["cpus"] = system.cpu_count(cpus) if cpus else None
    facts["quota_millicores"] = system.quota_millicores(values.get("cpu.max", ""))
    return facts


def cpuinfo_facts(text: str, *_: object) -> Facts:
    """Read /proc/cpuinfo."""
    found = system.read_cpuinfo(text)
    return {
        "processors": found.processors,
        "sockets": found.sockets,
        "model": found.model,
        "avx512": "avx512f" in found.flags,
        "avx2": "avx2" in found.flags,
    }


_LSCPU_NAMES = {
    "online": "On-line CPU(s) list",
    "sockets": "Socket(s)",
    "cores_per_socket": "Core(s) per socket",
    "threads_per_core": "Thread(s) per core",
    "model": "Model name",
    "numa_nodes": "NUMA node(s)",
    "architecture": "Architecture",
}


def lscpu_facts(text: str, *_: object) -> Facts:
    """Read `lscpu`, as text or JSON."""
    cells = system.read_lscpu(text)
    facts: Facts = {key: cells[name] for key, name in _LSCPU_NAMES.items() if name in cells}
    if "CPU(s)" in cells:
        facts["cpus"] = number(cells["CPU(s)"])
    facts["cpu_max_mhz"] = system.decimal(cells.get("CPU max MHz"))
    return facts


def meminfo_facts(text: str, *_: object) -> Facts:
    """Read /proc/meminfo."""
    found = system.read_meminfo(text)
    if not found.total_kb:
        return _no_memory()
    facts: Facts = {
        "mem_total_mib": found.total_kb // 1024,
        "mem_available_mib": None if found.available_kb is None else found.available_kb // 1024,
    }
    if found.hugepages is not None:
        facts.update(hugepages_total=found.hugepages, hugepage_kb=found.hugepage_kb)
    if found.swap_kb is not None:
        facts["swap_total_mib"] = found.swap_kb // 1024
    return facts


def _no_memory() -> Facts:
    return {
        "error": "meminfo_invalid",
        "user_message": "The container reports 0 total memory (lxcfs bug); RAM unknown.",
    }


def free_facts(text: str, *_: object) -> Facts:
    """Read `free`."""
    found = system.read_free(text)
    if found is None or found[0] <= 0 or found[1] < 0:
        return _no_memory()
    return {"mem_total_mib": found[0] // 1024, "mem_available_mib": found[1] // 1024}


def df_facts(text: str, *_: object) -> Facts:
    """Read `df`."""
    found = storage.read_df(text)
    facts: Facts = {"filesystems": len(found), "paths": [f.path for f in found]}
    facts["by_path"] = {f.path: {"size_kib": f.size_kib, "avail_kib": f.available_kib} for f in found}
    root = next((f for f in found if f.path == "/"), None)
    if root:
        facts["root"] = {"size_kib": root.size_kib, "avail_kib": root.available_kib}
    if len(found) == 1:
        gib = found[0].available_kib / 1024**2
        facts["path"] = found[0].path
        facts["avail"] = f"about {gib:.0f} GiB" if found[0].rough else f"{gib:.1f} GiB"
    return facts
