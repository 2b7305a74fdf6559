"""Looks at all hosts at once; one that hangs costs its own row and nothing else."""

from __future__ import annotations

import queue
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.observation import Observation
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts.transport import one_line

Probe = Callable[[Host], Node]


def gather(
    hosts: Sequence[Host],
    probe: Probe,
    *,
    workers: int,
    deadline_s: float,
    taken_at: str,
    progress: Callable[[int, int], None] | None = None,
) -> Observation:
    """Return a row for every host, sorted by name; never raises for one bad host.

    At most `workers` probes run at a time. One that has not returned `deadline_s` after its own start is given up:
    its row says so, its worker is replaced, and its thread (a daemon) holds up nothing, not even the process's end.
    `progress` is called in this thread with the number of rows that are there and that of all.
    """
    hosts = tuple({host.name: host for host in hosts}.values())
    work = _Work(probe, hosts, deadline_s)
    for _ in range(min(workers, len(hosts))):
        work.add_worker()
    rows: dict[str, Node] = {}
    while len(rows) < len(hosts):
        for node in work.next_rows():
            rows[node.name] = node
            if progress:
                progress(len(rows), len(hosts))
    return Observation(taken_at, tuple(rows[name] for name in sorted(rows)))


@dataclass(slots=True)
class _Job:
    host: Host
    ends_at: float
    given_up: bool = field(default=False)


class _Work:
    def __init__(self, probe: Probe, hosts: tuple[Host, ...], deadline_s: float) -> None:
        self._probe = probe
        self._deadline_s = deadline_s
        self._waiting: queue.SimpleQueue[Host] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[_Job, Node]] = queue.SimpleQueue()
        self._running: dict[str, _Job] = {}
        self._lock = threading.Lock()
        for host in hosts:
            self._waiting.put(host)

    def add_worker(self) -> None:
        threading.Thread(target=self._work, name="gather", daemon=True).start()

    def next_rows(self) -> list[Node]:
        """Wait until a probe returned or is overdue."""
        with self._lock:
            ends = [job.ends_at for job in self._running.values()]
        # A job that starts meanwhile ends later than all that run; without any, one is about to be taken.
        wait = max(0.0, min(ends) - time.monotonic()) if ends else min(0.05, self._deadline_s)
        try:
            job, node = self._done.get(timeout=wait)
        except queue.Empty:
            return [self._give_up(job) for job in self._overdue()]
        # A probe that returned just after it was given up has its row already.
        return [] if job.given_up else [self._settle(job, node)]

    def _settle(self, job: _Job, node: Node) -> Node:
        with self._lock:
            self._running.pop(job.host.name, None)
        return node

    def _overdue(self) -> list[_Job]:
        now = time.monotonic()
        with self._lock:
            late = [job for job in self._running.values() if job.ends_at <= now]
            for job in late:
                job.given_up = True
                del self._running[job.host.name]
        return late

    def _give_up(self, job: _Job) -> Node:
        self.add_worker()
        return unreachable(job.host, f"no answer within {self._deadline_s:g} s")

    def _work(self) -> None:
        while True:
            try:
                host = self._waiting.get_nowait()
            except queue.Empty:
                return
            job = _Job(host, time.monotonic() + self._deadline_s)
            with self._lock:
                self._running[host.name] = job
            node = _look(self._probe, host)
            # Late, or a result that waits to be taken: the main thread tells by `given_up`.
            self._done.put((job, node))
            with self._lock:
                if job.given_up:
                    return


def unreachable(host: Host, reason: str) -> Node:
    """Return the row of a host that could not be looked at: unknown, not gone."""
    why = _composable(host.name, reason)
    return Node(host.name, reachable=False, error=why, labels=host.labels, fabric=host.fabric)


def _composable(name: str, message: str) -> str:
    """Return a message as it stands after "host NAME can't be reached": without the name, without a full stop."""
    text = one_line(message)
    text = re.sub(rf"^{re.escape(name)}(?:: | \((\S+)\)(?=:? ))", lambda found: found[1] or "", text)
    text = re.sub(r"^The ", "the ", text)
    return text.removesuffix(".") if not text.endswith("..") else text


def _look(probe: Probe, host: Host) -> Node:
    try:
        return probe(host)
    except LlmgwctlError as problem:
        return unreachable(host, problem.message)
    except Exception as problem:
        # A fault of ours must not take the other hosts' rows with it.
        return unreachable(host, f"unexpected {type(problem).__name__}: {problem}")
