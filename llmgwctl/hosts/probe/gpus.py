"""Puts the GPUs of a host together: what they are, whether they work, who has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from llmgwctl.domain.desired import Host
from llmgwctl.domain.gpu_classes import UNKNOWN, classify
from llmgwctl.domain.inventory import Gpu, MigInstance, ObservedReplica, Phase
from llmgwctl.hosts.probe.accelerators import PciDevice
from llmgwctl.hosts.probe.amd import AmdGpu, AmdReport, read_amd_json, read_rocm_json
from llmgwctl.hosts.probe.failures import first_line, read_failure
from llmgwctl.hosts.probe.frames import Section
from llmgwctl.hosts.probe.nvidia import APPS_QUERY, QUERY, GpuProcess, GpuRow, MigRow, read_apps, read_csv, read_list
from llmgwctl.hosts.probe.nvidia_text import IDLE_MIB
from llmgwctl.hosts.probe.nvidia_xml import Report, read_xml
from llmgwctl.hosts.probe.telling import health_message

Used = tuple[Gpu, tuple[GpuProcess, ...]]
"""A GPU and the processes on it."""


def nvidia_gpus(sections: Mapping[str, Section], pci: Sequence[PciDevice]) -> tuple[list[Used], list[str]]:
    """Return NVIDIA's GPUs; keyed by UUID, with the printed index."""
    present = [d for d in pci if d.vendor == "10de" and d.is_display]
    if "nvidia-hung" in sections:
        return [], ["nvidia-smi hangs in the driver (state D), so it was not asked again: reboot the host."]
    late = ["nvidia-smi did not answer in time; the driver may hang."]
    warnings = late if "late-nvidia" in sections else []
    listed = sections.get("nvidia-csv")
    if listed is None:
        if present and not warnings:
            warnings.append(f"{_count(present)} built in, but nvidia-smi is not on the host: no driver?")
        return [], warnings
    rows = read_csv(listed.text, QUERY)
    report = read_xml(sections["nvidia-xml"].text) if "nvidia-xml" in sections else None
    if not rows and report:
        rows = tuple(replace(g, driver=report.driver) for g in report.gpus)
    if not rows or listed.status != 0:
        warnings.append(_nvidia_failure(listed, present, rows))
    rows = _with_report(rows, report)
    if rows and "nvidia-xml" in sections and report is None:
        warnings.append("nvidia-smi -q -x failed, so the GPUs' health is known only in part.")
    if report and report.truncated and report.complete:
        warnings.append(f"{report.attached} GPUs are attached, nvidia-smi describes {len(report.gpus)}.")
    if rows and present and len(present) > len(rows):
        warnings.append(f"{_count(present)} built in, {len(rows)} answer{'s' if len(rows) == 1 else ''}.")
    processes = _processes(rows, sections.get("nvidia-apps"))
    slices = read_list(sections["nvidia-list"].text) if "nvidia-list" in sections else ()
    rows = _with_fabric(rows, sections.get("fabric"), pci)
    numa = {_bus(d.address): d.numa_node for d in pci}
    found = []
    for place, row in enumerate(rows):
        if row.health != "ok":
            warnings.append(health_message(row.health, f"GPU {row.index if row.index is not None else place}"))
        gpu = _nvidia_gpu(place, row, numa, next((g.mig for g in slices if g.uuid == row.uuid), ()))
        found.append((gpu, processes.get(row.uuid, ())))
    return found, warnings


def _count(devices: Sequence[PciDevice]) -> str:
    return "1 NVIDIA GPU is" if len(devices) == 1 else f"{len(devices)} NVIDIA GPUs are"


def _nvidia_failure(listed: Section, present: Sequence[PciDevice], rows: Sequence[GpuRow]) -> str:
    failure = read_failure(listed.text, listed.status)
    said = failure.message if failure else f"nvidia-smi failed with status {listed.status}: {first_line(listed.text)}"
    if not rows and present:
        return f"{_count(present)} built in, but can't be used. {said}"
    return said


def _bus(address: str) -> str:
    """Return a PCI address in one form: nvidia-smi prints eight digits of domain, the kernel four."""
    domain, _, rest = address.lower().partition(":")
    return f"{domain[-4:].rjust(4, '0')}:{rest}"


def _with_report(rows: tuple[GpuRow, ...], report: Report | None) -> tuple[GpuRow, ...]:
    """Add what only the detailed report says; a row that is already known to be sick stays so."""
    if report is None:
        return rows
    by_uuid = {g.uuid: g for g in report.gpus if g.uuid}
    by_bus = {_bus(g.bus_id): g for g in report.gpus}
    merged = []
    for row in rows:
        more = by_uuid.get(row.uuid) or by_bus.get(_bus(row.bus_id))
        if more is not None:
            row = replace(  # noqa: PLW2901
                row,
                health=more.health if row.health == "ok" else row.health,
                processes=more.processes,
                mig=more.mig,
                fabric_state=more.fabric_state,
                product=row.product or more.product,
            )
        merged.append(row)
    return tuple(merged)


def _processes(rows: Iterable[GpuRow], apps: Section | None) -> dict[str, tuple[GpuProcess, ...]]:
    """Return each GPU's processes from both lists: neither shows all (graphics, or what runs in a slice)."""
    found: dict[str, dict[int, GpuProcess]] = {r.uuid: {p.pid: p for p in r.processes} for r in rows}
    for process in read_apps(apps.text, APPS_QUERY) if apps and apps.status == 0 else ():
        if process.gpu in found:
            found[process.gpu].setdefault(process.pid, process)
    return {uuid: tuple(p for _, p in sorted(by_pid.items())) for uuid, by_pid in found.items()}


def _with_fabric(rows: tuple[GpuRow, ...], fabric: Section | None, pci: Sequence[PciDevice]) -> tuple[GpuRow, ...]:
    """Mark the GPUs of a host with NVSwitch whose fabric manager doesn't run; where a state is printed, that counts.

    Without such bridges the fabric manager fails to start, and that is no fault.
    """
    if fabric is None or not any(d.is_nvswitch for d in pci) or fabric.text.strip() in ("active", "activating", ""):
        return rows
    return tuple(
        replace(r, health="fabric_not_ready")
        if r.health == "ok" and (r.fabric_state or "N/A").strip("[]").upper() == "N/A"
        else r
        for r in rows
    )


def _nvidia_gpu(place: int, row: GpuRow, numa: Mapping[str, int | None], listed: tuple[MigRow, ...]) -> Gpu:
    slices = row.mig or listed
    named = {m.index: m for m in listed}
    return Gpu(
        index=row.index if row.index is not None else place,
        uuid=row.uuid or f"unknown-{_bus(row.bus_id)}",
        product=row.product,
        gpu_class=classify(row.product, row.total_mib, unified=row.unified),
        memory_mib=row.total_mib,
        used_mib=row.used_mib,
        health=row.health,
        vendor="nvidia",
        unified=row.unified,
        numa_node=numa.get(_bus(row.bus_id)),
        pci_bus_id=row.bus_id,
        mig=tuple(
            MigInstance(
                uuid=named[m.index].uuid if m.index in named else m.uuid,
                profile=named[m.index].profile if m.index in named else m.profile,
                gpu_instance=m.gi,
                memory_mib=m.total_mib,
            )
            for m in slices
        ),
    )


def amd_gpus(sections: Mapping[str, Section], pci: Sequence[PciDevice]) -> tuple[list[Used], list[str]]:
    """Return AMD's GPUs."""
    present = [d for d in pci if d.vendor == "1002" and d.kind in ("0380", "0302", "1200")]
    report = _amd_report(sections)
    warnings = ["amd-smi or rocm-smi did not answer in time."] if "late-amd" in sections else []
    if report is None:
        asked = sections.get("rocm-smi") or sections.get("amd-smi")
        if asked is not None and (present or asked.status not in (0, 127)):
            failure = read_failure(asked.text, asked.status, tool="amd-smi")
            warnings.append(failure.message if failure else f"amd-smi failed with status {asked.status}.")
        elif present and not warnings:
            warnings.append(f"{len(present)} AMD GPUs are built in, but neither amd-smi nor rocm-smi is on the host.")
        return [], warnings
    numa = {_bus(d.address): d.numa_node for d in pci}
    ids = {_bus(d.address): f"0x{d.device}" for d in pci if d.vendor == "1002"}
    return [(_amd_gpu(g, numa, ids), ()) for g in report.gpus], warnings


def _amd_report(sections: Mapping[str, Section]) -> AmdReport | None:
    static = sections.get("amd-smi")
    if static is not None and static.status == 0:
        memory = sections.get("amd-memory")
        report = read_amd_json(static.text + "\n" + (memory.text if memory and memory.status == 0 else ""))
        if report is not None and report.gpus:
            return report
    old = sections.get("rocm-smi")
    report = read_rocm_json(old.text) if old is not None else None
    return report if report is not None and report.gpus else None


def _amd_gpu(gpu: AmdGpu, numa: Mapping[str, int | None], ids: Mapping[str, str]) -> Gpu:
    bus = _bus(gpu.bus_id) if gpu.bus_id else ""
    serial = gpu.unique_id.lower().removeprefix("0x")
    device = ids.get(bus) or gpu.device_id
    return Gpu(
        index=gpu.index,
        # The form that ROCm's own variables take; cards without a serial number go by their place on the bus.
        uuid=f"GPU-{serial.rjust(16, '0')}" if serial else f"AMD-{bus or gpu.index}",
        product=gpu.product or UNKNOWN,
        gpu_class=classify(gpu.product, gpu.total_mib, pci_device_id=device),
        memory_mib=gpu.total_mib,
        used_mib=gpu.used_mib,
        vendor="amd",
        numa_node=numa.get(bus),
        pci_bus_id=gpu.bus_id,
    )


def owned(
    found: Sequence[Used], replicas: Sequence[ObservedReplica], pids: Mapping[int, str]
) -> tuple[tuple[Gpu, ...], list[str]]:
    """Return the GPUs with who has each, and a warning where a foreign process is on a GPU of ours."""
    claims = {uuid: r.id for r in reversed(replicas) for uuid in r.gpus if _live(r)}
    gpus, warnings = [], []
    for gpu, processes in found:
        taken = claims.get(gpu.uuid)
        foreign = [p for p in processes if p.pid not in pids and not _desktop(p)]
        if taken is None:
            taken = _taken_by(gpu, processes, foreign, pids)
        elif foreign:
            warnings.append(f"GPU {gpu.index} belongs to {taken}, and {_named(foreign[0])} is on it as well.")
        gpus.append(replace(gpu, taken_by=taken))
    return tuple(gpus), warnings


def _live(replica: ObservedReplica) -> bool:
    """Whether a replica may hold its GPUs: a failed one holds them only by processes that are left."""
    return replica.phase is not Phase.FAILED


def _taken_by(
    gpu: Gpu, processes: Sequence[GpuProcess], foreign: Sequence[GpuProcess], pids: Mapping[int, str]
) -> str | None:
    if foreign:
        return _named(foreign[0])
    ours = [pids[p.pid] for p in processes if p.pid in pids]
    if ours:
        return ours[0]
    if gpu.unified or gpu.used_mib is None:
        return None
    unaccounted = gpu.used_mib - sum(p.used_mib or 0 for p in processes)
    return "unknown process" if unaccounted > IDLE_MIB and not gpu.mig else None


def _desktop(process: GpuProcess) -> bool:
    """Whether a process only draws a screen with little memory: an X server on an idle card takes it from nobody."""
    return process.kind == "G" and (process.used_mib or 0) <= IDLE_MIB


def _named(process: GpuProcess) -> str:
    name = process.name.strip().rpartition("/")[2] or "unnamed"
    return f"pid {process.pid} {name.split(' ')[0]}"


def pretended_gpus(host: Host, first_index: int, replicas: Sequence[ObservedReplica]) -> tuple[Gpu, ...]:
    """Return the GPUs that a real host only pretends to have; they are taken by what their replicas' folders say."""
    if host.simulate is None:
        return ()
    claims = {uuid: r.id for r in reversed(replicas) for uuid in r.gpus if _live(r)}
    kinds = [kind for kind in host.simulate.gpus for _ in range(kind.count)]
    return tuple(
        Gpu(
            index=first_index + place,
            uuid=f"SIM-{host.name}-{place}",
            product=f"Simulated {kind.gpu_class}",
            gpu_class=kind.gpu_class,
            memory_mib=kind.memory_mib,
            used_mib=0,
            taken_by=claims.get(f"SIM-{host.name}-{place}"),
            vendor="simulated",
            pretended=True,
        )
        for place, kind in enumerate(kinds)
    )
