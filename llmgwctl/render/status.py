"""What runs, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from llmgwctl.domain.inventory import Node, Phase
from llmgwctl.render.text import table


@dataclass(frozen=True, slots=True)
class StatusRow:
    """One recorded replica; `endpoint` is where its head answers, `age` is for people."""

    replica: str
    model: str
    profile: str
    engine: str
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    gpu_indices: tuple[int, ...]
    port: int
    phase: Phase
    endpoint: str
    since: str
    age: str
    owner: str | None
    model_class: str
    standing: str
    simulated: bool
    source: str
    detail: str = ""


def status_document(rows: Sequence[StatusRow], nodes: Sequence[Node]) -> dict[str, Any]:
    """Return the status as plain values."""
    return {
        "replicas": [
            {
                "replica": r.replica,
                "model": r.model,
                "profile": r.profile,
                "engine": r.engine,
                "node": r.nodes[0],
                "nodes": list(r.nodes),
                "gpus": list(r.gpus),
                "port": r.port,
                "phase": r.phase.value,
                "endpoint": r.endpoint,
                "since": r.since,
                "owner": r.owner,
                "class": r.model_class,
                "standing": r.standing,
                "simulated": r.simulated,
                "source": r.source,
                "detail": r.detail,
            }
            for r in rows
        ],
        "hosts": [{"name": n.name, "reachable": n.reachable, "error": n.error} for n in nodes],
    }


def status_text(rows: Sequence[StatusRow], nodes: Sequence[Node]) -> str:
    """Return the status as a table, and the hosts that could not be seen."""
    if not rows:
        text = "Nothing of ours runs."
    else:
        text = table(
            ("replica", "engine", "host", "GPUs", "port", "phase", "age", "endpoint"),
            [
                (
                    r.replica,
                    f"{r.engine} (simulated)" if r.simulated else r.engine,
                    ",".join(r.nodes),
                    ",".join(str(i) for i in r.gpu_indices) or "none",
                    r.port,
                    r.phase.value + (f": {r.detail}" if r.detail and r.phase is not Phase.READY else ""),
                    r.age,
                    r.endpoint,
                )
                for r in rows
            ],
        )
    unseen = [f"Host {n.name} can't be reached: {n.error}" for n in nodes if not n.reachable]
    return "\n".join([text, *([""] if unseen else []), *unseen])
