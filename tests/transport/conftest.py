"""A server, a user and a client's home for each test of the transports."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from support.sshd import SSHD, Sshd, make_key, plain_user

from llmgwctl.domain.desired import Host, SshSettings
from llmgwctl.hosts.ssh import SshConnector, SshTransport
from llmgwctl.hosts.transport import TransportError


class Client:
    """The controller's side: its home, key, settings and the ssh configuration that it reads."""

    def __init__(self, home: Path, user: str) -> None:
        self.home = home
        self.key = make_key(home / ".ssh" / "id_ed25519")
        self.known_hosts = home / "known_hosts"
        self.known_hosts.touch()
        self.ssh_config = home / "ssh_config"
        self.ssh_config.touch()
        self.settings = SshSettings(user=user, known_hosts="known_hosts", connect_timeout_s=10)
        self._connectors: list[SshConnector] = []

    def connector(self, **settings: object) -> SshConnector:
        connector = SshConnector(replace(self.settings, **settings), self.home)
        self._connectors.append(connector)
        return connector

    def to(self, server: Sshd, **settings: object) -> SshTransport:
        return self.connector(**settings).connect(self.host(server))

    def host(self, server: Sshd, name: str = "gpu-1", **fields: object) -> Host:
        return Host(name, **{"address": "127.0.0.1", "port": server.port, **fields})

    def trust(self, server: Sshd) -> None:
        with self.known_hosts.open("a") as file:
            file.write(server.known_lines())

    def close(self) -> None:
        for connector in self._connectors:
            connector.close()


@pytest.fixture(scope="session")
def login() -> Iterator[str]:
    if SSHD is None or shutil.which("ssh-keygen") is None:
        pytest.skip("OpenSSH's server is not installed")
    with plain_user() as name:
        yield name


@pytest.fixture
def client(tmp_path: Path, login: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    (tmp_path / ".ssh").mkdir(mode=0o700)
    made = Client(tmp_path, login)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("LLMGWCTL_SSH_CONFIG", str(made.ssh_config))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    yield made
    made.close()


@pytest.fixture
def serve(client: Client) -> Iterator[Callable[..., Sshd]]:
    """Start servers that know the client's key; they end with the test."""
    started: list[Sshd] = []

    def start(config: str = "", **options: object) -> Sshd:
        server = Sshd(config, **options)
        started.append(server)
        server.authorize(client.key)
        return server.start()

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def server(serve: Callable[..., Sshd], client: Client) -> Sshd:
    """Give a server that the client trusts."""
    made = serve()
    client.trust(made)
    return made


@pytest.fixture
def agent(client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if shutil.which("ssh-agent") is None:
        pytest.skip("ssh-agent is not installed")
    said = subprocess.run(["ssh-agent", "-a", tmp_path / "a"], check=True, capture_output=True, text=True).stdout
    monkeypatch.setenv("SSH_AUTH_SOCK", str(tmp_path / "a"))
    yield
    os.kill(int(re.search(r"SSH_AGENT_PID=(\d+)", said).group(1)), signal.SIGTERM)


def failure(transport, timeout_s: float = 20) -> TransportError:
    with pytest.raises(TransportError) as caught:
        transport.run("echo unreachable", timeout_s=timeout_s)
    assert "Traceback" not in caught.value.message
    return caught.value


@contextmanager
def listener(behave: Callable[[socket.socket], None]) -> Iterator[int]:
    """Accept connections and do the given thing with each."""
    stop = threading.Event()
    kept = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                kept.append(connection)
                behave(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield server.getsockname()[1]
        finally:
            stop.set()
            thread.join()
            for connection in kept:
                connection.close()
