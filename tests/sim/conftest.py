"""Real processes of the simulated engine on free ports of the loopback."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

SERVER = Path(__file__).parents[2] / "llmgwctl" / "hosts" / "payload" / "sim_server.py"
PATIENCE_S = 60.0


@dataclass
class Sim:
    """One running server; `lines` are what its log has said so far."""

    process: subprocess.Popen[str]
    host: str = "127.0.0.1"
    port: int = 0
    lines: list[str] = field(default_factory=list)

    def wait_for(self, text: str) -> str:
        """Read the log until a line holds this text."""
        assert self.process.stderr
        for line in self.process.stderr:
            self.lines.append(line.rstrip("\n"))
            found = re.search(r"listening on .* port (\d+)", line)
            if found:
                self.port = int(found[1])
            if text in line:
                return line
        raise AssertionError(f"the log never said {text!r}: {self.lines}")

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE_S)

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, dict[str, str], bytes]:
        """Make one request on a connection of its own."""
        connection = self.connect()
        data = json.dumps(body) if body is not None and not isinstance(body, (bytes, str)) else body
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        result = (answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        connection.close()
        return result

    def json(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        status, _, data = self.ask(method, path, body)
        return status, json.loads(data)

    def term(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """Wait until it has gone; returns its exit status."""
        _, rest = self.process.communicate(timeout=PATIENCE_S)
        self.lines += rest.splitlines()
        return self.process.returncode


@pytest.fixture
def start() -> Iterator[Callable[..., Sim]]:
    """Start a server with these words; every one is killed at the end."""
    started: list[Sim] = []

    def _start(*words: str, python: str = sys.executable, ready: bool = True, host: str = "127.0.0.1") -> Sim:
        command = [python, str(SERVER), "--model", "m", "--host", host, "--port", "0", *words]
        sim = Sim(subprocess.Popen(command, stderr=subprocess.PIPE, text=True), host)
        started.append(sim)
        if ready:
            sim.wait_for("simulated engine: ready")
        return sim

    yield _start
    for sim in started:
        if sim.process.poll() is None:
            sim.process.kill()
        sim.process.communicate()


def until(question: Callable[[], bool]) -> None:
    """Ask until it is so."""
    end = time.monotonic() + PATIENCE_S
    while not question():
        assert time.monotonic() < end, "it never became so"
        time.sleep(0.02)
