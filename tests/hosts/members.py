"""What the tests of the scripts share: the shells, and a member that a script started."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.hosts import scripts
from llmgwctl.hosts.session import StartOrder
from llmgwctl.hosts.shell import read_status

SHELLS = [["dash"], ["bash", "--posix"], ["busybox", "sh"]]
# Writes what it was given, then listens until it is told to end.
ENGINE = """
import json, os, signal, socket, sys, time
json.dump({"argv": sys.argv[1:], "env": dict(os.environ)}, open("seen.json", "w"))
print("engine runs", flush=True)
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
MODE
time.sleep(600)
"""


@pytest.fixture(params=SHELLS, ids=lambda s: s[0])
def shell(request):
    if not shutil.which(request.param[0]):
        pytest.skip(f"{request.param[0]} is not installed")
    return request.param


@pytest.fixture
def port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def run(shell: list[str], script: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess:
    return subprocess.run([*shell, "-s"], input=script.encode(), capture_output=True, timeout=120, check=False, env=env)


@pytest.fixture
def member(tmp_path, port, shell):
    """Give a started member's order; whatever is left of it is killed at the end."""
    orders = []

    def start(mode: str = "", args=(), env=(), secrets=None, **changes) -> StartOrder:
        engine = tmp_path / "engine.py"
        engine.write_text(ENGINE.replace("MODE", mode))
        launch = LaunchSpec(
            folder="m.0.0",
            engine="sim",
            argv=("python3", str(engine), str(port), *args),
            env=tuple(env),
            gpus=(),
            device_env="",
            files=(),
            address="127.0.0.1",
            port=port,
            readiness=Readiness("/health"),
            stop=StopPolicy(grace_s=2.0),
            startup_timeout_s=20.0,
            root=str(tmp_path / "root dir" / "replicas"),
        )
        order = StartOrder("m/0", 0, "m", "p", "lineage", "here", replace(launch, **changes), secrets or {})
        orders.append(order)
        done = run(shell, scripts.start_script(order, "setsid", {}))
        assert done.returncode == 0, done.stderr
        return order

    yield start
    for order in orders:
        run(shell, scripts.stop_script(replace(order.launch, stop=StopPolicy(0.2)), "lineage", 1))


def folder(order: StartOrder) -> Path:
    return Path(order.launch.root) / order.launch.folder


def wait_for(condition, what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def listening(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status(shell, order):
    done = run(shell, scripts.status_script(order.launch))
    assert done.returncode == 0, done.stderr
    return read_status(done.stdout.decode())


def session(sid: int) -> list[int]:
    """Return the living processes of a session."""
    pids = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == sid and fields[0] != "Z":
            pids.append(int(stat.parent.name))
    return pids


def alive(pid: int) -> bool:
    """Whether a process lives; a zombie doesn't."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
