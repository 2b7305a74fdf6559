"""The inventory as a table for people."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.domain.inventory import Gpu, Node
from llmgwctl.domain.observation import Observation
from llmgwctl.render.text import count, plain, table


def inventory_text(observation: Observation) -> str:
    """Return one line a host, one a GPU that isn't plainly free and healthy, and every warning."""
    rows = [_row(n) for n in observation.nodes]
    parts = [table(("host", "OS", "supervisor", "cores", "memory", "GPUs", "free", "replicas", "engines"), rows)]
    gpus = [
        (n.name, g.index, g.uuid, g.product, g.gpu_class, _memory(g), g.health, g.taken_by or "free")
        for n in observation.nodes
        for g in n.gpus
        if g.health != "ok" or g.taken_by or g.mig
    ]
    if gpus:
        parts.append(table(("host", "GPU", "UUID", "product", "class", "memory used", "health", "taken by"), gpus))
    notes = [f"{n.name}: {plain(w)}" for n in observation.nodes for w in _notes(n)]
    if notes:
        parts.append("\n".join(notes))
    unreachable = sum(not n.reachable for n in observation.nodes)
    total = sum(len(n.gpus) for n in observation.nodes)
    parts.append(
        f"{count(len(observation.nodes), 'host')}, {count(total, 'GPU')}"
        + (f"; {unreachable} can't be reached." if unreachable else ".")
    )
    return "\n\n".join(parts)


def _row(node: Node) -> tuple[object, ...]:
    if not node.reachable:
        return (node.name, "unreachable", "", "", "", "", "", "", "")
    free = sum(g.usable and g.taken_by is None for g in node.gpus)
    return (
        node.name,
        node.os or "?",
        node.supervisor or "?",
        "?" if node.millicores is None else f"{node.millicores / 1000:g}",
        "?" if node.memory_mib is None else f"{node.memory_mib / 1024:.1f} GB",
        ", ".join(_classes(node.gpus)) or "none",
        free if node.gpus else "-",
        len({r.id for r in node.replicas}) or "-",
        ", ".join(f"{k} {v}".strip() for k, v in sorted(node.engines_found.items())) or "-",
    )


def _classes(gpus: Iterable[Gpu]) -> list[str]:
    counts: dict[str, int] = {}
    for gpu in gpus:
        name = f"{gpu.gpu_class} (pretended)" if gpu.pretended else gpu.gpu_class
        counts[name] = counts.get(name, 0) + 1
    return [f"{n}x {name}" for name, n in sorted(counts.items())]


def _memory(gpu: Gpu) -> str:
    used = "?" if gpu.used_mib is None else str(gpu.used_mib)
    return f"{used} of {'the host' if gpu.memory_mib is None else f'{gpu.memory_mib} MiB'}"


def _notes(node: Node) -> list[str]:
    if not node.reachable:
        return [f"can't be reached: {node.error}"]
    return [*node.warnings, *(f"{what} is present, and not supported" for what in node.unsupported)]
