"""A stop finds what is left of a member, wherever it hides, and touches nothing else."""

from __future__ import annotations

import os
import pty
import shutil
import signal
import socket
import subprocess
import time
from dataclasses import replace

import pytest

from llmgwctl.domain.launch import StopPolicy
from llmgwctl.hosts import scripts
from llmgwctl.hosts.session import Life

from .members import alive, folder, listening, member, port, run, session, shell, status, wait_for

__all__ = ["member", "port", "shell"]

QUICK = StopPolicy(grace_s=1.0)
WORKER = (
    "import subprocess; server.set_inheritable(True)\n"
    "w = subprocess.Popen(['sleep', '600'], start_new_session=True, MORE); print('worker', w.pid, flush=True)"
)


def stop(shell, order, lineage: str = "lineage", **changes) -> subprocess.CompletedProcess:
    return run(shell, scripts.stop_script(replace(order.launch, stop=QUICK, **changes), lineage, 1))


def worker_of(order) -> int:
    wait_for(lambda: "worker" in (folder(order) / "log").read_text(), "no worker was started")
    return int((folder(order) / "log").read_text().split("worker ")[1].split()[0])


@pytest.mark.parametrize("root_too", [False, True])
def test_an_engine_whose_folder_is_gone_is_ended(shell, member, port, root_too):
    """It is found by the folder that it works in; nothing of it is left, and a second stop has nothing to do."""
    order = member("import subprocess; subprocess.Popen(['sleep', '600'])")
    wait_for(lambda: listening(port), "the engine did not start")
    sid = int((folder(order) / "session").read_text().split()[0])
    shutil.rmtree(order.launch.root if root_too else folder(order))
    done = stop(shell, order)
    assert done.returncode == 0, done.stderr
    assert session(sid) == []
    assert not listening(port)
    begun = time.monotonic()
    assert stop(shell, order).returncode == 0
    assert time.monotonic() - begun < 1.5


def test_an_engine_that_ignores_term_is_killed_without_its_folder_too(shell, member, port):
    """As with the folder."""
    order = member("signal.signal(15, signal.SIG_IGN)")
    wait_for(lambda: listening(port), "the engine did not start")
    sid = int((folder(order) / "session").read_text().split()[0])
    shutil.rmtree(folder(order))
    assert stop(shell, order).returncode == 0
    assert session(sid) == []


def test_a_link_on_the_way_hides_nothing(shell, member, port, tmp_path):
    """The kernel knows an engine's folder by its real path."""
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    order = member(root=str(link / "replicas"))
    wait_for(lambda: listening(port), "the engine did not start")
    shutil.rmtree(folder(order))
    assert stop(shell, order).returncode == 0
    assert not listening(port)


def test_a_replica_whose_description_is_gone_is_ours_by_our_record(shell, member, port):
    """Only a description of another state says that it isn't."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    (folder(order) / "replica.json").unlink()
    assert stop(shell, order).returncode == 0
    assert not listening(port)
    assert not folder(order).exists()


def test_a_worker_with_a_session_of_its_own_is_ended(shell, member, port):
    """A worker that calls setsid still works in the replica's folder."""
    order = member(WORKER.replace("MORE", ""))
    wait_for(lambda: listening(port), "the engine did not start")
    worker = worker_of(order)
    done = stop(shell, order)
    assert done.returncode == 0, done.stderr
    assert not alive(worker)


def test_an_operators_shell_in_the_folder_lives_on(shell, member, port):
    """A process with a terminal is no engine."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder(order))
        os.execvp("sleep", ["sleep", "60"])
    wait_for(lambda: os.readlink(f"/proc/{pid}/cwd") == str(folder(order)), "the shell is not there")
    assert stop(shell, order).returncode == 0
    assert alive(pid)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)


def test_a_stop_from_within_the_folder_ends_not_itself(shell, member, port, tmp_path):
    """Whoever asks for the stop may work in the folder."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    script = scripts.stop_script(replace(order.launch, stop=QUICK), "lineage", 1)
    asking = ["sh", "-c", 'cd "$1"; shift; "$@"; exit $?', "-", str(folder(order)), *shell, "-s"]
    done = subprocess.run(asking, input=script.encode(), capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert not listening(port)


def test_a_port_that_others_listen_on_is_not_ours(shell, member, port):
    """Neither the same port at another address, nor a port of ours that somebody else has."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    with socket.create_server(("127.0.0.2", port)), socket.create_server(("127.0.0.1", port + 1)):
        begun = time.monotonic()
        done = stop(shell, order, ports=2)
        assert done.returncode == 0, done.stderr
        assert time.monotonic() - begun < 8
    assert not listening(port)


def test_a_socket_of_ours_that_stays_open_is_told(shell, member, port):
    """A process that left the folder and its session, and holds the engine's socket, is a stop that failed."""
    order = member(WORKER.replace("MORE", "close_fds=False, cwd='/'"))
    worker = worker_of(order)
    wait_for(lambda: listening(port), "the engine did not start")
    done = stop(shell, order)
    assert done.returncode == scripts.STILL_THERE
    assert f"port {port} is still open" in done.stderr.decode()
    os.kill(worker, signal.SIGKILL)
    assert stop(shell, order).returncode == 0
    assert not folder(order).exists()


def test_the_description_of_another_state_protects_what_runs_there(shell, member, port):
    """Also where the processes could be found by other ways."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    (folder(order) / "session").unlink()
    assert stop(shell, order, "another").returncode == 0
    assert listening(port)
    assert stop(shell, order).returncode == 0
    assert not listening(port)
    assert status(shell, order).life is Life.ABSENT


def test_the_supervisor_of_a_folder_that_is_gone_ends(shell, member, port):
    """It starts nothing again where there is nothing to start."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    sid = int((folder(order) / "session").read_text().split()[0])
    shutil.rmtree(folder(order))
    os.kill(next(p for p in session(sid) if p != sid), signal.SIGKILL)
    wait_for(lambda: session(sid) == [], "the supervisor goes on")


def test_a_log_is_bounded_in_bytes(shell, member, port):
    """A line of many megabytes is cut, its end is shown."""
    order = member("print('x' * 9_000_000 + 'end', flush=True)")
    wait_for(lambda: (folder(order) / "log").stat().st_size > 9_000_000, "nothing was logged")
    done = run(shell, scripts.log_script(order.launch.root, "m.0.0", 20, follow=False, most_bytes=65536))
    assert len(done.stdout) <= 65536
    assert done.stdout.endswith(b"xend\n")
    done = run(shell, scripts.log_script(order.launch.root, "m.0.0", 0, follow=False))
    assert done.stdout == b""


def test_a_log_is_followed_without_a_gap(shell, tmp_path):
    """First the last lines, then what is appended, each once."""
    (tmp_path / "m.0.0").mkdir()
    log = tmp_path / "m.0.0" / "log"
    log.write_text("".join(f"{n}\n" for n in range(1000)))
    script = scripts.log_script(str(tmp_path), "m.0.0", 3, follow=True, most_bytes=1000)
    process = subprocess.Popen([*shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
    try:
        process.stdin.write(script.encode())
        process.stdin.close()
        assert [process.stdout.readline() for _ in range(3)] == [b"997\n", b"998\n", b"999\n"]
        with log.open("a") as file:
            file.write("1000\n")
        assert process.stdout.readline() == b"1000\n"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_paths_are_quoted_for_systemd():
    """What systemd reads in a path of its own accord is written twice; what it can't quote is refused elsewhere."""
    text = scripts.unit_text("/srv/odd $HOME %i it's", "systemd")
    assert 'ExecStart=/bin/sh "/srv/odd $$HOME %%i it\'s/%i/run"\n' in text
    assert "StandardOutput=append:/srv/odd $HOME %%i it's/%i/log\n" in text
    assert "TimeoutStopSec=60\n" in text
