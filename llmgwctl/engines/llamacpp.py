"""llama.cpp: `llama-server`, on GPUs of one node or on CPU cores alone."""

from __future__ import annotations

import re
from collections.abc import Iterable

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.engines import common
from llmgwctl.engines.base import MemberSite, Problem
from llmgwctl.engines.flags import Grammar, Rule, check_args, flag_value, names_flag

ALL_LAYERS = "999"
"""More than any model has; the word `all` is understood by newer builds only."""

_SLOTS = ("-np", "--parallel")
_THREADS = ("-t", "--threads")
_LAYERS = ("-ngl", "--gpu-layers", "--n-gpu-layers")
_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(:[\w.-]+)?\Z")
_REMOTE = "It lets clients run code or reach other servers through this host."
_KEY = "A key would keep the readiness check out; keys for clients are the gateway's matter."
_TOKEN = (
    "A token in a command line is seen by everybody on the host: write `HF_TOKEN: {from_env: HF_TOKEN}` into `env`."
)
_SOURCE = "The model is the model's `source`."
_GRAMMAR = Grammar(
    "llama-server",
    owned=(
        Rule(("-hft", "--hf-token"), _TOKEN),
        Rule(("-m", "--model", "-mu", "--model-url", "-dr", "--docker-repo", "-hf*", "--hf-*", "--*-default"), _SOURCE),
        Rule(("--models-*",), "One server serves one model: write another entry under `models`."),
        Rule(("-a", "--alias"), "Names are the model's `name` and `aliases`."),
        Rule(("--host",), "The address is the host's `listen`, or else its `address`."),
        Rule(("--port",), "The port is given by the placement; a fixed one is the profile's `port`."),
        Rule(("--reuse-port",), "Two servers must never share a port."),
        Rule(("-c", "--ctx-size"), "Write the model's `context_length`: what each request may use."),
        Rule(
            ("-kvu", "--kv-unified", "-no-kvu", "--no-kv-unified", "--kv-unified-per-slot"),
            "Each slot has the model's whole `context_length`; `-np N` says how many slots.",
        ),
        Rule(("--api-key", "--api-key-file"), _KEY),
        Rule(("--api-prefix", "--ssl-*"), "Plain HTTP at `/` is what is checked and routed."),
        Rule(("--embedding", "--embeddings"), "Write the model's `capabilities: {embeddings: true}`."),
        Rule(("--rerank", "--reranking"), "Serving a reranker is not supported."),
        Rule(("--metrics",), "It is always on."),
        Rule(("--tools*", "--mcp*", "-ag", "--agent", "--ui-mcp-proxy", "--webui-mcp-proxy"), _REMOTE),
        Rule(("--rpc",), "Its protocol has no protection, so a replica runs on one node."),
        Rule(("-dev", "--device"), "Which GPUs a replica sees is decided by its placement."),
        Rule(("--sleep-idle-seconds",), "It unloads the model while the server still calls itself healthy."),
        Rule(("--log-file",), "The log is kept in the replica's folder: `llmgwctl logs`."),
    ),
    gone=(
        Rule(("--draft-max", "--draft", "--draft-n"), "Write `--spec-draft-n-max N`."),
        Rule(("--draft-min", "--draft-n-min"), "Write `--spec-draft-n-min N`."),
        Rule(("--mlock", "--no-mmap"), "Write `--load-mode MODE` (`-lm`)."),
    ),
)


class LlamaCpp:
    """The adapter for llama-server; checked against b11434."""

    name = "llamacpp"
    cpu_capable = True

    def check(self, model: Model, profile: Profile) -> tuple[Problem, ...]:
        """Return everything that stands against running this profile with llama.cpp."""
        return (
            *common.check_common(model, profile, cpu_capable=True),
            *_check_names(model),
            *_check_source(model),
            *_check_nodes(profile),
            *check_args(profile.args, _GRAMMAR),
            *_check_slots(model, profile),
        )

    def ports_needed(self, profile: Profile) -> int:
        """Return 1."""
        return 1

    def launch(self, model: Model, profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> LaunchSpec:
        """Return `llama-server …`, with only such flags as old and new builds know.

        Context, layers and threads are always said, because what is left out llama.cpp makes smaller or larger on its
        own. `tp` and `pp` have no flag: layers are spread over all GPUs that the replica has.
        """
        site = sites[rank]
        words = (*_model_words(model), *_place_words(site), *_size_words(model, profile, site), *profile.args)
        return LaunchSpec(
            folder=site.folder,
            engine=self.name,
            argv=(*(site.install.command or ("llama-server",)), *words),
            env=common.merge_env(site, profile, {"NO_COLOR": "1"}, _fixed_env(site)),
            gpus=common.uuids(site),
            device_env=common.device_env(site),
            files=(),
            address=site.address,
            port=site.port,
            readiness=Readiness("/health", "/v1/models", model.name),
            # With a request in flight it leaves at once only on the second TERM.
            stop=StopPolicy(grace_s=3.0, second_term=True, second_grace_s=2.0),
            startup_timeout_s=profile.startup_timeout_s,
        )


def _check_names(model: Model) -> Iterable[Problem]:
    places = [("model.name", model.name, None), *(("model.aliases", a, i) for i, a in enumerate(model.aliases))]
    for field, name, index in places:
        if "," in name:
            yield Problem(
                field, f"llama.cpp can't serve the name {name!r}", "It separates names by commas: use none.", index
            )


def _check_source(model: Model) -> Iterable[Problem]:
    if not common.is_path(model.source) and not _HUB_ID.match(model.source):
        yield Problem(
            "model.source",
            f"llama.cpp can't load {model.source!r}",
            "Write the path of a .gguf file on the host from `/` on, or a Hugging Face id `org/name:quantisation`.",
        )


def _check_nodes(profile: Profile) -> Iterable[Problem]:
    if profile.nodes > 1:
        yield Problem("nodes", "llama.cpp runs on one node", "Write `nodes: 1`, or use the engine vllm or sglang.")


def _check_slots(model: Model, profile: Profile) -> Iterable[Problem]:
    if not names_flag(profile.args, *_SLOTS):
        return
    value = flag_value(profile.args, *_SLOTS)
    if value is None or not value.isdecimal() or not 1 <= int(value) <= 1024:
        yield Problem(
            "args", "`-np` needs the number of slots", "Write two entries: '-np' and a number from 1 to 1024."
        )
    elif int(value) > 1 and model.context_length is None:
        yield Problem(
            "args",
            f"`-np {value}` needs the model's `context_length`",
            "Without it llama.cpp divides the model's own context by the slots, and long requests fail.",
        )


def _model_words(model: Model) -> tuple[str, ...]:
    names = ",".join((model.name, *model.aliases))
    return ("-m" if common.is_path(model.source) else "-hf", model.source, "--alias", names)


def _place_words(site: MemberSite) -> tuple[str, ...]:
    return ("--host", site.address, "--port", str(site.port))


def _size_words(model: Model, profile: Profile, site: MemberSite) -> tuple[str, ...]:
    """Return context, slots, layers and threads.

    llama.cpp divides `-c` by the slots, so it is the model's context times the slots; 0 is the model's own context.
    Its threads spin, so there are never more than the cores that the profile asks for.
    """
    slots = int(flag_value(profile.args, *_SLOTS) or 1)
    words = ["-c", str((model.context_length or 0) * slots), "--no-kv-unified", "--metrics"]
    if not names_flag(profile.args, *_SLOTS):
        words += ["-np", "1"]
    if not names_flag(profile.args, *_LAYERS):
        words += ["-ngl", ALL_LAYERS if site.gpus else "0"]
    if not names_flag(profile.args, *_THREADS):
        words += ["-t", str(common.whole_cores(profile))]
    if model.capabilities.embeddings:
        words.append("--embeddings")
    return tuple(words)


def _fixed_env(site: MemberSite) -> dict[str, str]:
    """Return what keeps a build with GPU support off the GPUs where the replica has none."""
    return common.device_order(site) if site.gpus else {"CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
