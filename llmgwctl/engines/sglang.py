"""SGLang: `sglang serve`, on one node or over several."""

from __future__ import annotations

from collections.abc import Iterable

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.engines import common
from llmgwctl.engines.base import MemberSite, Problem
from llmgwctl.engines.flags import Grammar, Rule, check_args, names_flag

PORTS = 16
"""The API's port; +1 for NCCL; +2 for the rendezvous, from which data-parallel attention counts on (6 and more)."""

HEALTH_TIMEOUT_S = 25.0
"""Its `/health` generates a token, and says no only after 20 s (SGLANG_HEALTH_CHECK_TIMEOUT)."""

_PLACED = "The placement decides it."
_ONE_SERVER = "Plain HTTP at `/` is what is checked and routed."
_GRAMMAR = Grammar(
    "SGLang",
    owned=(
        Rule(("--model-path", "--model"), "The model is the model's `source`."),
        Rule(("--served-model-name",), "The name is the model's `name`."),
        Rule(("--host",), "The address is the host's `listen`, or else its `address`."),
        Rule(("--port",), "The port is given by the placement; a fixed one is the profile's `port`."),
        Rule(("--tensor-parallel-size", "--tp-size", "--tp"), "Write the profile's `tp`."),
        Rule(("--pipeline-parallel-size", "--pp-size", "--pp"), "Write the profile's `pp`."),
        Rule(
            ("--data-parallel-size", "--dp-size", "--dp"),
            "Data parallelism is more replicas: write the model's `scaling`. (`--attn-dp-size` is allowed.)",
        ),
        Rule(("--nnodes",), "Write the profile's `nodes`."),
        Rule(("--node-rank", "--dist-init-addr", "--nccl-init-addr", "--nccl-port"), _PLACED),
        Rule(("--base-gpu-id", "--gpu-id-step"), "Which GPUs a replica sees is decided by its placement."),
        Rule(("--context-length",), "Write the model's `context_length`."),
        Rule(
            ("--api-key", "--admin-api-key"),
            "A key in a command line is seen by everybody on the host; keys are the gateway's matter.",
        ),
        Rule(("--enable-metrics",), "It is always on."),
        Rule(("--is-embedding",), "Write the model's `capabilities: {embeddings: true}`."),
        Rule(("--config",), "Write every flag into `args`, so that a plan shows all of them."),
        Rule(("--use-ray",), "Members find each other without Ray."),
        Rule(("--fastapi-root-path", "--ssl-*", "--enable-ssl-refresh"), _ONE_SERVER),
        Rule(("--smg-*", "--grpc-port", "--grpc-http-*", "--grpc-response-*", "--sidecar*"), _ONE_SERVER),
    ),
    gone=(
        Rule(("--grpc-mode",), f"It was renamed `--smg-grpc-mode`, which is not for args either: {_ONE_SERVER}"),
        Rule(("--enable-dp-attention",), "Write `--attn-dp-size N`."),
    ),
    abbreviations=True,
)


class SGLang:
    """The adapter for SGLang; checked against the source of 0.5.23."""

    name = "sglang"
    cpu_capable = False

    def check(self, model: Model, profile: Profile) -> tuple[Problem, ...]:
        """Return everything that stands against running this profile with SGLang."""
        return (
            *common.check_common(model, profile, cpu_capable=False),
            *_check_name(model),
            *check_args(profile.args, _GRAMMAR),
        )

    def ports_needed(self, profile: Profile) -> int:
        """Return 16: SGLang counts on from the ports that it is given."""
        return PORTS

    def launch(self, model: Model, profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> LaunchSpec:
        """Return `sglang serve …`.

        Only the head's health means something: the others answer 200 whatever happens, and count as ready while they
        live. SGLang serves one name; it answers to any, so aliases work too.
        """
        site = sites[rank]
        words = (*_model_words(model), *_place_words(profile, sites, rank), "--enable-metrics", *profile.args)
        health = Readiness("/health", "/v1/models", model.name, timeout_s=HEALTH_TIMEOUT_S)
        return LaunchSpec(
            folder=site.folder,
            engine=self.name,
            argv=(*_command(site), *words),
            env=common.merge_env(site, profile, common.hub_env(model), _fixed_env(sites, rank)),
            gpus=common.uuids(site),
            device_env=common.device_env(site),
            files=(),
            address=site.address,
            port=site.port,
            readiness=health if rank == 0 else Readiness(""),
            stop=StopPolicy(grace_s=30.0),
            startup_timeout_s=profile.startup_timeout_s,
            ports=PORTS,
        )


def _check_name(model: Model) -> Iterable[Problem]:
    if ":" in model.name:
        yield Problem(
            "model.name",
            f"SGLang can't serve the name {model.name!r}",
            "It reads what follows a colon as the name of a LoRA adapter: use a name without `:`.",
        )


def _command(site: MemberSite) -> tuple[str, ...]:
    """Return the words before the flags; `python3 -m sglang.launch_server` stands for `sglang serve`."""
    words = site.install.command or ("sglang",)
    return words if words[-1] in {"serve", "sglang.launch_server"} else (*words, "serve")


def _model_words(model: Model) -> tuple[str, ...]:
    words = ["--model-path", model.source, "--served-model-name", model.name]
    if model.context_length is not None:
        words += ["--context-length", str(model.context_length)]
    if model.capabilities.embeddings:
        words.append("--is-embedding")
    return tuple(words)


def _place_words(profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> tuple[str, ...]:
    """Return addresses, ports and sizes.

    Ports that SGLang would choose itself could be another replica's, so all of them are taken from the member's own.
    """
    site, head = sites[rank], sites[0]
    words = [
        *("--host", site.address, "--port", str(site.port), "--nccl-port", str(site.port + 1)),
        *("--tp-size", str(profile.tp), "--pp-size", str(profile.pp)),
    ]
    if len(sites) > 1:
        words += ["--nnodes", str(len(sites)), "--node-rank", str(rank)]
        words += ["--dist-init-addr", common.host_and_port(common.reach(head), head.port + 2)]
    elif names_flag(profile.args, "--attn-dp-size", "--attention-data-parallel-size"):
        words += ["--dist-init-addr", common.host_and_port("127.0.0.1", site.port + 2)]
    return tuple(words)


def _fixed_env(sites: tuple[MemberSite, ...], rank: int) -> dict[str, str]:
    site = sites[rank]
    env = common.device_order(site)
    if len(sites) > 1 and common.is_ip(common.reach(site)):
        env["SGLANG_HOST_IP"] = site.address
    return env
