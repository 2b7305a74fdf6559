"""What an engine adapter is: model, profile and placement in, exact command lines out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.desired import EngineInstall
from llmgwctl.domain.inventory import Gpu
from llmgwctl.domain.launch import LaunchSpec


@dataclass(frozen=True, slots=True)
class Problem:
    """Why an engine can't run a profile, and what to write instead.

    `field` is a key of the profile (`args`, `env.LD_PRELOAD`, `gpu_class`) or, after `model.`, of the model
    (`model.name`, `model.aliases`). `index` is the place in a list, from 0.
    """

    field: str
    summary: str
    detail: str = ""
    index: int | None = None


@dataclass(frozen=True, slots=True)
class MemberSite:
    """Where one member of a replica runs.

    `address` is where it listens, and `host_address` where its host is reached; `gpus` are sorted by index; an empty
    `install.command` means that the engine is found by PATH; `folder_path` is the member's folder as an absolute path
    on the host.
    """

    node: str
    address: str
    gpus: tuple[Gpu, ...]
    port: int
    install: EngineInstall
    folder: str
    folder_path: str
    host_address: str = ""


@runtime_checkable
class Engine(Protocol):
    """An adapter; all of it is pure: the same input gives the same output, and nothing is looked up."""

    @property
    def name(self) -> str:
        """What a profile writes as `engine`."""
        ...

    @property
    def cpu_capable(self) -> bool:
        """Whether it can serve without a GPU."""
        ...

    def check(self, model: Model, profile: Profile) -> tuple[Problem, ...]:
        """Return everything that stands against running this profile with this engine."""
        ...

    def ports_needed(self, profile: Profile) -> int:
        """Return how many contiguous ports each member may use, from its own port on."""
        ...

    def launch(self, model: Model, profile: Profile, sites: tuple[MemberSite, ...], rank: int) -> LaunchSpec:
        """Return how to start the member at `sites[rank]`; the head, which serves the API, is rank 0.

        The profile has passed `check`.
        """
        ...
