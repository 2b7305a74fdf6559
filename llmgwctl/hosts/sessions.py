"""One session per host for the time of a command, made when it is first needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from llmgwctl.domain.desired import Connection, Host, Settings
from llmgwctl.hosts.session import HostSession
from llmgwctl.hosts.shell import ShellSession
from llmgwctl.hosts.simulated import SimulatedSession, World, gangs_of
from llmgwctl.hosts.transport import Transport


class Sessions:
    """All sessions of a command; paths in the settings are relative to `base`, the configuration's folder.

    `world_path` is the simulated hosts' file. Close it, or use it as a context manager.
    """

    def __init__(self, hosts: Iterable[Host], settings: Settings, base: Path, world_path: Path) -> None:
        self._hosts = tuple(hosts)
        self._settings = settings
        self._base = base
        self._world_path = world_path
        self._gangs = gangs_of(self._hosts)
        self._sessions: dict[str, HostSession] = {}
        self._world: World | None = None
        self._connect_ssh: Callable[[Host], Transport] | None = None
        self._close_ssh: Callable[[], None] | None = None
        self._lock = threading.Lock()

    def of(self, host: Host) -> HostSession:
        """Return the host's session; it connects only when it is used."""
        with self._lock:
            session = self._sessions.get(host.name)
            if session is None:
                session = self._sessions[host.name] = self._make(host)
            return session

    def close(self) -> None:
        """Let go of every connection and write the simulated hosts' file."""
        for session in self._sessions.values():
            session.close()
        if self._close_ssh is not None:
            self._close_ssh()
        if self._world is not None:
            self._world.close()

    def __enter__(self) -> Sessions:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _make(self, host: Host) -> HostSession:
        if host.connection is Connection.SIMULATED:
            if self._world is None:
                self._world = World.open(self._world_path)
            return SimulatedSession(host, self._world, self._gangs)
        connect = self._local if host.connection is Connection.LOCAL else self._ssh()
        return ShellSession(host, connect, command_timeout_s=self._settings.ssh.command_timeout_s)

    def _local(self, host: Host) -> Transport:
        from llmgwctl.hosts.local import LocalTransport

        return LocalTransport(host)

    def _ssh(self) -> Callable[[Host], Transport]:
        # paramiko takes 0.2 s to import: only a command that uses SSH pays for it.
        if self._connect_ssh is None:
            from llmgwctl.hosts.ssh import SshConnector

            connector = SshConnector(self._settings.ssh, self._base)
            self._connect_ssh, self._close_ssh = connector.connect, connector.close
        return self._connect_ssh
