"""The first configuration that `init` writes: the hosts that were looked at, and a model that runs at once."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from llmgwctl.config.scalars import core_scalar
from llmgwctl.domain.desired import Connection, Host
from llmgwctl.domain.inventory import Gpu, Node

SCHEMA_FILE = "llmgwctl.schema.json"
"""Beside the configuration, and named by its place from there, so that it holds for everybody who shares it."""

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./@+-]*")
_PRETENDED_CLASS = "demo"
_OLD_BOOLEANS = frozenset({"y", "n", "yes", "no", "on", "off"})  # what YAML 1.1 tools would take them for


def scaffold(nodes: Sequence[Node], hosts: Sequence[Host]) -> str:
    """Return the text of a small, valid, commented configuration in its normal form.

    `nodes` are what was seen of `hosts`, by name. Where no host has a usable GPU, the first one pretends two, so that
    plan and apply work at once; the model is served by the simulated engine either way.
    """
    seen = {node.name: node for node in nodes}
    ordered = sorted(hosts, key=lambda h: h.name)
    classes = sorted({gpu.gpu_class for host in ordered for gpu in _usable(seen.get(host.name))})
    lines = [
        f"# yaml-language-server: $schema={SCHEMA_FILE}",
        f"# Editors complete and check by {SCHEMA_FILE}; `llmgwctl init --schema` writes it anew.",
        "#",
        "# What runs where. `llmgwctl plan` shows what would change, `llmgwctl apply` does it.",
        "# All *.yaml files of this directory are read together; split this one as you like.",
        "",
        "hosts:",
    ]
    for number, host in enumerate(ordered):
        lines += _host(host, seen.get(host.name), pretend=not classes and number == 0)
    lines += ["", *_models(classes[0] if classes else _PRETENDED_CLASS, real=bool(classes)), "", *_quotas()]
    return "\n".join(lines) + "\n"


def _host(host: Host, node: Node | None, *, pretend: bool) -> list[str]:
    lines = [f"  # {line}" for line in _found(node)] if node else []
    lines.append(f"  - name: {_scalar(host.name)}")
    local = host.connection is Connection.LOCAL
    default_address = "127.0.0.1" if local else host.name
    if host.connection is not Connection.SSH:
        lines.append(f"    connection: {host.connection.value}")
    if host.address != default_address:
        lines.append(f"    address: {_scalar(host.address)}")
    if host.user is not None:
        lines.append(f"    user: {_scalar(host.user)}")
    if host.port is not None:
        lines.append(f"    port: {host.port}")
    if pretend:
        lines.append("    # No GPU was found: these are pretended. Only the engine `sim` runs on them.")
        lines.append(f"    simulate: {{gpus: 2, gpu_class: {_PRETENDED_CLASS}}}")
    lines.append("    # reserve: {cores: 2, memory_gb: 4} # kept for others")
    return lines


def _found(node: Node) -> list[str]:
    if not node.reachable:
        return ["It could not be looked at."]
    cores = "" if node.millicores is None else f"{node.millicores / 1000:g} cores"
    memory = "" if node.memory_mib is None else f"{node.memory_mib / 1024:.1f} GiB of memory"
    lines = [f"Found: {', '.join(w for w in (cores, memory) if w)}."] if cores or memory else []
    groups: dict[tuple[str, str, int | None], int] = {}
    for gpu in node.gpus:
        key = (_one_line(gpu.product), gpu.gpu_class, gpu.memory_mib)
        groups[key] = groups.get(key, 0) + 1
    for (product, gpu_class, memory_mib), count in groups.items():
        size = "" if memory_mib is None else f", {memory_mib / 1024:.0f} GiB each"
        lines.append(f"{count} x {product} (gpu_class: {_one_line(gpu_class)}{size}).")
    return lines


def _usable(node: Node | None) -> list[Gpu]:
    return [gpu for gpu in node.gpus if gpu.usable and not gpu.pretended] if node and node.reachable else []


def _models(gpu_class: str, *, real: bool) -> list[str]:
    shown = _scalar(gpu_class)
    return [
        "models:",
        "  # `sim` is a small server that answers like an engine, with made-up text. It needs no weights.",
        "  - name: demo-model",
        "    source: sim/demo",
        "    scaling: {min: 1, max: 2}",
        "    profiles:",
        f"      - {{name: demo, engine: sim, gpu_class: {shown}}}",
        "  # A real one: vllm, sglang or llamacpp has to be installed on the host.",
        "  # - name: llama-8b",
        "  #   source: meta-llama/Llama-3.1-8B-Instruct # or a path on the host",
        "  #   owner: team:search",
        "  #   scaling: {min: 1}",
        "  #   profiles:",
        "  #     - name: one-gpu",
        f"  #       gpu_class: {shown if real else 'h100-80gb'}",
        "  #       min_memory_gb: 16",
        "  #       env: {HF_TOKEN: {from_env: HF_TOKEN}} # never the token itself",
    ]


def _quotas() -> list[str]:
    return [
        "# Who may use how much. A model counts against its owner, and against the scopes above it.",
        "quotas:",
        "  # org:acme: {limit: {gpus: 16}}",
        "  # team:search: {parent: org:acme, guarantee: {gpus: 8}}",
        "",
        "settings:",
        "  state: {path: llmgwctl.state.json}",
        "  # ssh: {user: llm, known_hosts: known_hosts}",
    ]


def _scalar(text: str) -> str:
    """Return a text as YAML; in quotes where it would mean something else without."""
    if _PLAIN.fullmatch(text) and isinstance(core_scalar(text), str) and text.lower() not in _OLD_BOOLEANS:
        return text
    return json.dumps(text, ensure_ascii=False)


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
