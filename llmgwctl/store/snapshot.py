"""The inventory snapshot: what all hosts showed at one time, as a file to plan from."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llmgwctl.domain.inventory import Disk, Gpu, MigInstance, Node, ObservedReplica, Phase
from llmgwctl.domain.observation import Observation
from llmgwctl.errors import LlmgwctlError
from llmgwctl.planner.naming import model_of
from llmgwctl.store.codec import CodecError
from llmgwctl.store.documents import DocumentError, parse, read_text, version_of
from llmgwctl.store.fields import Fields
from llmgwctl.store.records import REPLICA_ID, is_time

FORMAT_VERSION = "1.0"
_MAJOR = 1
_LAST_PORT = 65535
_MOST_GB, _MOST_MIB, _MOST = 10_000_000, 1_000_000_000, 10**12
"""Far above what any host has: what is larger is a slip."""

_DEFAULT_ROOT = "/var/lib/llmgwctl/replicas"


def snapshot_document(observation: Observation) -> dict[str, Any]:
    """Return the snapshot as plain values; `memory_gb` is GiB."""
    return {
        "format_version": FORMAT_VERSION,
        "taken_at": observation.taken_at,
        "nodes": [_node_document(n) for n in observation.nodes],
    }


def read_snapshot(path: Path) -> Observation:
    """Return the observation in a snapshot file. Raises LlmgwctlError naming the node and the key that do not fit.

    What is not known is let be: a newer 1.x may say more.
    """
    try:
        data = parse(read_text(path))
    except FileNotFoundError:
        raise LlmgwctlError(f"The inventory {path} can't be read: there is no such file.") from None
    except DocumentError as problem:
        raise LlmgwctlError(f"The inventory {path} can't be read: {problem}.") from None
    try:
        top = Fields(data, "")
        version = top.needed_text("format_version")
        if (version_of(version) or (0, 0))[0] != _MAJOR:
            raise LlmgwctlError(f"The inventory {path} has format {version}, this llmgwctl reads {_MAJOR}.x.")
        taken_at = top.needed_text("taken_at")
        if not is_time(taken_at):
            raise top.wrong("taken_at", "a time like 2026-01-31T09:00:00Z")
        if not isinstance(data.get("nodes"), list):
            raise top.wrong("nodes", "a list") if "nodes" in data else top.lacks("nodes")
        nodes = [_node(fields) for fields in top.objects("nodes")]
        _must_differ([n.name for n in nodes], "the node {} stands twice")
        return Observation(taken_at, tuple(sorted(nodes, key=lambda n: n.name)))
    except CodecError as problem:
        raise LlmgwctlError(f"The inventory {path} does not fit: {problem}.") from None


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


def _node(fields: Fields) -> Node:
    name = fields.needed_text("name")
    fields.place = f"node {name!r}: "
    ports = fields.wholes("ephemeral_ports", 0, _LAST_PORT) or (32768, 60999)
    if len(ports) != 2 or ports[0] > ports[1]:
        raise fields.wrong("ephemeral_ports", "a first and a last port")
    gpus = tuple(_gpu(g) for g in fields.objects("gpus"))
    _must_differ([g.uuid for g in gpus], f"node {name!r}: the GPU {{}} stands twice")
    return Node(
        name=name,
        reachable=fields.flag("reachable", None),
        error=fields.optional_text("error"),
        millicores=_scaled(fields.number("cores", 0, 1_000_000), 1000),
        memory_mib=_scaled(fields.number("memory_gb", 0, _MOST_GB), 1024),
        memory_available_mib=_scaled(fields.number("memory_available_gb", 0, _MOST_GB), 1024),
        labels=tuple(sorted(fields.text_map("labels").items())),
        fabric=fields.optional_text("fabric"),
        os=fields.text("os"),
        supervisor=fields.text("supervisor"),
        gpus=gpus,
        replicas=tuple(_replica(r) for r in fields.objects("replicas")),
        ports_in_use=fields.wholes("ports_in_use", 1, _LAST_PORT),
        ephemeral_ports=(ports[0], ports[1]),
        replica_root=_root(fields),
        boot_id=fields.text("boot_id"),
        machine=fields.text("machine"),
        disks=tuple(_disk(d) for d in fields.objects("disks")),
        engines_found=fields.text_map("engines"),
        commands_found=fields.text_map("commands"),
        unsupported=fields.texts("unsupported"),
        warnings=fields.texts("warnings"),
        clock_skew_s=fields.number("clock_skew_s", -_MOST, _MOST),
        replicas_hidden=fields.flag("replicas_hidden"),
    )


def _root(fields: Fields) -> str:
    root = fields.text("replica_root") or _DEFAULT_ROOT
    if not root.startswith("/"):
        raise fields.wrong("replica_root", "a path from / on")
    return root


def _disk(fields: Fields) -> Disk:
    total, available = (_scaled(fields.number(k, 0, _MOST), 1024) or 0 for k in ("total_gb", "available_gb"))
    return Disk(fields.needed_text("path"), total, available)


def _gpu(fields: Fields) -> Gpu:
    return Gpu(
        index=fields.needed_whole("index", 0, 9999),
        uuid=fields.needed_text("uuid"),
        product=fields.text("product"),
        gpu_class=fields.text("gpu_class") or "unknown",
        memory_mib=fields.whole("memory_mib", 0, _MOST_MIB),
        used_mib=fields.whole("used_mib", 0, _MOST_MIB),
        health=fields.text("health") or "ok",
        taken_by=fields.optional_text("taken_by"),
        vendor=fields.text("vendor") or "nvidia",
        unified=fields.flag("unified"),
        pretended=fields.flag("pretended"),
        numa_node=fields.whole("numa_node", -1, 9999),
        pci_bus_id=fields.text("pci_bus_id"),
        mig=tuple(
            MigInstance(
                m.needed_text("uuid"),
                m.text("profile"),
                m.whole("gpu_instance", 0, 9999),
                m.whole("memory_mib", 0, _MOST_MIB),
            )
            for m in fields.objects("mig")
        ),
    )


def _replica(fields: Fields) -> ObservedReplica:
    identity = fields.needed_text("id")
    if REPLICA_ID.fullmatch(identity) is None:
        raise fields.wrong("id", "MODEL/INDEX")
    folder = fields.text("folder")
    if "/" in folder or "\0" in folder or folder in (".", ".."):
        raise fields.wrong("folder", "a folder's name")
    phase = fields.text("phase") or "unknown"
    if phase not in {p.value for p in Phase}:
        raise fields.wrong("phase", "one of " + ", ".join(p.value for p in Phase))
    return ObservedReplica(
        id=identity,
        member=fields.whole("member", 0, 9999) or 0,
        model=fields.text("model") or model_of(identity),
        profile=fields.text("profile"),
        launch_digest=fields.text("launch_digest"),
        gpus=fields.texts("gpus"),
        port=fields.whole("port", 0, _LAST_PORT) or 0,
        phase=Phase(phase),
        lineage=fields.text("lineage"),
        folder=folder,
        engine=fields.text("engine"),
        restarts=fields.whole("restarts", 0, _MOST) or 0,
        pid=fields.whole("pid", 0, _MOST),
        detail=fields.text("detail"),
        vanished=fields.flag("vanished"),
    )


def _must_differ(values: Sequence[str], words: str) -> None:
    if len(set(values)) < len(values):
        raise CodecError(words.format(repr(next(v for v in values if values.count(v) > 1))))


def _scaled(value: float | None, factor: int) -> int | None:
    return None if value is None else round(value * factor)


def _plain(value: float) -> int | float:
    """Return whole numbers as such, so that 64 cores are not 64.0."""
    rounded = round(value, 3)
    return int(rounded) if rounded == int(rounded) else rounded
