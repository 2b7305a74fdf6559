"""What the adapters share: names, environment, addresses and the checks that hold for every engine."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Container, Iterable, Mapping

from llmgwctl.domain.catalog import Env, EnvValue, Model, Profile
from llmgwctl.engines.base import MemberSite, Problem
from llmgwctl.engines.flags import MAX_ARG_BYTES

GPU_SELECTORS = frozenset(
    {
        "CUDA_VISIBLE_DEVICES",
        "CUDA_DEVICE_ORDER",
        "NVIDIA_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "GPU_DEVICE_ORDINAL",
        "ZE_AFFINITY_MASK",
    }
)
"""Variables that say which GPUs a process sees; only a placement says that."""

_INSTALLATIONS_OWN = frozenset({"LD_PRELOAD", "LD_AUDIT"})
_REFUSED_ENV: tuple[tuple[tuple[str, ...], str], ...] = (
    (tuple(sorted(GPU_SELECTORS)), "Which GPUs a replica sees is decided by its placement."),
    (
        tuple(sorted(_INSTALLATIONS_OWN)),
        "It would load code into the engine; set it in `engines` of the host or the settings.",
    ),
    (("VLLM_PORT", "SGLANG_PORT"), "Ports are given by the placement; a fixed one is the profile's `port`."),
    (("VLLM_HOST_IP", "HOST_IP", "SGLANG_HOST_IP"), "The address is the host's `listen`, or else its `address`."),
    (
        ("VLLM_API_KEY", "LLAMA_API_KEY"),
        "A key here would keep the readiness check out. Keys for clients are the gateway's; engines listen on the "
        "host's address only.",
    ),
    (("VLLM_ENGINE_READY_TIMEOUT_S",), "The time allowed for a start is the profile's `startup_timeout`."),
    (("VLLM_RPC_BASE_PATH",), "Sockets live in the replica's own folder, so that nothing of them is left behind."),
    (
        ("MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "NODE_RANK"),
        "How members find each other is decided by the placement.",
    ),
)
_REFUSED_ENV_PREFIXES: tuple[tuple[str, str], ...] = (
    ("LLAMA_ARG_", "llama-server reads it like a flag: write the flag into `args`."),
    ("LLMGWCTL_", "These names are ours."),
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def check_common(model: Model, profile: Profile, *, cpu_capable: bool) -> tuple[Problem, ...]:
    """Return what no engine can do: unusable names, sources and variables, or no GPU where one is needed."""
    found = [*_check_names(model), *_check_source(model), *check_env(profile.env)]
    if profile.gpu_class is None and not cpu_capable:
        found.append(
            Problem(
                "gpu_class",
                f"the engine {profile.engine} can't run without a GPU",
                "Write the profile's `gpu_class`, or use the engine llamacpp.",
            )
        )
    return tuple(found)


def check_env(env: Env) -> tuple[Problem, ...]:
    """Return a problem for each variable that a profile may not set."""
    return tuple(p for name, value in env for p in _check_variable(name, value, "a profile's env"))


def check_install_env(env: Env) -> tuple[Problem, ...]:
    """Return a problem for each variable that an installation may not set."""
    return tuple(
        p
        for name, value in env
        for p in _check_variable(name, value, "an installation's env", allowed=_INSTALLATIONS_OWN)
    )


def is_path(source: str) -> bool:
    """Whether a model's source is a path on the host rather than a Hugging Face id."""
    return source.startswith("/")


def merge_env(site: MemberSite, profile: Profile, defaults: Mapping[str, str], fixed: Mapping[str, str]) -> Env:
    """Return the environment of one member.

    A later one wins: the adapter's `defaults`, the installation's, the profile's, and what the adapter must have
    (`fixed`). An installation can't select GPUs: those names are left out of it.
    """
    merged: dict[str, EnvValue] = dict(defaults)
    merged.update((name, value) for name, value in site.install.env if name not in GPU_SELECTORS)
    merged.update(profile.env)
    merged.update(fixed)
    return tuple(sorted(merged.items(), key=lambda pair: pair[0]))


def device_env(site: MemberSite) -> str:
    """Return the variable that selects this member's GPUs; empty where it has none."""
    if not site.gpus:
        return ""
    return "ROCR_VISIBLE_DEVICES" if site.gpus[0].vendor == "amd" else "CUDA_VISIBLE_DEVICES"


def device_order(site: MemberSite) -> dict[str, str]:
    """Return what makes CUDA number GPUs as nvidia-smi does."""
    return {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"} if device_env(site) == "CUDA_VISIBLE_DEVICES" else {}


def uuids(site: MemberSite) -> tuple[str, ...]:
    """Return the member's GPUs, in the order of their indices."""
    return tuple(gpu.uuid for gpu in site.gpus)


def hub_env(model: Model) -> dict[str, str]:
    """Return what keeps an engine off the network: always for telemetry, for weights where they are local."""
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"} if is_path(model.source) else {}
    return {"DO_NOT_TRACK": "1", "HF_HUB_DISABLE_TELEMETRY": "1", "NO_COLOR": "1", **offline}


def reach(site: MemberSite) -> str:
    """Return where other members reach this one: its address, or its host's where it listens everywhere."""
    return (site.host_address or site.node) if site.address in {"0.0.0.0", "::", "*"} else site.address


def host_and_port(host: str, port: int) -> str:
    """Return `host:port`, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_ip(address: str) -> bool:
    """Whether this is an address and not a name."""
    try:
        ipaddress.ip_address(address)
    except ValueError:
        return False
    return True


def whole_cores(profile: Profile) -> int:
    """Return the cores that a member may keep busy: at least one."""
    return max(1, profile.millicores // 1000)


def _check_names(model: Model) -> Iterable[Problem]:
    yield from _check_name("model.name", model.name, None)
    for index, alias in enumerate(model.aliases):
        yield from _check_name("model.aliases", alias, index)


def _check_name(field: str, name: str, index: int | None) -> Iterable[Problem]:
    if name.startswith("-"):
        yield Problem(field, f"{name!r} begins with a dash", "An engine would take it for a flag: rename it.", index)
    if "\0" in name:
        yield Problem(field, f"{name!r} holds a NUL character", "No program can be given one: leave it out.", index)


def _check_source(model: Model) -> Iterable[Problem]:
    source = model.source
    if "\0" in source or len(source.encode("utf-8", "surrogatepass")) > MAX_ARG_BYTES:
        yield Problem("model.source", "the source can't be given to any program", "Write a path or an id.")
    elif source.startswith("-"):
        yield Problem("model.source", f"{source!r} begins with a dash", "An engine would take it for a flag.")
    elif source.startswith(("./", "../", "~")):
        yield Problem(
            "model.source",
            f"{source!r} is not a whole path",
            "Write the path on the host from `/` on, or a Hugging Face id such as `org/name`.",
        )


def _check_variable(
    name: str, value: EnvValue, whose: str, *, allowed: Container[str] = frozenset()
) -> Iterable[Problem]:
    if not _ENV_NAME.match(name):
        yield Problem(f"env.{name}", f"{name!r} is not a name for a variable", "Use letters, digits and `_` only.")
    elif isinstance(value, str) and "\0" in value:
        yield Problem(f"env.{name}", f"the value of {name} holds a NUL character", "Remove it.")
    instead = next((text for names, text in _REFUSED_ENV if name in names), None) or next(
        (text for prefix, text in _REFUSED_ENV_PREFIXES if name.startswith(prefix)), None
    )
    if instead and name not in allowed:
        yield Problem(f"env.{name}", f"{name} is not for {whose}", instead)
