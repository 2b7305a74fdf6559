"""What is free on each node while a plan is worked out: GPUs, cores, memory and ports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from llmgwctl.domain.catalog import Profile
from llmgwctl.domain.desired import Host, Settings
from llmgwctl.domain.inventory import Gpu, Node


@dataclass(slots=True)
class Room:
    """One node's free room; None for cores or memory means that the node does not report them, and excludes nothing.

    `open` is False where nothing new may be placed (unreachable, cordoned, draining). `whole_*` are the empty
    node's amounts, to tell "full" from "too small". `ports` are taken; `port_ranges` may be given out.
    `missing_engines` were looked for on the node and not found.
    `sellable` are the GPUs, by UUID, that work and aren't reserved, free or not.
    """

    name: str
    labels: Mapping[str, str]
    fabric: str | None
    open: bool
    reachable: bool
    millicores: int | None
    memory_mib: int | None
    gpus: dict[str, list[Gpu]] = field(default_factory=dict)
    whole_gpus: dict[str, int] = field(default_factory=dict)
    whole_millicores: int | None = None
    whole_memory_mib: int | None = None
    ports: set[int] = field(default_factory=set)
    port_ranges: tuple[range, ...] = ()
    sellable: dict[str, Gpu] = field(default_factory=dict)
    foreign_gpus: dict[str, int] = field(default_factory=dict)
    unhealthy_gpus: dict[str, int] = field(default_factory=dict)
    missing_engines: frozenset[str] = frozenset()

    def free(self, gpu_class: str | None, engine: str) -> list[Gpu]:
        """Return the free GPUs that a profile may use, lowest index first."""
        if gpu_class is None:
            return []
        gpus = self.gpus.get(gpu_class.lower(), [])
        return gpus if engine == "sim" else [g for g in gpus if not g.pretended]

    def usable(self, gpu_class: str | None, engine: str) -> set[str]:
        """Return the GPUs that a profile may use, by UUID, whoever has them now."""
        if gpu_class is None:
            return set()
        wanted = gpu_class.lower()
        return {
            uuid
            for uuid, gpu in self.sellable.items()
            if wanted in class_keys(gpu) and (engine == "sim" or not gpu.pretended)
        }

    def has_label(self, selector: Iterable[tuple[str, str]]) -> bool:
        """Whether the node carries every label of a selector."""
        return all(self.labels.get(key) == value for key, value in selector)

    def fits_host(self, profile: Profile) -> bool:
        """Whether cores and memory suffice."""
        return (self.millicores is None or profile.millicores <= self.millicores) and (
            self.memory_mib is None or profile.memory_mib <= self.memory_mib
        )

    def take(self, gpus: Iterable[str], millicores: int, memory_mib: int, ports: Iterable[int]) -> None:
        """Give room away."""
        self._change(millicores, memory_mib, -1)
        self.ports.update(ports)
        wanted = set(gpus)
        if wanted:
            for free in self.gpus.values():
                free[:] = [g for g in free if g.uuid not in wanted]

    def give_back(self, gpus: Iterable[str], millicores: int, memory_mib: int, ports: Iterable[int]) -> None:
        """Take room back from what stops; sick and reserved GPUs stay out."""
        self._change(millicores, memory_mib, 1)
        self.ports.difference_update(ports)
        for gpu in (self.sellable[u] for u in gpus if u in self.sellable):
            for key in class_keys(gpu):
                free = self.gpus.setdefault(key, [])
                if all(g.uuid != gpu.uuid for g in free):
                    free.append(gpu)
                    free.sort(key=lambda g: g.index)

    def free_ports(self, count: int, fixed: int | None, without: Collection[int] = ()) -> int | None:
        """Return the lowest port from which `count` in a row are free, or would be `without` what holds some."""
        taken = self.ports.difference(without) if without else self.ports
        if fixed is not None:
            return None if any(fixed + i in taken for i in range(count)) else fixed
        for ports in self.port_ranges:
            run = 0
            for port in ports:
                run = 0 if port in taken else run + 1
                if run == count:
                    return port - count + 1
        return None

    def _change(self, millicores: int, memory_mib: int, sign: int) -> None:
        if self.millicores is not None:
            self.millicores += sign * millicores
        if self.memory_mib is not None:
            self.memory_mib += sign * memory_mib


def class_keys(gpu: Gpu) -> tuple[str, ...]:
    """Return the names by which a profile may ask for a GPU: its class, or its product as GFD spells it."""
    product = gpu.product.lower().replace(" ", "-")
    return (gpu.gpu_class.lower(),) if product == gpu.gpu_class.lower() else (gpu.gpu_class.lower(), product)


def make_room(node: Node, host: Host, settings: Settings) -> Room:
    """Return a node's room before anything of ours is counted.

    GPUs that are sick, reserved or taken by anybody are left out; what of ours frees them gives them back.
    """
    reserve = host.reserve
    room = Room(
        name=node.name,
        labels=dict(node.labels),
        fabric=node.fabric,
        open=node.reachable and host.schedulable and not host.drain,
        reachable=node.reachable,
        millicores=_left(node.millicores, reserve.millicores),
        memory_mib=_left(node.memory_mib, reserve.memory_mib),
        ports=set(node.ports_in_use),
        port_ranges=_port_ranges(settings, node.ephemeral_ports),
        missing_engines=_missing_engines(node),
    )
    room.whole_millicores, room.whole_memory_mib = room.millicores, room.memory_mib
    reserved = set(reserve.gpus)
    for gpu in sorted(node.gpus, key=lambda g: g.index):
        if gpu.uuid in reserved or str(gpu.index) in reserved:
            continue
        if gpu.usable:
            room.sellable[gpu.uuid] = gpu
        for key in class_keys(gpu):
            if not gpu.usable:
                room.unhealthy_gpus[key] = room.unhealthy_gpus.get(key, 0) + 1
                continue
            room.whole_gpus[key] = room.whole_gpus.get(key, 0) + 1
            if gpu.taken_by is None:
                room.gpus.setdefault(key, []).append(gpu)
            else:
                room.foreign_gpus[key] = room.foreign_gpus.get(key, 0) + 1
    return room


def _left(amount: int | None, reserved: int) -> int | None:
    return None if amount is None else max(0, amount - reserved)


def _missing_engines(node: Node) -> frozenset[str]:
    """Return the engines that were looked for and not found; nothing where nobody looked (a bare inventory)."""
    found = node.commands_found
    if not found:
        return frozenset()
    needs_python = {"sim"} if not (found.get("python3") or found.get("sim")) else set()
    return frozenset({e for e in _LOOKED_FOR if not found.get(e)} | needs_python)


_LOOKED_FOR = ("llamacpp", "sglang", "vllm")


def _port_ranges(settings: Settings, ephemeral: tuple[int, int]) -> tuple[range, ...]:
    """Return the configured ports without the kernel's own: an outgoing connection could hold one of those."""
    low, high = settings.ports_from, settings.ports_to
    below = range(low, min(high, ephemeral[0] - 1) + 1)
    above = range(max(low, ephemeral[1] + 1), high + 1)
    return tuple(r for r in (below, above) if len(r))
