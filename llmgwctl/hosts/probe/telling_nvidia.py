"""Tells what nvidia-smi's texts say, as plain facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from llmgwctl.domain.gpu_classes import UNKNOWN, classify
from llmgwctl.hosts.probe import nvidia_links
from llmgwctl.hosts.probe.failures import read_failure
from llmgwctl.hosts.probe.nvidia import GpuRow, read_apps, read_csv, read_list
from llmgwctl.hosts.probe.nvidia_text import read_query, read_table
from llmgwctl.hosts.probe.nvidia_xml import Report, read_xml
from llmgwctl.hosts.probe.telling import DEGRADED, Fact, Facts, failed, failure_facts, health_message


def _health(gpus: Iterable[GpuRow]) -> Facts:
    rows = list(gpus)
    sick = [g for g in rows if g.health != "ok"]
    if not sick:
        return {"usable": True}
    worst = next((g for g in sick if g.health not in DEGRADED), sick[0])
    message = " ".join(
        health_message(
            g.health, f"GPU {g.index if g.index is not None else '?'}" + (f" ({g.product})" if g.product else "")
        )
        for g in sick
    )
    if len(sick) < len(rows):
        usable: Fact = "partial" if worst.health not in DEGRADED else "degraded"
    else:
        usable = "degraded" if worst.health in DEGRADED else False
    return {"usable": usable, "error": worst.health, "user_message": message}


def _named(gpu: GpuRow) -> str:
    number_ = "?" if gpu.index is None else str(gpu.index)
    return f"GPU {number_} ({gpu.product})" if gpu.product else f"GPU {number_}"


def gpus_facts(rows: Sequence[GpuRow]) -> Facts:
    """Return what every list of GPUs tells."""
    classes = [classify(g.product, g.total_mib, unified=g.unified) for g in rows]
    facts: Facts = {
        "gpus": len(rows),
        "models": [g.product for g in rows],
        "memory_total_mib": [g.total_mib for g in rows],
        "memory_used_mib": [g.used_mib for g in rows],
        "unified_memory": any(g.unified for g in rows),
        "vgpu": any(g.virtual for g in rows),
        "gpu_class": classes[0] if len(set(classes)) == 1 else UNKNOWN,
        "gpu_classes": list(classes),
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


def csv_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `--query-gpu`."""
    rows = read_csv(text, fields)
    if not rows:
        return failure_facts(text, exit_code, fields)
    driver = next((g.driver for g in rows if g.driver), None)
    facts = gpus_facts(rows)
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


def list_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `-L`."""
    rows = read_list(text)
    if not rows:
        return failure_facts(text, exit_code, fields)
    return {"gpus": len(rows), "models": [g.product for g in rows], **_health(rows), "mig_instances": _mig(rows)}


def apps_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `--query-compute-apps`."""
    found = read_apps(text, fields)
    failure = None if found else read_failure(text, exit_code) if text.strip() or exit_code else None
    if failure:
        return failed(failure)
    memory: list[Fact] = [p.used_mib for p in found]
    return {"processes": len(found), "process_memory_mib": memory, "pids": [p.pid for p in found], "usable": True}


def _report(report: Report) -> Facts:
    facts = gpus_facts(report.gpus)
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


def _truncated(count: int) -> Facts:
    message = f"nvidia-smi's output is cut after {count} GPUs; there may be more."
    return {"usable": "unknown", "error": "nvidia_smi_output_truncated", "user_message": message}


def xml_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `-q -x`."""
    report = read_xml(text)
    return failure_facts(text, exit_code, fields) if report is None else _report(report)


def query_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `-q`."""
    report = read_query(text)
    return _report(report) if report.gpus else failure_facts(text, exit_code, fields)


def table_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read the table for people."""
    found = read_table(text)
    if not found.gpus:
        return failure_facts(text, exit_code, fields)
    facts = gpus_facts(found.gpus)
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


def topology_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `topo -m`."""
    found = nvidia_links.read_topology(text)
    if not found.gpus:
        return failure_facts(text, exit_code, fields)
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


def nvlink_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `nvlink --status`."""
    found = nvidia_links.read_nvlink(text)
    return (
        {"gpus": found.gpus, "nvlink": found.summary, "usable": True}
        if found.gpus
        else failure_facts(text, exit_code, fields)
    )


def pmon_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `pmon`."""
    if not text.lstrip().startswith("#"):
        return failure_facts(text, exit_code, fields)
    found = nvidia_links.read_pmon(text)
    return {"processes": len(found), "pids": [pid for _, pid, _ in found], "usable": True}


def version_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `--version`."""
    driver, cuda = nvidia_links.read_version(text)
    if driver is None:
        return failure_facts(text, exit_code, fields)
    return {"driver_version": driver, "cuda_version": cuda, "usable": True}
