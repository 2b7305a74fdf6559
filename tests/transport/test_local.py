"""The machine that we run on behaves as a host over SSH does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.sshd import free_port

from llmgwctl.domain.desired import Connection, Host
from llmgwctl.hosts.local import LocalTransport
from llmgwctl.hosts.transport import HttpRequest, PortClosedError, TransportError


@pytest.fixture
def here() -> LocalTransport:
    return LocalTransport(Host("here", "127.0.0.1", connection=Connection.LOCAL))


def test_streams_and_status_come_back(here: LocalTransport):
    """Output, errors and status are kept apart, and commands can't read the script."""
    done = here.run("cat; echo out; echo err >&2; exit 3", timeout_s=10)
    assert (done.exit_status, done.stdout, done.stderr) == (3, b"out\n", b"err\n")


def test_a_signal_is_128_and_its_number(here: LocalTransport):
    """As a shell would tell it."""
    assert here.run("kill -TERM $$", timeout_s=10).exit_status == 143


def test_large_scripts_and_answers_do_not_block_each_other(here: LocalTransport):
    """Three megabytes in while five come out on each stream."""
    script = f"head -c 5000000 /dev/zero >&2; head -c 5000000 /dev/zero\nprintf %s {'x' * 3_000_000} | wc -c"
    done = here.run(script, timeout_s=60)
    assert (len(done.stderr), done.stdout[5_000_000:]) == (5_000_000, b"3000000\n")


def test_the_deadline_kills_the_whole_group(here: LocalTransport):
    """Children of the script end with it."""
    with pytest.raises(TransportError) as caught:
        here.run("sleep 4711 & sleep 4711; wait", timeout_s=0.3)
    assert caught.value.code == "command_timeout"
    listed = subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 4711" not in listed.splitlines()


def test_what_a_script_started_in_the_background_lives_on(here: LocalTransport, tmp_path: Path):
    """An engine that a script starts is not killed with the script's shell."""
    done = here.run("sleep 30 >/dev/null 2>&1 & echo $!", timeout_s=10)
    pid = int(done.stdout)
    assert Path(f"/proc/{pid}").exists()
    subprocess.run(["kill", str(pid)], check=True)


def test_a_stream_ends_when_asked(here: LocalTransport, tmp_path: Path):
    """Following a file hands on what is there, and ends with `stop`."""
    log = tmp_path / "log"
    log.write_text("one\n")
    stop, seen = threading.Event(), bytearray()

    def on_data(data: bytes) -> None:
        seen.extend(data)
        stop.set()

    assert here.stream(f"tail -f {log}", on_data, stop=stop) == 0
    assert seen == b"one\n"
    assert here.stream("exit 5", on_data, stop=threading.Event()) == 5


def test_a_closed_port_is_told_apart(here: LocalTransport):
    """As over SSH: nothing listens, so the engine still loads."""
    with pytest.raises(PortClosedError):
        here.http("127.0.0.1", free_port(), HttpRequest("GET", "/"), timeout_s=5)


def test_local_use_does_not_load_paramiko():
    """The protocol, the local transport and the gatherer cost no import of the SSH library."""
    code = "import sys, llmgwctl.hosts.local, llmgwctl.hosts.gather; sys.exit('paramiko' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_sudo_runs_the_script_as_root():
    """With `sudo: true` the shell is root's; where sudo asks for a password, the error says what sudoers needs."""
    if shutil.which("sudo") is None:
        pytest.skip("sudo is not installed")
    here = LocalTransport(Host("here", "127.0.0.1", connection=Connection.LOCAL, sudo=True))
    if os.geteuid() == 0:
        assert here.run("id -u", timeout_s=10).stdout == b"0\n"
        return
    with pytest.raises(TransportError, match="NOPASSWD"):
        here.run("id -u", timeout_s=10)
