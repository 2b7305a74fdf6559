"""Models, profiles and sites for the tests of engines, and how a launch reads as text."""

from __future__ import annotations

from dataclasses import replace

from llmgwctl.domain.catalog import Capabilities, Model, Profile, SecretRef
from llmgwctl.domain.desired import EngineInstall
from llmgwctl.domain.inventory import Gpu
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.engines.base import MemberSite


def profile(engine: str, **fields) -> Profile:
    gpus = fields.pop("gpus_per_node", 1)
    defaults = {"gpu_class": "h100-80gb" if gpus else None, "gpus_per_node": gpus}
    return Profile(**{"name": "p", "engine": engine, **defaults, **fields})


def model(source: str = "/models/chat", **fields) -> Model:
    return Model(name=fields.pop("name", "chat"), source=source, profiles=(), **fields)


def site(node: str = "a", address: str = "10.0.0.1", gpus: int = 1, port: int = 20000, **fields) -> MemberSite:
    vendor = fields.pop("vendor", "nvidia")
    devices = tuple(Gpu(i, f"GPU-{node}{i}", "H100", "h100-80gb", 81559, vendor=vendor) for i in range(gpus))
    defaults = {"install": EngineInstall(), "folder": "chat.0.0", "folder_path": "/var/lib/llmgwctl/replicas/chat.0.0"}
    return MemberSite(**{"node": node, "address": address, "gpus": devices, "port": port, **defaults, **fields})


def sites(count: int, gpus: int) -> tuple[MemberSite, ...]:
    base = site(gpus=gpus)
    return tuple(
        replace(
            site("ab"[rank], f"10.0.0.{rank + 1}", gpus, port=20000 + 100 * rank),
            folder=f"chat.0.{rank}",
            folder_path=base.folder_path[:-1] + str(rank),
        )
        for rank in range(count)
    )


def shown(spec: LaunchSpec) -> str:
    """Return a launch as text: one flag with its values a line, then the environment and the rest."""
    lines: list[str] = []
    for word in spec.argv:
        if word.startswith("-") or not lines or (len(lines) == 1 and " " not in lines[0] and word in {"serve"}):
            lines.append(word) if word.startswith("-") or not lines else lines.__setitem__(0, f"{lines[0]} {word}")
        else:
            lines[-1] += f" {word}"
    env = [f"{k}={f'<{v}>' if isinstance(v, SecretRef) else v}" for k, v in spec.env]
    ready = spec.readiness
    return "\n".join(
        [
            *lines,
            "env:",
            *(f"  {e}" for e in env),
            f"gpus: {' '.join(spec.gpus) or 'none'} by {spec.device_env or 'nothing'}",
            f"listens: {spec.address} {spec.port}, {spec.ports} port(s)",
            f"ready: {ready.health_path or 'while it lives'} {ready.models_path} {ready.served_name}".rstrip()
            + f", {ready.timeout_s:g} s",
            f"stop: TERM {spec.stop.grace_s:g} s" + (f", TERM {spec.stop.second_grace_s:g} s" * spec.stop.second_term),
            f"files: {' '.join(spec.files) or 'none'}",
            "",
        ]
    )


EMBEDDINGS = Capabilities(embeddings=True)
TOOLS = Capabilities(tools=True)
