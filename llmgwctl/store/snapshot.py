"""The inventory snapshot: what all hosts showed at one time, as a file to plan from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from llmgwctl.domain.inventory import Disk, Gpu, MigInstance, Node, ObservedReplica, Phase
from llmgwctl.domain.observation import Observation
from llmgwctl.errors import LlmgwctlError

FORMAT_VERSION = "1.0"
_DEFAULT_ROOT = "/var/lib/llmgwctl/replicas"


def snapshot_document(observation: Observation) -> dict[str, Any]:
    """Return the snapshot as plain values; `memory_gb` is GiB."""
    return {
        "format_version": FORMAT_VERSION,
        "taken_at": observation.taken_at,
        "nodes": [_node_document(n) for n in observation.nodes],
    }


def read_snapshot(path: Path) -> Observation:
    """Return the observation in a snapshot file. Raises LlmgwctlError naming what does not fit."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as problem:
        raise LlmgwctlError(f"The inventory {path} can't be read: {problem}") from None
    try:
        if str(data["format_version"]).partition(".")[0] != "1":
            raise LlmgwctlError(f"The inventory {path} has format {data['format_version']}, this llmgwctl reads 1.x.")
        nodes = tuple(sorted((_node(n) for n in data["nodes"]), key=lambda n: n.name))
        return Observation(str(data["taken_at"]), nodes)
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise LlmgwctlError(f"The inventory {path} does not fit: {problem!r}.") from None


def _node_document(node: Node) -> dict[str, Any]:
    return {
        "name": node.name,
        "reachable": node.reachable,
        "error": node.error,
        "cores": None if node.millicores is None else _plain(node.millicores / 1000),
        "memory_gb": None if node.memory_mib is None else _plain(node.memory_mib / 1024),
        "memory_available_gb": None if node.memory_available_mib is None else _plain(node.memory_available_mib / 1024),
        "labels": dict(node.labels),
        "fabric": node.fabric,
        "os": node.os,
        "supervisor": node.supervisor,
        "gpus": [_gpu_document(g) for g in node.gpus],
        "replicas": [_replica_document(r) for r in node.replicas],
        "ports_in_use": list(node.ports_in_use),
        "ephemeral_ports": list(node.ephemeral_ports),
        "replica_root": node.replica_root,
        "boot_id": node.boot_id,
        "machine": node.machine,
        "disks": [
            {"path": d.path, "total_gb": _plain(d.total_mib / 1024), "available_gb": _plain(d.available_mib / 1024)}
            for d in node.disks
        ],
        "engines": dict(node.engines_found),
        "commands": dict(node.commands_found),
        "unsupported": list(node.unsupported),
        "warnings": list(node.warnings),
        "clock_skew_s": node.clock_skew_s,
        "replicas_hidden": node.replicas_hidden,
    }


def _gpu_document(gpu: Gpu) -> dict[str, Any]:
    document: dict[str, Any] = {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "product": gpu.product,
        "gpu_class": gpu.gpu_class,
        "memory_mib": gpu.memory_mib,
        "used_mib": gpu.used_mib,
        "health": gpu.health,
        "taken_by": gpu.taken_by,
        "vendor": gpu.vendor,
        "unified": gpu.unified,
        "pretended": gpu.pretended,
        "numa_node": gpu.numa_node,
        "pci_bus_id": gpu.pci_bus_id,
    }
    document["mig"] = [
        {"uuid": m.uuid, "profile": m.profile, "gpu_instance": m.gpu_instance, "memory_mib": m.memory_mib}
        for m in gpu.mig
    ]
    return document


def _replica_document(replica: ObservedReplica) -> dict[str, Any]:
    return {
        "id": replica.id,
        "member": replica.member,
        "model": replica.model,
        "profile": replica.profile,
        "launch_digest": replica.launch_digest,
        "gpus": list(replica.gpus),
        "port": replica.port,
        "phase": replica.phase.value,
        "lineage": replica.lineage,
        "folder": replica.folder,
        "engine": replica.engine,
        "restarts": replica.restarts,
        "pid": replica.pid,
        "detail": replica.detail,
        "vanished": replica.vanished,
    }


def _node(data: dict[str, Any]) -> Node:
    low, high = data.get("ephemeral_ports") or (32768, 60999)
    return Node(
        name=data["name"],
        reachable=data["reachable"],
        error=data.get("error"),
        millicores=_scaled(data.get("cores"), 1000),
        memory_mib=_scaled(data.get("memory_gb"), 1024),
        memory_available_mib=_scaled(data.get("memory_available_gb"), 1024),
        labels=tuple(sorted((data.get("labels") or {}).items())),
        fabric=data.get("fabric"),
        os=data.get("os") or "",
        supervisor=data.get("supervisor") or "",
        gpus=tuple(_gpu(g) for g in data.get("gpus") or ()),
        replicas=tuple(_replica(r) for r in data.get("replicas") or ()),
        ports_in_use=tuple(data.get("ports_in_use") or ()),
        ephemeral_ports=(int(low), int(high)),
        replica_root=data.get("replica_root") or _DEFAULT_ROOT,
        boot_id=data.get("boot_id") or "",
        machine=data.get("machine") or "",
        disks=tuple(
            Disk(d["path"], _scaled(d["total_gb"], 1024) or 0, _scaled(d["available_gb"], 1024) or 0)
            for d in data.get("disks") or ()
        ),
        engines_found=data.get("engines") or {},
        commands_found=data.get("commands") or {},
        unsupported=tuple(data.get("unsupported") or ()),
        warnings=tuple(data.get("warnings") or ()),
        clock_skew_s=data.get("clock_skew_s"),
        replicas_hidden=bool(data.get("replicas_hidden")),
    )


def _gpu(data: dict[str, Any]) -> Gpu:
    return Gpu(
        index=data["index"],
        uuid=data["uuid"],
        product=data.get("product") or "",
        gpu_class=data.get("gpu_class") or "unknown",
        memory_mib=data.get("memory_mib"),
        used_mib=data.get("used_mib"),
        health=data.get("health") or "ok",
        taken_by=data.get("taken_by"),
        vendor=data.get("vendor") or "nvidia",
        unified=bool(data.get("unified")),
        pretended=bool(data.get("pretended")),
        numa_node=data.get("numa_node"),
        pci_bus_id=data.get("pci_bus_id") or "",
        mig=tuple(
            MigInstance(m["uuid"], m.get("profile") or "", m.get("gpu_instance"), m.get("memory_mib"))
            for m in data.get("mig") or ()
        ),
    )


def _replica(data: dict[str, Any]) -> ObservedReplica:
    return ObservedReplica(
        id=data["id"],
        member=data.get("member") or 0,
        model=data.get("model") or data["id"].rpartition("/")[0],
        profile=data.get("profile") or "",
        launch_digest=data.get("launch_digest") or "",
        gpus=tuple(data.get("gpus") or ()),
        port=data.get("port") or 0,
        phase=Phase(data.get("phase") or "unknown"),
        lineage=data.get("lineage") or "",
        folder=data.get("folder") or "",
        engine=data.get("engine") or "",
        restarts=data.get("restarts") or 0,
        pid=data.get("pid"),
        detail=data.get("detail") or "",
        vanished=bool(data.get("vanished")),
    )


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)


def _plain(value: float) -> int | float:
    """Return whole numbers as such, so that 64 cores are not 64.0."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
