"""Looks at every host at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from llmgwctl.app.clock import now
from llmgwctl.domain.desired import Connection, Desired, Host
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.observation import Observation
from llmgwctl.errors import LlmgwctlError, UnreachableError
from llmgwctl.hosts.gather import gather
from llmgwctl.hosts.session import GatherRequest
from llmgwctl.hosts.sessions import Sessions

Progress = Callable[[int, int], None]


def gather_fleet(
    desired: Desired,
    sessions: Sessions,
    lineage: str | None,
    *,
    hosts: Sequence[Host] | None = None,
    progress: Progress | None = None,
) -> Observation:
    """Return what the hosts show; a host that can't be reached is a row with its reason."""
    wanted = desired.hosts if hosts is None else hosts
    taken_at = now()
    # Simulated hosts answer from memory: a thread for each would cost more than the answer.
    simulated = [h for h in wanted if h.connection is Connection.SIMULATED]
    real = [h for h in wanted if h.connection is not Connection.SIMULATED]
    nodes = [_simulated(h, sessions, lineage or "") for h in simulated]
    if real:
        ssh = desired.settings.ssh
        nodes += gather(
            real,
            lambda host: sessions.of(host).gather(_request(desired, host, lineage or "")),
            workers=max(1, min(ssh.parallelism, len(real))),
            deadline_s=ssh.connect_timeout_s + ssh.command_timeout_s,
            progress=progress,
            taken_at=taken_at,
        ).nodes
    return Observation(taken_at, tuple(sorted(nodes, key=lambda n: n.name)))


def must_reach_some(observation: Observation) -> None:
    """Raise UnreachableError where hosts are declared and none could be reached."""
    nodes = observation.nodes
    if nodes and not any(n.reachable for n in nodes):
        raise UnreachableError("None of the hosts could be reached.", "\n".join(words_of(n) for n in nodes[:20]))


def words_of(node: Node) -> str:
    """Return a host's name and why it could not be looked at."""
    return f"{node.name}: {node.error or 'no reason is known'}"


def _simulated(host: Host, sessions: Sessions, lineage: str) -> Node:
    try:
        return sessions.of(host).gather(GatherRequest(lineage=lineage))
    except UnreachableError as problem:
        return Node(host.name, reachable=False, error=problem.message, labels=host.labels, fabric=host.fabric)


def _request(desired: Desired, host: Host, lineage: str) -> GatherRequest:
    commands = {
        name: install.command[0]
        for name, install in {**desired.settings.engines, **host.engines}.items()
        if install.command
    }
    return GatherRequest(
        lineage=lineage,
        replica_dir=desired.settings.replica_dir,
        paths=tuple(sorted(_weights(desired))),
        commands=commands,
    )


def _weights(desired: Desired) -> Iterable[str]:
    """Return the folders of the weights that models name by path; a few tell all disks apart."""
    return {str(Path(m.source).parent) for m in desired.models if m.source.startswith("/")}


def one_host(observation: Observation, name: str) -> Node:
    """Return a host that must have been reached. Raises UnreachableError."""
    node = next((n for n in observation.nodes if n.name == name), None)
    if node is None:
        raise LlmgwctlError(f"No host is called {name!r}.")
    if not node.reachable:
        raise UnreachableError(f"Host {name} can't be reached: {node.error}")
    return node
