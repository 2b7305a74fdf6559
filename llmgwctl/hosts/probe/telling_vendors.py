"""Tells what the tools of AMD and other makers say, and the PCI bus, as plain facts."""

from __future__ import annotations

from collections.abc import Sequence

from llmgwctl.domain.gpu_classes import UNKNOWN, classify
from llmgwctl.hosts.probe import accelerators, amd
from llmgwctl.hosts.probe.telling import Fact, Facts, failure_facts


def amd_failure(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read a failure of AMD's tools."""
    if "no json data" in text.lower():
        message = "rocm-smi prints no JSON for this question; amd-smi replaces it."
        return {"usable": "unknown", "error": "rocm_smi_no_json", "user_message": message}
    return failure_facts(text, exit_code, fields)


def amd_facts(report: amd.AmdReport | None, text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Return what a report of AMD's tools tells."""
    if report is None or not report.gpus:
        return amd_failure(text, exit_code, fields)
    gpus = report.gpus
    classes = [classify(g.product, g.total_mib, pci_device_id=g.device_id) for g in gpus]
    facts: Facts = {
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


def npu_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `npu-smi info`, with or without `-m`."""
    chips = accelerators.read_npu(text) or accelerators.read_npu_mapping(text)
    if not chips:
        return failure_facts(text, exit_code, fields)
    facts: Facts = {
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


def xpu_facts(text: str, exit_code: int | None, fields: Sequence[str]) -> Facts:
    """Read `xpu-smi discovery`."""
    found = accelerators.read_xpu(text)
    if not found:
        return failure_facts(text, exit_code, fields)
    memory: list[Fact] = [x.total_mib for x in found]
    return {"gpus": len(found), "models": [x.product for x in found], "memory_total_mib": memory, "usable": True}


def lspci_facts(text: str, *_: object) -> Facts:
    """Read `lspci -nn`."""
    found = accelerators.read_lspci(text)
    nvidia = [d for d in found if d.vendor == "10de"]
    return {
        "nvidia_functions": len(nvidia),
        "gpus_3d": sum(d.kind == "0302" for d in nvidia),
        "nvswitch_bridges": sum(d.is_nvswitch for d in nvidia),
        "gpus_vga": sum(d.kind == "0300" for d in nvidia),
        "amd_gpus": sum(d.vendor == "1002" and (d.is_display or d.kind == "1200") for d in found),
        "unsupported": list(accelerators.unsupported(found, ())),
    }
