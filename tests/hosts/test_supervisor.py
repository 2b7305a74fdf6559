"""The scripts that start, watch and stop a member, run for real under each shell that a host may have."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from pathlib import Path

from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.hosts import scripts
from llmgwctl.hosts.session import Life, StartOrder

from .members import folder, listening, member, port, run, session, shell, status, wait_for

__all__ = ["member", "port", "shell"]

NASTY = [
    "two words",
    "it's",
    '"double"',
    "$(touch /tmp/llmgwctl-was-evaluated)",
    "`id`",
    "line\nbreak",
    "",
    "-x",
    "*",
    "\\n",
]


def test_every_word_reaches_the_engine_as_written(shell, member, port):
    """Arguments and environment with quotes, newlines and $(…) arrive untouched, and nothing of them is evaluated."""
    Path("/tmp/llmgwctl-was-evaluated").unlink(missing_ok=True)
    order = member(args=NASTY, env=[("ODD", "$(id) 'x'\ny")], secrets={"TOKEN": "s3cr3t-\"'$(id)\nnext"})
    wait_for(lambda: (folder(order) / "seen.json").exists() and listening(port), "the engine did not start")
    seen = json.loads((folder(order) / "seen.json").read_text())
    assert seen["argv"] == [str(port), *NASTY]
    assert seen["env"]["ODD"] == "$(id) 'x'\ny"
    assert seen["env"]["TOKEN"] == "s3cr3t-\"'$(id)\nnext"
    assert not Path("/tmp/llmgwctl-was-evaluated").exists()
    assert (folder(order) / "secrets").stat().st_mode & 0o777 == 0o600


def test_the_environment_is_clean(shell, member, port, monkeypatch):
    """Nothing of the login's environment leaks into the engine: a stray LLAMA_ARG_… would change what runs."""
    monkeypatch.setenv("LLAMA_ARG_MODELS_DIR", "/somewhere")
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    names = set(json.loads((folder(order) / "seen.json").read_text())["env"])
    assert names <= {"PATH", "HOME", "LANG", "USER", "PWD", "OLDPWD", "SHLVL", "_", "LC_CTYPE"}


def test_a_secret_is_in_no_process_list(shell, member, port):
    """The secret goes by a file that only its owner reads."""
    order = member(secrets={"TOKEN": "plantedsecret"})
    wait_for(lambda: listening(port), "the engine did not start")
    listed = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True).stdout
    assert "plantedsecret" not in listed
    assert "plantedsecret" not in (folder(order) / "replica.json").read_text()
    assert "plantedsecret" not in (folder(order) / "run").read_text()


def test_stop_ends_all_and_removes_the_folder(shell, member, port):
    """After a stop there is no process, no open port and no file of the member, nor our empty folders."""
    order = member("import subprocess; child = subprocess.Popen(['sleep', '600'])")
    wait_for(lambda: listening(port), "the engine did not start")
    assert status(shell, order).life is Life.ALIVE
    sid = int((folder(order) / "session").read_text().split()[0])
    done = run(shell, scripts.stop_script(order.launch, "lineage", 1))
    assert done.returncode == 0, done.stderr
    assert not listening(port)
    assert not folder(order).exists()
    assert not Path(order.launch.root).exists()
    assert session(sid) == []
    assert status(shell, order).life is Life.ABSENT


def test_stop_kills_what_ignores_term(shell, member, port):
    """An engine, and its child, that ignore TERM are killed once the grace is over."""
    mode = "signal.signal(15, signal.SIG_IGN); import subprocess; subprocess.Popen(['sleep', '600'])"
    order = member(mode)
    wait_for(lambda: listening(port), "the engine did not start")
    sid = int((folder(order) / "session").read_text().split()[0])
    begun = time.monotonic()
    done = run(shell, scripts.stop_script(order.launch, "lineage", 1))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun >= order.launch.stop.grace_s * 0.8
    assert session(sid) == []
    assert not listening(port)


def test_stop_ends_workers_that_outlived_their_leader(shell, member, port):
    """Workers whose engine and supervisor were killed are still found, by their session."""
    order = member("import subprocess; subprocess.Popen(['sleep', '600'])")
    wait_for(lambda: listening(port), "the engine did not start")
    sid = int((folder(order) / "session").read_text().split()[0])
    leader = int((folder(order) / "pid").read_text())
    os.kill(sid, 9)
    os.kill(leader, 9)
    wait_for(lambda: len(session(sid)) == 1, "the worker should be left")
    done = run(shell, scripts.stop_script(order.launch, "lineage", 1))
    assert done.returncode == 0, done.stderr
    assert session(sid) == []


def test_another_states_replica_is_not_stopped(shell, member, port):
    """A stop under the same name by another state does nothing."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    done = run(shell, scripts.stop_script(order.launch, "another", 1))
    assert done.returncode == 0, done.stderr
    assert status(shell, order).life is Life.ALIVE
    assert folder(order).exists()


def test_a_second_start_is_refused_and_leaves_the_first(shell, member, port):
    """A folder that exists is never overwritten, nor removed by the refusal."""
    order = member()
    wait_for(lambda: listening(port), "the engine did not start")
    done = run(shell, scripts.start_script(order, "setsid", {}))
    assert done.returncode == scripts.EXISTS
    assert status(shell, order).life is Life.ALIVE


def test_a_port_in_use_is_refused_and_nothing_is_left(shell, tmp_path, port):
    """A start that fails before the process leaves no folder."""
    launch = LaunchSpec(
        "m.0.0",
        "sim",
        ("true",),
        (),
        (),
        "",
        (),
        "127.0.0.1",
        port,
        Readiness(""),
        StopPolicy(),
        1.0,
        root=str(tmp_path / "replicas"),
    )
    with socket.create_server(("127.0.0.1", port)):
        done = run(shell, scripts.start_script(StartOrder("m/0", 0, "m", "p", "l", "n", launch), "setsid", {}))
    assert done.returncode == scripts.CANNOT_START
    assert f"port {port} is in use" in done.stderr.decode()
    assert not (tmp_path / "replicas" / "m.0.0").exists()


def test_an_engine_that_ends_is_restarted_and_told(shell, member, port):
    """The supervisor restarts an engine that ended, and status says how it ended, even after exit status 0."""
    order = member("server.close(); sys.exit(3)")
    wait_for(lambda: status(shell, order).restarts >= 1, "no restart was counted")
    assert (folder(order) / "exit").read_text().strip() == "3"
    ended = status(shell, order)
    assert ended.life is Life.ALIVE or ended.detail == "exited with status 3"


def test_stop_of_what_is_not_there_is_no_failure(shell, tmp_path):
    """Stopping twice is the same as once."""
    launch = LaunchSpec(
        "m.0.0", "sim", (), (), (), "", (), "", 0, Readiness(""), StopPolicy(), 1.0, root=str(tmp_path / "none")
    )
    done = run(shell, scripts.stop_script(launch, "lineage", 1))
    assert done.returncode == 0, done.stderr


def test_an_unwritable_folder_is_told(shell, tmp_path):
    """What can't be written is named."""
    (tmp_path / "file").write_text("")
    launch = LaunchSpec(
        "m.0.0", "sim", (), (), (), "", (), "", 1, Readiness(""), StopPolicy(), 1.0, root=str(tmp_path / "file" / "x")
    )
    done = run(shell, scripts.start_script(StartOrder("m/0", 0, "m", "p", "l", "n", launch), "setsid", {}))
    assert done.returncode == scripts.CANNOT_WRITE
    assert "cannot make the folder" in done.stderr.decode()
