"""Seats to exact command lines, through the engines."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from llmgwctl.domain.catalog import Model, Profile
from llmgwctl.domain.desired import Desired, EngineInstall, Host
from llmgwctl.domain.inventory import Gpu, Node
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.domain.state import ReplicaRecord
from llmgwctl.engines.base import Engine, MemberSite
from llmgwctl.planner.naming import folder_name
from llmgwctl.planner.placement import Seat

EngineOf = Callable[[str], Engine | None]


@dataclass(frozen=True, slots=True)
class Launcher:
    """Knows every host's installation, so that a seat becomes a command line."""

    desired: Desired
    hosts: Mapping[str, Host]
    nodes: Mapping[str, Node]
    engine_of: EngineOf

    def engine(self, profile: Profile) -> Engine:
        """Return the profile's engine; the configuration was checked, so it exists."""
        engine = self.engine_of(profile.engine)
        if engine is None:
            raise LookupError(f"no engine is called {profile.engine!r}")
        return engine

    def install(self, host: Host, engine: str) -> EngineInstall:
        """Return where a host has an engine."""
        return host.engines.get(engine) or self.desired.settings.engines.get(engine) or EngineInstall()

    def launches(self, model: Model, profile: Profile, index: int, seats: Sequence[Seat]) -> tuple[LaunchSpec, ...]:
        """Return one launch per member, the head first."""
        sites = tuple(self._site(model, profile, index, rank, seat) for rank, seat in enumerate(seats))
        engine = self.engine(profile)
        ports = engine.ports_needed(profile)
        return tuple(
            replace(engine.launch(model, profile, sites, rank), ports=ports, root=self.nodes[seat.node].replica_root)
            for rank, seat in enumerate(seats)
        )

    def expected(self, model: Model, profile: Profile, record: ReplicaRecord) -> tuple[LaunchSpec, ...]:
        """Return what a recorded replica would be launched with today, where it is."""
        seats = [Seat(m.node, self._gpus(m.node, m.gpus, m.gpu_indices), m.port) for m in record.members]
        return self.launches(model, profile, record.index, seats)

    def _site(self, model: Model, profile: Profile, index: int, rank: int, seat: Seat) -> MemberSite:
        host, node = self.hosts[seat.node], self.nodes[seat.node]
        folder = folder_name(model.name, index, rank)
        return MemberSite(
            node=seat.node,
            address=host.listen_address,
            gpus=seat.gpus,
            port=seat.port,
            install=self.install(host, profile.engine),
            folder=folder,
            folder_path=f"{node.replica_root}/{folder}",
            host_address=host.address,
        )

    def _gpus(self, node: str, uuids: Sequence[str], indices: Sequence[int]) -> tuple[Gpu, ...]:
        """Return the devices as seen now; one that has vanished is described by what was recorded."""
        seen = {g.uuid: g for g in self.nodes[node].gpus}
        vendor = next(iter(seen.values())).vendor if seen else "nvidia"
        return tuple(
            seen.get(uuid) or Gpu(index, uuid, "", "", None, vendor=vendor)
            for uuid, index in zip(uuids, indices, strict=False)
        )
