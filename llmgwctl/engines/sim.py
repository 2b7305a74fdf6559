"""The simulated engine: a real server with synthetic answers, to try everything without a model or a GPU."""

from __future__ import annotations

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.engines import common
from llmgwctl.engines.base import MemberSite, Problem
from llmgwctl.engines.flags import Grammar, Rule, check_args

SERVER_FILE = "sim_server.py"
"""The server's program, copied into the member's folder, which is where a member starts."""

_GRAMMAR = Grammar(
    "the simulated engine",
    owned=(
        Rule(("--model",), "The name is the model's `name`."),
        Rule(("--alias",), "Names are the model's `name` and `aliases`."),
        Rule(("--host",), "The address is the host's `listen`, or else its `address`."),
        Rule(("--port",), "The port is given by the placement; a fixed one is the profile's `port`."),
        Rule(("--context-length",), "Write the model's `context_length`."),
        Rule(("--embeddings",), "Write the model's `capabilities: {embeddings: true}`."),
        Rule(("--headless",), "The placement decides it."),
    ),
)


class Sim:
    """The adapter for `sim_server.py`; it takes GPUs like a real engine, and touches none."""

    name = "sim"
    cpu_capable = False

    def check(self, model: Model, profile: Profile) -> tuple[Problem, ...]:
        """Return everything that stands against running this profile with the simulated engine."""
        return (
            *common.check_common(model, profile, cpu_capable=False),
            *check_args(profile.args, _GRAMMAR),
        )

    def ports_needed(self, profile: Profile) -> int:
        """Return 1."""
        return 1

    def launch(self, model: Model, profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> LaunchSpec:
        """Return `python3 sim_server.py …`; members beyond the head live, but serve nothing."""
        site = sites[rank]
        return LaunchSpec(
            folder=site.folder,
            engine=self.name,
            argv=(*(site.install.command or ("python3",)), SERVER_FILE, *_words(model, site, rank), *profile.args),
            env=common.merge_env(site, profile, {}, common.device_order(site)),
            gpus=common.uuids(site),
            device_env=common.device_env(site),
            files=(SERVER_FILE,),
            address=site.address,
            port=site.port,
            readiness=Readiness("/health", "/v1/models", model.name) if rank == 0 else Readiness(""),
            stop=StopPolicy(grace_s=10.0),
            startup_timeout_s=profile.startup_timeout_s,
        )


def _words(model: Model, site: MemberSite, rank: int) -> tuple[str, ...]:
    words = ["--model", model.name]
    for alias in model.aliases:
        words += ["--alias", alias]
    words += ["--host", site.address, "--port", str(site.port)]
    if model.context_length is not None:
        words += ["--context-length", str(model.context_length)]
    if model.capabilities.embeddings:
        words.append("--embeddings")
    if rank:
        words.append("--headless")
    return tuple(words)
