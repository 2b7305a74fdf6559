"""One way to every reader: the kind of a captured text in, plain facts out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from llmgwctl.domain.gpu_classes import UNKNOWN, classify
from llmgwctl.hosts.probe import accelerators, amd, network, nvidia_links, processes, shells, storage, system
from llmgwctl.hosts.probe.cells import number
from llmgwctl.hosts.probe.failures import Failure, read_failure
from llmgwctl.hosts.probe.nvidia import GpuRow, read_apps, read_csv, read_list
from llmgwctl.hosts.probe.nvidia_text import read_query, read_table
from llmgwctl.hosts.probe.nvidia_xml import Report, read_xml

Fact = None | bool | int | float | str | Sequence["Fact"] | dict[str, "Fact"]


@dataclass(frozen=True, slots=True)
class Reading:
    """What a text says; a fact that it doesn't tell has no key, one that it tells to be absent is None.

    Sizes are MiB unless their key says so; `usable` is True, False, `degraded`, `partial` or `unknown`; `error` is a code.
    """

    kind: str
    facts: dict[str, Fact] = field(default_factory=dict)

    def __getitem__(self, key: str) -> Fact:
        return self.facts[key]

    def __contains__(self, key: object) -> bool:
        return key in self.facts

    def get(self, key: str, default: Fact = None) -> Fact:
        """Return a fact, or the default where the text doesn't tell it."""
        return self.facts.get(key, default)


def read(kind: str, text: str, exit_code: int | None = None, *, command: str = "") -> Reading:
    """Read a captured text by its kind. Raises ValueError for a kind that is not known.

    `command` is what was run, where it is known: it names the columns of a list without header.
    """
    if kind not in READERS:
        raise ValueError(f"no reader for {kind!r}; known are {', '.join(sorted(READERS))}")
    reader = READERS[kind]
    facts = reader(text, exit_code, _fields(command))
    return Reading(kind, facts)


_Facts = dict[str, Fact]


def _fields(command: str) -> tuple[str, ...]:
    """Return the fields that a `--query-…=` option names; none where the command is told in other words."""
    for word in command.split():
        name, _, rest = word.partition("=")
        if name.startswith("--query-") and rest and "<" not in rest:
            return tuple(rest.split(","))
    return ()


def _failed(failure: Failure) -> _Facts:
    facts: _Facts = {"usable": "unknown" if failure.usable is None else failure.usable, "error": failure.code}
    facts["user_message"] = failure.message
    if failure.gpus is not None:
        facts["gpus"] = "unknown" if failure.gpus < 0 else failure.gpus
    return facts


def _failure(text: str, exit_code: int | None, _: Sequence[str]) -> _Facts:
    failure = read_failure(text, exit_code)
    if failure is None:
        return {"usable": "unknown", "error": "unreadable", "user_message": f"Not understood: {text.strip()[:160]}"}
    return _failed(failure)


def _amd_failure(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    if "no json data" in text.lower():
        message = "rocm-smi prints no JSON for this question; amd-smi replaces it."
        return {"usable": "unknown", "error": "rocm_smi_no_json", "user_message": message}
    return _failure(text, exit_code, fields)


_HEALTH_MESSAGES = {
    "gpu_requires_reset": "{0} requires a reset.",
    "gpu_lost": "{0} has fallen off the bus; reboot the host.",
    "gpu_handle_unknown_error": "{0} does not answer.",
    "gpu_sensor_error": "{0}: a sensor reads ERR!.",
    "gpu_reset_required": "{0}: row remapping is pending; reset or reboot the host before scheduling on it.",
    "gpu_row_remap_failed": "{0}: remapping a memory row failed; the card must be replaced.",
    "fabric_not_ready": "{0}: the NVLink fabric is not ready, so CUDA fails; look at nvidia-fabricmanager.",
}
_DEGRADED = frozenset({"gpu_reset_required", "gpu_sensor_error"})


def health_message(code: str, gpu: str) -> str:
    """Say in a sentence what a GPU's health code means; `gpu` names it."""
    return _HEALTH_MESSAGES.get(code, "{0}: " + code).format(gpu)


def _health(gpus: Iterable[GpuRow]) -> _Facts:
    rows = list(gpus)
    sick = [g for g in rows if g.health != "ok"]
    if not sick:
        return {"usable": True}
    worst = next((g for g in sick if g.health not in _DEGRADED), sick[0])
    message = " ".join(
        health_message(
            g.health, f"GPU {g.index if g.index is not None else '?'}" + (f" ({g.product})" if g.product else "")
        )
        for g in sick
    )
    if len(sick) < len(rows):
        usable: Fact = "partial" if worst.health not in _DEGRADED else "degraded"
    else:
        usable = "degraded" if worst.health in _DEGRADED else False
    return {"usable": usable, "error": worst.health, "user_message": message}


def _gpus(rows: Sequence[GpuRow]) -> _Facts:
    facts: _Facts = {
        "gpus": len(rows),
        "models": [g.product for g in rows],
        "memory_total_mib": [g.total_mib for g in rows],
        "memory_used_mib": [g.used_mib for g in rows],
        "unified_memory": any(g.unified for g in rows),
        "vgpu": any(g.virtual for g in rows),
        "gpu_classes": [classify(g.product, g.total_mib, unified=g.unified) for g in rows],
        "mig_mode": [g.mig_mode for g in rows],
        **_health(rows),
    }
    classes = (
        sorted({c for c in facts["gpu_classes"] if isinstance(c, str)})
        if isinstance(facts["gpu_classes"], list)
        else []
    )
    facts["gpu_class"] = classes[0] if len(classes) == 1 else UNKNOWN
    if facts["unified_memory"] and "user_message" not in facts:
        shared = ", ".join(str(g.index if g.index is not None else i) for i, g in enumerate(rows) if g.unified)
        facts["user_message"] = f"GPU {shared} shares system memory; GPU memory comes from /proc/meminfo."
    return facts


def _csv(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    rows = read_csv(text, fields)
    if not rows:
        return _failure(text, exit_code, fields)
    driver = next((g.driver for g in rows if g.driver), None)
    facts = _gpus(rows)
    if driver:
        facts["driver_version"] = driver
    facts["fabric_state"] = [g.fabric_state for g in rows]
    facts["ecc"] = [g.ecc for g in rows]
    facts["utilization_gpu"] = [g.utilization for g in rows]
    facts["compute_cap"] = [g.compute_cap for g in rows]
    failure = read_failure(text, exit_code)
    if failure and exit_code and "error" not in facts:
        facts.update(usable="partial", error=failure.code, user_message=failure.message)
    return facts


def _mig(rows: Sequence[GpuRow]) -> list[Fact]:
    slices = [(g, m) for g in rows for m in g.mig]
    several = len(rows) > 1
    found: list[Fact] = []
    for _, m in slices:
        entry: dict[str, Fact] = {"index": m.index}
        if several:
            entry["gpu"] = m.gpu
        for key, item in (
            ("profile", m.profile or None),
            ("uuid", m.uuid or None),
            ("gi", m.gi),
            ("ci", m.ci),
            ("memory_total_mib", m.total_mib),
            ("memory_used_mib", m.used_mib),
        ):
            if item is not None:
                entry[key] = item
        found.append(entry)
    return found


def _list(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    rows = read_list(text)
    if not rows:
        return _failure(text, exit_code, fields)
    return {"gpus": len(rows), "models": [g.product for g in rows], **_health(rows), "mig_instances": _mig(rows)}


def _apps(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    found = read_apps(text, fields)
    failure = None if found else read_failure(text, exit_code) if text.strip() or exit_code else None
    if failure:
        return _failed(failure)
    memory: list[Fact] = [p.used_mib for p in found]
    return {"processes": len(found), "process_memory_mib": memory, "pids": [p.pid for p in found], "usable": True}


def _report(report: Report) -> _Facts:
    facts = _gpus(report.gpus)
    facts.update(
        driver_version=report.driver,
        cuda_version=report.cuda,
        attached_gpus_field=report.attached,
        ecc=[g.ecc for g in report.gpus],
        remap_pending=[g.remap_pending for g in report.gpus],
        fabric_state=[g.fabric_state for g in report.gpus],
        persistence_mode=[g.persistence for g in report.gpus],
        processes=sum(len(g.processes) for g in report.gpus),
        mig_instances=_mig(report.gpus),
    )
    if report.dtd:
        facts["dtd"] = report.dtd
    if not report.complete:
        facts.update(_truncated(len(report.gpus)))
    elif report.truncated:
        facts["warnings"] = [f"{report.attached} GPUs are attached, {len(report.gpus)} are printed: output truncated"]
    return facts


def _truncated(count: int) -> _Facts:
    message = f"nvidia-smi's output is cut after {count} GPUs; there may be more."
    return {"usable": "unknown", "error": "nvidia_smi_output_truncated", "user_message": message}


def _xml(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    report = read_xml(text)
    return _failure(text, exit_code, fields) if report is None else _report(report)


def _query(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    report = read_query(text)
    return _report(report) if report.gpus else _failure(text, exit_code, fields)


def _table(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    found = read_table(text)
    if not found.gpus:
        return _failure(text, exit_code, fields)
    facts = _gpus(found.gpus)
    per_gpu = [p for g in found.gpus for p in g.processes]
    facts.update(
        driver_version=found.driver,
        cuda_version=found.cuda,
        processes=len(found.processes) + len(per_gpu),
        mig_instances=_mig(found.gpus),
    )
    if found.fan_errors:
        fans = ", ".join(map(str, found.fan_errors))
        cut = any(g.product.endswith("...") for g in found.gpus)
        note = "; name is truncated in the table, use --query-gpu for the model" if cut else ""
        facts["user_message"] = f"GPU {fans}: fan sensor reads ERR!{note}."
    if found.foreign:
        facts["foreign_use"] = found.foreign
    if found.truncated:
        facts.update(_truncated(len(found.gpus)), gpus=f">={len(found.gpus)} (output cut)")
    failure = read_failure(text.partition("+--")[0], exit_code)
    if failure and failure.code != "empty_payload" and "error" not in facts:
        facts.update(usable="partial", error=failure.code, user_message=failure.message)
    return facts


def _topology(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    found = nvidia_links.read_topology(text)
    if not found.gpus:
        return _failure(text, exit_code, fields)
    return {
        "gpus": found.gpus,
        "nics": found.nics,
        "links": dict(found.links),
        "numa": dict(found.numa),
        "nvlink_all_to_all": found.nvlink_all_to_all,
        "nvlink_count": found.nvlink_count,
        "nearest_nic": dict(found.nearest_nic),
        "usable": True,
    }


def _nvlink(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    found = nvidia_links.read_nvlink(text)
    return (
        {"gpus": found.gpus, "nvlink": found.summary, "usable": True}
        if found.gpus
        else _failure(text, exit_code, fields)
    )


def _pmon(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    if not text.lstrip().startswith("#"):
        return _failure(text, exit_code, fields)
    found = nvidia_links.read_pmon(text)
    return {"processes": len(found), "pids": [pid for _, pid, _ in found], "usable": True}


def _version(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    driver, cuda = nvidia_links.read_version(text)
    if driver is None:
        return _failure(text, exit_code, fields)
    return {"driver_version": driver, "cuda_version": cuda, "usable": True}


def _amd(report: amd.AmdReport | None, text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    if report is None or not report.gpus:
        return _amd_failure(text, exit_code, fields)
    gpus = report.gpus
    classes = [classify(g.product, g.total_mib, pci_device_id=g.device_id) for g in gpus]
    facts: _Facts = {
        "gpus": len(gpus),
        "models": [g.product or UNKNOWN for g in gpus],
        "memory_total_mib": [g.total_mib for g in gpus],
        "memory_used_mib": [g.used_mib for g in gpus],
        "gpu_class": classes[0] if len(set(classes)) == 1 else UNKNOWN,
        "gpu_classes": list(classes),
        "usable": True,
    }
    if report.driver:
        facts["driver_version"] = report.driver
    if len({g.device_id for g in gpus}) == 1 and gpus[0].device_id:
        facts["device_id"] = gpus[0].device_id
    if gpus[0].compute_partition:
        first = gpus[0]
        partition: dict[str, Fact] = {"compute": first.compute_partition, "memory": first.memory_partition}
        partition["id"] = first.partition_id
        facts["partition"] = partition
    return facts


def _npu(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    chips = accelerators.read_npu(text) or accelerators.read_npu_mapping(text)
    if not chips:
        return _failure(text, exit_code, fields)
    facts: _Facts = {
        "gpus": len(chips),
        "cards": len({c.card for c in chips}),
        "models": [c.product for c in chips],
        "memory_total_mib": [c.total_mib for c in chips],
        "memory_used_mib": [c.used_mib for c in chips],
        "devices": [c.device for c in chips],
        "gpu_classes": [classify(c.product, c.total_mib) for c in chips],
        "usable": True,
    }
    sick = [c for c in chips if c.health.upper() != "OK"]
    if sick:
        names = " and ".join(f"NPU {c.card}" for c in sick)
        health = " / ".join(sorted({c.health for c in sick}))
        facts.update(usable="degraded", error="npu_health_warning", user_message=f"{names}: health is {health}.")
    return facts


def _xpu(text: str, exit_code: int | None, fields: Sequence[str]) -> _Facts:
    found = accelerators.read_xpu(text)
    if not found:
        return _failure(text, exit_code, fields)
    memory: list[Fact] = [x.total_mib for x in found]
    return {"gpus": len(found), "models": [x.product for x in found], "memory_total_mib": memory, "usable": True}


def _lspci(text: str, *_: object) -> _Facts:
    found = [d for d in accelerators.read_lspci(text)]
    nvidia = [d for d in found if d.vendor == "10de"]
    return {
        "nvidia_functions": len(nvidia),
        "gpus_3d": sum(d.kind == "0302" for d in nvidia),
        "nvswitch_bridges": sum(d.is_nvswitch for d in nvidia),
        "gpus_vga": sum(d.kind == "0300" for d in nvidia),
        "amd_gpus": sum(d.vendor == "1002" and (d.is_display or d.kind == "1200") for d in found),
        "unsupported": list(accelerators.unsupported(tuple(found), ())),
    }


def _cgroup(text: str, *_: object) -> _Facts:
    values = system.read_cgroup(text)
    limit = next(
        (system.limit_bytes(values[k]) for k in ("memory.max", "memory.limit_in_bytes", "") if k in values), None
    )
    shown: dict[str, Fact] = {k: v for k, v in values.items() if k}
    facts: _Facts = {"values": shown, "memory_limit_mib": None if limit is None else limit // (1024 * 1024)}
    cpus = values.get("cpuset.cpus.effective") or values.get("cpuset.cpus")
    facts["cpus"] = system.cpu_count(cpus) if cpus else None
    facts["quota_millicores"] = system.quota_millicores(values.get("cpu.max", ""))
    return facts


def _cpuinfo(text: str, *_: object) -> _Facts:
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


def _lscpu(text: str, *_: object) -> _Facts:
    cells = system.read_lscpu(text)
    facts: _Facts = {key: cells[name] for key, name in _LSCPU_NAMES.items() if name in cells}
    if "CPU(s)" in cells:
        facts["cpus"] = number(cells["CPU(s)"])
    facts["cpu_max_mhz"] = system.decimal(cells.get("CPU max MHz"))
    return facts


def _meminfo(text: str, *_: object) -> _Facts:
    found = system.read_meminfo(text)
    if not found.total_kb:
        return _no_memory()
    facts: _Facts = {
        "mem_total_mib": found.total_kb // 1024,
        "mem_available_mib": None if found.available_kb is None else found.available_kb // 1024,
    }
    if found.hugepages is not None:
        facts.update(hugepages_total=found.hugepages, hugepage_kb=found.hugepage_kb)
    if found.swap_kb is not None:
        facts["swap_total_mib"] = found.swap_kb // 1024
    return facts


def _no_memory() -> _Facts:
    return {
        "error": "meminfo_invalid",
        "user_message": "The container reports 0 total memory (lxcfs bug); RAM unknown.",
    }


def _free(text: str, *_: object) -> _Facts:
    found = system.read_free(text)
    if found is None or found[0] <= 0 or found[1] < 0:
        return _no_memory()
    return {"mem_total_mib": found[0] // 1024, "mem_available_mib": found[1] // 1024}


def _df(text: str, *_: object) -> _Facts:
    found = storage.read_df(text)
    facts: _Facts = {"filesystems": len(found), "paths": [f.path for f in found]}
    facts["by_path"] = {f.path: {"size_kib": f.size_kib, "avail_kib": f.available_kib} for f in found}
    root = next((f for f in found if f.path == "/"), None)
    if root:
        facts["root"] = {"size_kib": root.size_kib, "avail_kib": root.available_kib}
    if len(found) == 1:
        gib = found[0].available_kib / 1024**2
        facts["path"] = found[0].path
        facts["avail"] = f"about {gib:.0f} GiB" if found[0].rough else f"{gib:.1f} GiB"
    return facts


def _dmesg(text: str, *_: object) -> _Facts:
    found = processes.read_xids(text)
    facts: _Facts = {"xid": [x.number for x in found], "pci": [x.pci for x in found], "usable": True}
    fatal = [x for x in found if x.number in processes.XID_FATAL]
    if fatal:
        first = fatal[0]
        codes = {79: "gpu_lost", 119: "gpu_xid_119_gsp_timeout", 120: "gpu_xid_119_gsp_timeout"}
        facts.update(
            usable="degraded",
            error=codes.get(first.number, f"gpu_xid_{first.number}"),
            user_message=f"GPU at {first.pci} reported Xid {first.number} "
            f"({processes.XID_MEANINGS.get(first.number, 'error')}) - reset or reboot needed.",
        )
    return facts


def _ports(read_ports: Callable[[str], tuple[network.Port, ...]], count: str) -> Callable[..., _Facts]:
    def facts_of(text: str, exit_code: int | None, _: Sequence[str]) -> _Facts:
        ports = read_ports(text)
        active = [p for p in ports if p.active]
        facts: _Facts = {
            count: len(ports) if count == "ports" else len({p.device for p in ports}),
            "active": len(active),
            "down": len(ports) - len(active),
            "infiniband_active": sum(not p.ethernet for p in active),
            "ethernet_active": sum(p.ethernet for p in active),
            "fabric": network.fabric_of(ports),
        }
        if exit_code and ports:
            message = f"The tool failed with status {exit_code} after {len(ports)} ports; what it printed is used."
            facts.update(usable="partial", error="ibstat_partial", user_message=message)
        elif not ports:
            failure = read_failure(text, exit_code)
            facts.update(_failed(failure) if failure else {})
            facts.pop("gpus", None)
        return facts

    return facts_of


def _ibdev2netdev(text: str, *_: object) -> _Facts:
    found = network.read_ibdev2netdev(text)
    silent = sum(d.interface.startswith("ib") and not d.ip_up for d in found)
    return {
        "hcas": len(found),
        "up": sum(d.ip_up for d in found),
        "note": f"Down is the IP side only: the {silent} ibp* adapters may be a working InfiniBand fabric without IPoIB, "
        "so this command must not decide",
    }


def _listeners(text: str, *_: object) -> _Facts:
    found = processes.read_listeners(text)
    engines = [(processes.engine_of(x.process), x) for x in found]
    known = [(name, x) for name, x in engines if name]
    listening: list[Fact] = [{"port": x.port, "addr": x.address, "process": x.process, "pid": x.pid} for x in found]
    shown: list[Fact] = [{"engine": name, "port": x.port, "pid": x.pid} for name, x in known]
    facts: _Facts = {"listening": listening, "engines": shown}
    for name, x in known:
        rivals = {y.pid for other, y in known if y.port == x.port and y.address == x.address and other == name}
        if len(rivals) > 1:
            facts.update(
                error="port_shared_by_two_engines",
                user_message=f"{'Two' if len(rivals) == 2 else len(rivals)} {_TITLES.get(name, name)} servers listen on "
                f"{x.address}:{x.port} (SO_REUSEPORT); each gets a part of the requests, and one may have a dead engine.",
            )
            break
    return facts


_TITLES = {"vllm": "vLLM", "sglang": "SGLang", "llamacpp": "llama.cpp", "ollama": "Ollama"}


def _ps(text: str, *_: object) -> _Facts:
    found = processes.read_ps(text)
    engines: list[Fact] = []
    facts: _Facts = {"processes": len(found), "engines": engines}
    for process in found:
        name = processes.engine_of(process.command)
        orphan = process.parent == 1 and bool(_WORKER.search(process.command))
        if name:
            engines.append({"engine": name, "pid": process.pid, "orphan": orphan})
        if name and orphan and "error" not in facts:
            title = process.command.split()[0]
            stuck = process.state[:1] in ("R", "D")
            message = f"{title} (pid {process.pid}) is orphaned (parent 1)"
            message += (
                " and cannot be killed; the GPU stays busy until a reboot." if stuck else "; it keeps its GPU's memory."
            )
            facts.update(error="engine_orphan", user_message=message)
        if process.state.startswith("D") and "nvidia-smi" in process.command:
            facts.update(
                usable=False,
                error="driver_hung",
                user_message=f"nvidia-smi (pid {process.pid}) hangs in the driver (state D); reboot the host.",
            )
    return facts


_WORKER = re.compile(r"VLLM::|sglang::|EngineCore|Worker_TP|scheduler_")


def _banner(text: str, *_: object) -> _Facts:
    parts = shells.split_banner(text)
    rows = read_list("\n".join(parts.payload))
    facts: _Facts = {"banner_lines": len(parts.banner), "payload": list(parts.payload)}
    if rows:
        facts.update({k: v for k, v in _gpus(rows).items() if k in ("gpus", "models", "gpu_class", "usable")})
    if not parts.payload:
        facts.update(error="remote_shell_not_clean", user_message="The login shell prints text, and no answer follows.")
    return facts


READERS: dict[str, Callable[[str, int | None, Sequence[str]], _Facts]] = {
    "amd-smi-failure": _amd_failure,
    "amd-smi-json": lambda t, e, f: _amd(amd.read_amd_json(t), t, e, f),
    "amd-smi-static": lambda t, e, f: _amd(amd.read_amd_text(t), t, e, f),
    "banner-polluted": _banner,
    "cgroup": _cgroup,
    "df": _df,
    "dmesg": _dmesg,
    "free": _free,
    "ibdev2netdev": _ibdev2netdev,
    "ibstat": _ports(network.read_ibstat, "cas"),
    "ibstatus": _ports(network.read_ibstatus, "ports"),
    "ibv_devinfo": _ports(network.read_ibv_devinfo, "hcas"),
    "lscpu": _lscpu,
    "lscpu-json": _lscpu,
    "lspci": _lspci,
    "npu-smi": _npu,
    "nvidia-smi-L": _list,
    "nvidia-smi-compute-apps": _apps,
    "nvidia-smi-csv": _csv,
    "nvidia-smi-failure": _failure,
    "nvidia-smi-nvlink": _nvlink,
    "nvidia-smi-pmon": _pmon,
    "nvidia-smi-q": _query,
    "nvidia-smi-table": _table,
    "nvidia-smi-topo": _topology,
    "nvidia-smi-version": _version,
    "nvidia-smi-xml": _xml,
    "proc-cpuinfo": _cpuinfo,
    "proc-meminfo": _meminfo,
    "ps": _ps,
    "rocm-smi-failure": _amd_failure,
    "rocm-smi-json": lambda t, e, f: _amd(amd.read_rocm_json(t), t, e, f),
    "rocm-smi-table": lambda t, e, f: _amd(amd.read_rocm_table(t), t, e, f),
    "ss-ltnp": _listeners,
    "xpu-smi": _xpu,
}
