"""Simulated hosts: a world kept in a file, behind the same session as real ones."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from llmgwctl.domain.desired import Host, SimulatedGpus, SimulatedReplica
from llmgwctl.domain.inventory import SEEDED, Gpu, Node, ObservedReplica, Phase
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.errors import LlmgwctlError, UnreachableError
from llmgwctl.hosts.session import (
    LOG_TAIL_BYTES,
    GatherRequest,
    Life,
    MemberStatus,
    StartOrder,
    StartRefusedError,
)
from llmgwctl.planner.naming import folder_name

REPLICA_ROOT = "/var/lib/llmgwctl/replicas"
_SEED_PORT = 20000
_PORTS_A_SEED = 16


@dataclass(slots=True)
class World:
    """Every simulated host's processes, by host and folder.

    Each change is appended to a journal beside the file at once, as a process on a real host outlives the
    controller; the journal is folded into the file when the world is closed or next opened.
    """

    path: Path
    hosts: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _journal: Any = None
    _changed: bool = False

    @classmethod
    def open(cls, path: Path) -> World:
        """Read the world; no file is an empty one."""
        world = cls(path)
        try:
            world.hosts = json.loads(path.read_text(encoding="utf-8"))["hosts"]
        except FileNotFoundError:
            pass
        except (ValueError, KeyError, TypeError, OSError) as problem:
            raise LlmgwctlError(
                f"The simulated hosts' file {path} can't be read: {problem}",
                "Remove it to begin with simulated hosts on which nothing runs.",
            ) from None
        with contextlib.suppress(FileNotFoundError):
            for line in world._journal_path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(ValueError, KeyError):  # the last line may be torn
                    world._redo(json.loads(line))
                    world._changed = True
        return world

    def processes(self, host: str) -> list[dict[str, Any]] | None:
        """Return a host's processes; None where the host has no entry yet."""
        with self._lock:
            entry = self.hosts.get(host)
            return None if entry is None else list(entry.values())

    def put(self, host: str, folder: str, process: dict[str, Any]) -> None:
        """Add or replace a process."""
        self._change({"host": host, "folder": folder, "process": process})

    def remove(self, host: str, folder: str) -> None:
        """Remove a process."""
        self._change({"host": host, "folder": folder, "process": None})

    def enter(self, host: str) -> None:
        """Give a host an entry, so that it is never seeded again."""
        self._change({"host": host})

    def close(self) -> None:
        """Fold the journal into the file."""
        with self._lock:
            if self._journal is not None:
                self._journal.close()
                self._journal = None
            if not self._changed:
                return
            text = json.dumps({"format_version": "1.0", "hosts": self.hosts}, indent=1, sort_keys=True) + "\n"
            with contextlib.suppress(OSError):  # nothing is lost: the journal has it, and is folded when next opened
                self._write(text)
                self._journal_path.unlink(missing_ok=True)
                self._changed = False

    @property
    def _journal_path(self) -> Path:
        return self.path.with_name(self.path.name + ".journal")

    def _change(self, entry: dict[str, Any]) -> None:
        with self._lock:
            try:
                if self._journal is None:
                    self._journal = self._journal_path.open("ab", buffering=0)
                _append(self._journal, json.dumps(entry).encode() + b"\n")
            except OSError as problem:
                raise LlmgwctlError(
                    f"The simulated hosts' file {self._journal_path} can't be written: {problem.strerror or problem}."
                ) from None
            self._redo(entry)
            self._changed = True

    def _write(self, text: str) -> None:
        handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=f".{self.path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            Path(name).replace(self.path)
        except OSError:
            Path(name).unlink(missing_ok=True)
            raise

    def _redo(self, entry: dict[str, Any]) -> None:
        host = self.hosts.setdefault(entry["host"], {})
        if "folder" not in entry:
            return
        if entry["process"] is None:
            host.pop(entry["folder"], None)
        else:
            host[entry["folder"]] = entry["process"]


def _append(file: io.FileIO, line: bytes) -> None:
    """Add a whole line, or none: the next one must not stand behind half of it. Raises OSError."""
    size = os.fstat(file.fileno()).st_size
    if file.write(line) != len(line):
        os.ftruncate(file.fileno(), size)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


class SimulatedSession:
    """One simulated host; its processes start at once, unless it is told to be slow or to fail."""

    def __init__(self, host: Host, world: World, gangs: Mapping[str, tuple[str, ...]]) -> None:
        """`gangs` names the hosts, in order, of each replica that is seeded on several."""
        self.host = host
        self._world = world
        self._gangs = gangs

    def gather(self, request: GatherRequest) -> Node:
        """Describe the host as declared, with what runs on it."""
        self._must_answer()
        simulate = self.host.simulate
        gpus = simulated_gpus(self.host.name, simulate.gpus if simulate else (), self.host.gpu_class)
        replicas = self._replicas(gpus, request.lineage)
        owner = {uuid: r.id for r in replicas for uuid in r.gpus}
        memory_mib = simulate.memory_mib if simulate else None
        return Node(
            name=self.host.name,
            millicores=simulate.millicores if simulate else None,
            memory_mib=memory_mib,
            memory_available_mib=memory_mib,
            labels=self.host.labels,
            fabric=self.host.fabric,
            os="simulated",
            supervisor="simulated",
            gpus=tuple(g if g.uuid not in owner else _taken(g, owner[g.uuid]) for g in gpus),
            replicas=replicas,
            ports_in_use=tuple(sorted({r.port for r in replicas if r.port})),
            replica_root=REPLICA_ROOT,
        )

    def start(self, order: StartOrder) -> str:
        """Start a pretended process."""
        self._must_answer()
        simulate = self.host.simulate
        if simulate and simulate.slow_s:
            time.sleep(simulate.slow_s)
        if simulate and order.model in simulate.fail_start:
            raise StartRefusedError(
                f"{order.replica} can't be started on {self.host.name}: exited with status 1",
                "simulated: told to fail (simulate.fail_start)",
            )
        launch = order.launch
        self._materialise(order.lineage)
        if any(p["folder"] == launch.folder for p in self._world.processes(self.host.name) or ()):
            raise StartRefusedError(f"{order.replica} can't be started on {self.host.name}: its folder exists already")
        self._world.put(
            self.host.name,
            launch.folder,
            {
                "id": order.replica,
                "member": order.member,
                "model": order.model,
                "profile": order.profile,
                "engine": launch.engine,
                "launch_digest": launch.digest,
                "gpus": list(launch.gpus),
                "port": launch.port,
                "phase": "ready",
                "lineage": order.lineage,
                "folder": launch.folder,
            },
        )
        return ""

    def status(self, launch: LaunchSpec) -> MemberStatus:
        """Say whether the pretended process lives."""
        self._must_answer()
        alive = any(p["folder"] == launch.folder for p in self._world.processes(self.host.name) or ())
        return MemberStatus(Life.ALIVE if alive else Life.ABSENT)

    def serving(self, launch: LaunchSpec) -> str:
        """Return an empty text: a pretended process serves at once."""
        self._must_answer()
        return ""

    def mark_ready(self, launch: LaunchSpec) -> None:
        """Do nothing: pretended processes are born ready."""

    def stop(self, launch: LaunchSpec, lineage: str) -> None:
        """End a pretended process, if it is of our state."""
        self._must_answer()
        self._materialise(lineage)
        for process in self._world.processes(self.host.name) or ():
            if process["folder"] == launch.folder and process["lineage"] in ("", lineage):
                self._world.remove(self.host.name, launch.folder)

    def log_tail(self, root: str, folder: str, lines: int, most_bytes: int = LOG_TAIL_BYTES) -> str:
        """Return what a pretended process would have logged."""
        return "simulated: this replica runs on a simulated host and has no log\n"

    def follow_log(
        self, root: str, folder: str, lines: int, on_data: Callable[[bytes], None], stop: threading.Event
    ) -> None:
        """Hand on the one line there is."""
        on_data(self.log_tail(root, folder, lines).encode())

    def close(self) -> None:
        """Do nothing: the world is closed once, for all hosts."""

    def _must_answer(self) -> None:
        if self.host.simulate and self.host.simulate.unreachable:
            raise UnreachableError("simulated: told to be unreachable (simulate.unreachable)")

    def _replicas(self, gpus: tuple[Gpu, ...], lineage: str) -> tuple[ObservedReplica, ...]:
        processes = self._world.processes(self.host.name)
        if processes is None:
            processes = self._seeds(lineage)
        return tuple(
            ObservedReplica(
                id=p["id"],
                member=p["member"],
                model=p["model"],
                profile=p["profile"],
                launch_digest=p["launch_digest"],
                gpus=tuple(p["gpus"]),
                port=p["port"],
                phase=Phase(p["phase"]),
                lineage=p["lineage"] or lineage,
                folder=p["folder"],
                engine=p.get("engine", ""),
            )
            for p in processes
        )

    def _materialise(self, lineage: str) -> None:
        """Turn the declared seeds into entries, before anything else changes on the host."""
        if self._world.processes(self.host.name) is not None:
            return
        self._world.enter(self.host.name)
        for seed in self._seeds(lineage):
            self._world.put(self.host.name, seed["folder"], seed)

    def _seeds(self, lineage: str) -> list[dict[str, Any]]:
        simulate = self.host.simulate
        return [self._seed(seed, number, lineage) for number, seed in enumerate(simulate.running if simulate else ())]

    def _seed(self, seed: SimulatedReplica, number: int, lineage: str) -> dict[str, Any]:
        model, _, index = seed.replica.rpartition("/")
        member = self._gangs.get(seed.replica, (self.host.name,)).index(self.host.name)
        return {
            "id": seed.replica,
            "member": member,
            "model": model,
            "profile": seed.profile,
            "engine": "",
            "launch_digest": SEEDED,
            "gpus": [f"SIM-{self.host.name}-{i}" for i in seed.gpus],
            "port": _SEED_PORT + number * _PORTS_A_SEED,
            "phase": "ready",
            "lineage": lineage,
            "folder": folder_name(model, int(index), member),
        }


def gangs_of(hosts: Iterable[Host]) -> dict[str, tuple[str, ...]]:
    """Return the hosts, in name order, of each seeded replica that is listed on several."""
    places: dict[str, list[str]] = {}
    for host in sorted(hosts, key=lambda h: h.name):
        for seed in host.simulate.running if host.simulate else ():
            places.setdefault(seed.replica, []).append(host.name)
    return {replica: tuple(names) for replica, names in places.items() if len(names) > 1}


def simulated_gpus(
    host: str, groups: Iterable[SimulatedGpus], gpu_class: str | None, *, first: int = 0, pretended: bool = False
) -> tuple[Gpu, ...]:
    """Return the GPUs that a host pretends to have, numbered from `first`."""
    gpus: list[Gpu] = []
    for group in groups:
        name = gpu_class or group.gpu_class
        for _ in range(group.count):
            number = first + len(gpus)
            gpus.append(
                Gpu(
                    number,
                    f"SIM-{host}-{number}",
                    f"Simulated {name}",
                    name,
                    group.memory_mib,
                    vendor="simulated",
                    pretended=pretended,
                )
            )
    return tuple(gpus)


def _taken(gpu: Gpu, replica: str) -> Gpu:
    return replace(gpu, taken_by=replica, used_mib=gpu.memory_mib)
