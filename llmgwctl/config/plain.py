"""Nouns of the catalog in the form of the YAML, to be shown or written."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from llmgwctl.config.models import CAPABILITIES
from llmgwctl.domain.catalog import Env, Model, Profile, SecretRef, Update


def plain_model(model: Model) -> dict[str, Any]:
    """Return a model in the form of the YAML, defaults filled in, absent values left out."""
    entry: dict[str, Any] = {
        "name": model.name,
        "aliases": list(model.aliases),
        "source": model.source,
        "owner": model.owner,
        "class": model.model_class.value,
        "scaling": {"min": model.scaling.min, "max": model.scaling.max},
        "fallbacks": list(model.fallbacks),
        "routing_profile": model.routing_profile,
        "slo": _without_empty({"ttft_p99": _ms(model.slo.ttft_p99_ms), "tpot_p99": _ms(model.slo.tpot_p99_ms)}),
        "context_length": model.context_length,
        "max_output": model.max_output,
        "capabilities": {k: True for k in CAPABILITIES if getattr(model.capabilities, k)},
        "update": {"strategy": model.update.strategy.value, "max_unavailable": model.update.max_unavailable}
        if model.update != Update()
        else None,
        "priority": model.priority or None,
        "prevent_stop": model.prevent_stop or None,
        "profiles": [plain_profile(p) for p in model.profiles],
    }
    return _without_empty(entry)


def plain_profile(profile: Profile) -> dict[str, Any]:
    """Return a profile in the form of the YAML, defaults filled in, absent values left out."""
    return _without_empty(
        {
            "name": profile.name,
            "engine": profile.engine,
            "gpu_class": profile.gpu_class,
            "tp": profile.tp,
            "pp": profile.pp,
            "gpus_per_node": profile.gpus_per_node or None,
            "nodes": profile.nodes,
            "args": list(profile.args),
            "env": plain_env(profile.env),
            "min_memory_gb": _number(Decimal(profile.memory_mib) / 1024) or None,
            "cpu_cores": _number(Decimal(profile.millicores) / 1000) or None,
            "node_selector": dict(profile.node_selector),
            "weight": _number(Decimal(str(profile.weight))),
            "priority": profile.priority,
            "startup_timeout": f"{Decimal(str(profile.startup_timeout_s)).normalize():f}s",
            "port": profile.port,
        }
    )


def plain_env(env: Env) -> dict[str, Any]:
    """Return environment variables in the form of the YAML."""
    return {name: _plain_secret(value) if isinstance(value, SecretRef) else value for name, value in env}


def _plain_secret(secret: SecretRef) -> Mapping[str, Any]:
    return {secret.kind: list(secret.source) if secret.kind == "from_command" else secret.source[0]}


def _ms(duration_ms: int | None) -> str | None:
    return None if duration_ms is None else f"{duration_ms}ms"


def _number(value: Decimal) -> int | float:
    return int(value) if value == int(value) else float(value)


def _without_empty(entry: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in entry.items() if v is not None and v not in ([], {})}
