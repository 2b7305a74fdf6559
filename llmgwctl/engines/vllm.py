"""vLLM: `vllm serve`, on one node or natively over several (no Ray)."""

from __future__ import annotations

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.engines import common
from llmgwctl.engines.base import MemberSite, Problem
from llmgwctl.engines.flags import Grammar, Rule, check_args, names_flag

READY_TIMEOUT_S = 86_400
"""vLLM gives up on its own engine after this; a day, so that `startup_timeout` decides and no restart is needed
when that one changes."""

_PLACED = "The placement decides it."
_OWNED = (
    Rule(("--model", "--model-tag"), "The model is the model's `source`."),
    Rule(("--served-model-name",), "Names are the model's `name` and `aliases`."),
    Rule(("--host", "--uds"), "The address is the host's `listen`, or else its `address`."),
    Rule(("--port",), "The port is given by the placement; a fixed one is the profile's `port`."),
    Rule(("--tensor-parallel-size", "-tp"), "Write the profile's `tp`."),
    Rule(("--pipeline-parallel-size", "-pp"), "Write the profile's `pp`."),
    Rule(
        ("--data-parallel-*", "-dp", "-dpn", "-dpr", "-dpl", "-dpa", "-dpp", "-dpb", "-dph", "-dpe"),
        "Data parallelism is more replicas: write the model's `scaling`.",
    ),
    Rule(
        ("--prefill-context-parallel-size", "-pcp"),
        "It would use more GPUs than `tp` and `pp` say, so it has no place.",
    ),
    Rule(("--nnodes", "-n"), "Write the profile's `nodes`."),
    Rule(("--node-rank", "-r", "--master-addr", "--master-port", "--headless"), _PLACED),
    Rule(("--distributed-executor-backend",), "Members find each other without Ray; llmgwctl chooses the backend."),
    Rule(("--device-ids",), "Which GPUs a replica sees is decided by its placement."),
    Rule(("--max-model-len",), "Write the model's `context_length`."),
    Rule(("--api-key",), "A key in a command line is seen by everybody on the host; keys are the gateway's matter."),
    Rule(("--runner",), "Write the model's `capabilities: {embeddings: true}`."),
    Rule(("--shutdown-timeout",), "Requests are drained before an engine is stopped."),
    Rule(("--config",), "Write every flag into `args`, so that a plan shows all of them."),
    Rule(("--api-server-count", "-asc"), "One API server answers for each replica: write the model's `scaling`."),
    Rule(
        ("--grpc*", "--root-path", "--ssl-*", "--enable-ssl-refresh"),
        "Plain HTTP at `/` is what is checked and routed.",
    ),
    Rule(("--middleware",), "It loads code into the server: put it into the installation instead."),
)
_CONVERT = Rule(("--convert",), "It goes with the model's `capabilities: {embeddings: true}` only.")
_GONE = (
    Rule(("--task",), "Embeddings are the model's `capabilities: {embeddings: true}`."),
    Rule(("--disable-log-requests",), "Requests are not logged by default; `--enable-log-requests` logs them."),
    Rule(("--guided-decoding-backend",), "Write `--structured-outputs-config`."),
    Rule(("--enable-reasoning",), "Write `--reasoning-parser NAME` alone."),
    Rule(("--speculative-model",), "Write `--speculative-config JSON`."),
    Rule(("--rope-scaling", "--rope-theta"), "Write `--hf-overrides JSON`."),
    Rule(("--override-pooler-config",), "Write `--pooler-config`."),
    Rule(("--device",), "The GPUs are decided by the placement: remove it."),
    Rule(
        (
            "--swap-space",
            "--num-scheduler-steps",
            "--max-seq-len-to-capture",
            "--use-v2-block-manager",
            "--num-lookahead-slots",
            "--preemption-mode",
            "--max-num-partial-prefills",
            "--disable-frontend-multiprocessing",
            "--full-cuda-graph",
            "--cuda-graph-sizes",
        ),
        "It was removed without a successor: remove it here too.",
    ),
)


def _grammar(*, embeddings: bool) -> Grammar:
    return Grammar("vLLM", _OWNED if embeddings else (*_OWNED, _CONVERT), _GONE, abbreviations=True)


class Vllm:
    """The adapter for vLLM 0.11 and later; checked against the source of 0.33."""

    name = "vllm"
    cpu_capable = False

    def check(self, model: Model, profile: Profile) -> tuple[Problem, ...]:
        """Return everything that stands against running this profile with vLLM."""
        grammar = _grammar(embeddings=model.capabilities.embeddings)
        return (*common.check_common(model, profile, cpu_capable=False), *check_args(profile.args, grammar))

    def ports_needed(self, profile: Profile) -> int:
        """Return 1, or 2 over several nodes: they meet at the port after the API's."""
        return 2 if profile.nodes > 1 else 1

    def launch(self, model: Model, profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> LaunchSpec:
        """Return `vllm serve …`; members beyond the head serve nothing and count as ready while they live."""
        site = sites[rank]
        return LaunchSpec(
            folder=site.folder,
            engine=self.name,
            argv=(*_command(site), *_model_words(model), *_place_words(profile, sites, rank), *_extras(model, profile)),
            env=common.merge_env(
                site, profile, {**common.hub_env(model), **_DEFAULT_ENV}, _fixed_env(profile, sites, rank)
            ),
            gpus=common.uuids(site),
            device_env=common.device_env(site),
            files=(),
            address=site.address,
            port=site.port,
            readiness=Readiness("/health", "/v1/models", model.name) if rank == 0 else Readiness(""),
            stop=StopPolicy(grace_s=15.0),
            startup_timeout_s=profile.startup_timeout_s,
            ports=self.ports_needed(profile),
        )


_DEFAULT_ENV = {"VLLM_NO_USAGE_STATS": "1", "VLLM_LOGGING_COLOR": "0"}


def _command(site: MemberSite) -> tuple[str, ...]:
    """Return the words up to `serve`; `vllm serve` is the only one that understands `--headless`."""
    words = site.install.command or ("vllm",)
    return words if words[-1] == "serve" else (*words, "serve")


def _model_words(model: Model) -> tuple[str, ...]:
    """Return the model first: `--served-model-name` takes every word up to the next flag."""
    words = (model.source, "--served-model-name", model.name, *model.aliases)
    return words if model.context_length is None else (*words, "--max-model-len", str(model.context_length))


def _place_words(profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> tuple[str, ...]:
    site, head = sites[rank], sites[0]
    words = (
        *("--host", site.address, "--port", str(site.port)),
        *("--tensor-parallel-size", str(profile.tp), "--pipeline-parallel-size", str(profile.pp)),
    )
    if len(sites) == 1:
        return words
    several = (
        *("--distributed-executor-backend", "mp", "--nnodes", str(len(sites)), "--node-rank", str(rank)),
        *("--master-addr", common.reach(head), "--master-port", str(head.port + 1)),
    )
    return (*words, *several, *(("--headless",) if rank else ()))


def _extras(model: Model, profile: Profile) -> tuple[str, ...]:
    """Return what the model can do, then the user's words as they are.

    vLLM calls tools by itself only with both a parser and `--enable-auto-tool-choice`; the parser is the user's choice.
    """
    words: list[str] = ["--runner", "pooling"] if model.capabilities.embeddings else []
    flag = "--enable-auto-tool-choice"
    if names_flag(profile.args, "--tool-call-parser") and not names_flag(profile.args, flag):
        words.append(flag)
    return (*words, *profile.args)


def _fixed_env(profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> dict[str, str]:
    """Return what must be so: sockets in the member's folder (where it starts), and no early giving up."""
    site = sites[rank]
    env = {
        **common.device_order(site),
        "VLLM_ENGINE_READY_TIMEOUT_S": str(max(READY_TIMEOUT_S, int(profile.startup_timeout_s) + 1)),
        "VLLM_RPC_BASE_PATH": ".",
    }
    if len(sites) > 1 and common.is_ip(common.reach(site)):
        env["VLLM_HOST_IP"] = site.address
    return env
