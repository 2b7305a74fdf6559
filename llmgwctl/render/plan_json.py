"""The plan for programs, in the shape that other programs rely on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from llmgwctl import __version__
from llmgwctl.diagnostics import Diagnostic
from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.plan import Action, ActionKind, Cause, MemberPlacement, Plan, QuotaLine
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.domain.tenancy import CORES, MEMORY

FORMAT_VERSION = "1.0"
SENSITIVE = "(sensitive)"


def plan_document(plan: Plan, diagnostics: Sequence[Diagnostic] = ()) -> dict[str, Any]:
    """Return the plan as plain values. Same plan, same document."""
    return {
        "format_version": FORMAT_VERSION,
        "tool_version": __version__,
        "base": {"lineage": plan.lineage, "serial": plan.serial},
        "inventory_taken_at": plan.taken_at,
        "summary": {kind.value: plan.count(kind) for kind in ActionKind} | {"shortfall": len(plan.shortfalls)},
        "actions": [action_document(a) for a in plan.actions],
        "shortfalls": [
            {"model": s.model, "replica": s.replica, "causes": [_cause(c) for c in s.causes]} for s in plan.shortfalls
        ],
        "headroom_stops": [
            {"model": h.model, "running": h.running, "max": h.max, "code": h.code, "text": h.text}
            for h in plan.headroom_stops
        ],
        "quotas": [_quota(q) for q in plan.quotas],
        "drift": [{"replica": d.replica, "condition": d.condition.value, "text": d.text} for d in plan.drift],
        "diagnostics": [diagnostic_document(d) for d in (*diagnostics, *plan.diagnostics)],
    }


def action_document(action: Action) -> dict[str, Any]:
    """Return one action as plain values."""
    after = action.starts or action.kind in (ActionKind.KEEP, ActionKind.DEFER)
    return {
        "action": action.kind.value,
        "replica": action.replica,
        "model": action.model,
        "profile": action.profile,
        "engine": action.engine,
        "owner": action.owner,
        "class": action.model_class,
        "standing": action.standing.value,
        "simulated": action.simulated,
        "source": action.origin,
        "placement": [_placement(p) for p in action.placement],
        "before": _record(action.before) if action.before else None,
        "after": _launched(action.launches, action.placement) if after else None,
        "reason": {"code": action.reason.code.value, "text": action.reason.text, "for": action.reason.for_replica},
        "waits_for": list(action.waits_for),
    }


def diagnostic_document(diagnostic: Diagnostic) -> dict[str, Any]:
    """Return a diagnostic as plain values."""
    at = diagnostic.at
    return {
        "severity": diagnostic.severity.value,
        "summary": diagnostic.summary,
        "detail": diagnostic.detail,
        "file": at.file if at else None,
        "line": at.line if at else None,
        "column": at.column if at else None,
    }


def shown_env(launch: LaunchSpec, indices: Sequence[int] = ()) -> dict[str, str]:
    """Return a launch's environment for people: secrets by a word, the GPUs as the engine will see them."""
    env = {name: SENSITIVE if isinstance(value, SecretRef) else value for name, value in launch.env}
    if launch.device_env and launch.gpus:
        by_index = launch.device_env == "CUDA_VISIBLE_DEVICES"
        env[launch.device_env] = ",".join(str(i) for i in indices) if by_index else ",".join(launch.gpus)
    return env


def _placement(place: MemberPlacement) -> dict[str, Any]:
    return {
        "node": place.node,
        "gpus": list(place.gpus),
        "gpu_indices": list(place.gpu_indices),
        "port": place.port,
    }


def _record(record: ReplicaRecord) -> dict[str, Any]:
    places = tuple(MemberPlacement(m.node, m.gpus, m.gpu_indices, m.port) for m in record.members)
    document = _launched(tuple(m.launch for m in record.members), places)
    return document | {"placement": [_placement(p) for p in places]}


def _launched(launches: Sequence[LaunchSpec], places: Sequence[MemberPlacement]) -> dict[str, Any]:
    """Return the head's command, and every member's where there are several."""
    members = [
        {"node": p.node, "argv": list(launch.argv), "env": shown_env(launch, p.gpu_indices)}
        for launch, p in zip(launches, places, strict=True)
    ]
    head: dict[str, Any] = (
        {"argv": members[0]["argv"], "env": members[0]["env"]} if members else {"argv": [], "env": {}}
    )
    return head | ({"members": members} if len(members) > 1 else {})


def _cause(cause: Cause) -> dict[str, Any]:
    return {"code": cause.code, **dict(cause.numbers), "text": cause.text}


def _quota(line: QuotaLine) -> dict[str, Any]:
    def show(amount: int | None) -> int | float | None:
        if amount is None:
            return None
        value = amount / 1000 if line.resource == CORES else amount / 1024 if line.resource == MEMORY else amount
        return int(value) if value == int(value) else round(value, 3)

    return {
        "scope": line.scope,
        "resource": line.resource,
        "guarantee": show(line.guarantee),
        "limit": show(line.limit),
        "held_before": show(line.held_before),
        "held_after": show(line.held_after),
        "borrowed_after": show(line.borrowed_after),
    }
