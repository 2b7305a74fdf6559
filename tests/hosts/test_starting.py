"""What a start refuses, and that a refusal changes nothing."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.hosts import scripts
from llmgwctl.hosts.session import Life, StartOrder

from .members import folder, listening, member, port, run, shell, status, wait_for

__all__ = ["member", "port", "shell"]

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
NOBODY = 65534
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def order(root: Path, port: int = 1, **changes) -> StartOrder:
    launch = LaunchSpec(
        "m.0.0",
        "sim",
        ("sleep", "60"),
        (),
        (),
        "",
        (),
        "127.0.0.1",
        port,
        Readiness(""),
        StopPolicy(0.2),
        1.0,
        root=str(root),
    )
    return StartOrder("m/0", 0, "m", "p", "lineage", "here", replace(launch, **changes))


def refused(shell, wanted: StartOrder, status: int, words: str, path: str | None = None) -> None:
    env = {**os.environ, "PATH": path} if path else None
    done = run(shell, scripts.start_script(wanted, "setsid", {}), env=env)
    assert done.returncode == status, done.stderr
    assert words in done.stderr.decode()


def test_a_folder_without_a_replica_is_not_taken_over(shell, tmp_path, port):
    """What is in the folder's place stays as it is, and the message says what to do."""
    (tmp_path / "m.0.0").mkdir()
    (tmp_path / "m.0.0" / "precious").write_text("kept")
    refused(shell, order(tmp_path, port), scripts.EXISTS, "without a replica.json")
    assert (tmp_path / "m.0.0" / "precious").read_text() == "kept"


def test_of_two_starts_at_once_one_is_refused(shell, tmp_path, port):
    """The folder is made by one of them only, and the other leaves it alone."""
    script = scripts.start_script(order(tmp_path / "r", port), "setsid", {}).encode()
    both = [
        subprocess.Popen([*shell, "-s"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(4)
    ]
    for process in both:
        assert process.stdin
        process.stdin.write(script)
        process.stdin.close()
    codes = sorted(process.wait(60) for process in both)
    for process in both:
        process.stdout.close()
        process.stderr.close()
    assert codes == [0, *[scripts.EXISTS] * 3]
    assert status(shell, order(tmp_path / "r", port)).life is Life.ALIVE
    assert run(shell, scripts.stop_script(order(tmp_path / "r").launch, "lineage", 1)).returncode == 0


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_a_root_that_everybody_can_write_is_refused(shell, tmp_path, port, mode):
    """Others could put their own script where ours is started from."""
    root = tmp_path / "replicas"
    root.mkdir()
    root.chmod(mode)
    refused(shell, order(root, port), scripts.CANNOT_WRITE, f"everybody can write to {root}")
    assert list(root.iterdir()) == []


@AS_ROOT
def test_a_root_of_another_user_is_refused(shell, tmp_path, port):
    """Its owner could swap what is in it; a link to it changes nothing about that."""
    root = tmp_path / "replicas"
    root.mkdir()
    os.chown(root, NOBODY, NOBODY)
    refused(shell, order(root, port), scripts.CANNOT_WRITE, "belongs to another user")
    (tmp_path / "link").symlink_to(root)
    refused(shell, order(tmp_path / "link", port), scripts.CANNOT_WRITE, "belongs to another user")
    refused(shell, order(tmp_path / "link" / "below", port), scripts.CANNOT_WRITE, "belongs to another user")
    assert list(root.iterdir()) == []


@AS_ROOT
def test_a_folder_on_the_way_that_others_can_write_is_refused(shell, tmp_path, port):
    """A sticky one, as /tmp, is fine; in one that isn't, anybody could rename ours."""
    way = tmp_path / "way"
    way.mkdir()
    way.chmod(0o777)
    refused(shell, order(way / "replicas", port), scripts.CANNOT_WRITE, f"everybody can write to {way}")
    assert list(way.iterdir()) == []
    way.chmod(0o1777)
    wanted = order(way / "replicas", port)
    assert run(shell, scripts.start_script(wanted, "setsid", {})).returncode == 0
    assert (way / "replicas" / "m.0.0").stat().st_mode & 0o777 == 0o700
    assert run(shell, scripts.stop_script(wanted.launch, "lineage", 1)).returncode == 0
    (way / "planted").symlink_to("/var/lib")
    os.lchown(way / "planted", NOBODY, NOBODY)
    refused(shell, order(way / "planted" / "x", port), scripts.CANNOT_WRITE, "belongs to another user")


@AS_ROOT
def test_a_group_may_write_only_where_it_is_the_users_own(shell, tmp_path, port):
    """Debian gives each user a group of its own, and folders that this group can write."""
    root = tmp_path / "replicas"
    root.mkdir()
    root.chmod(0o775)
    wanted = order(root, port)
    assert run(shell, scripts.start_script(wanted, "setsid", {})).returncode == 0
    assert run(shell, scripts.stop_script(wanted.launch, "lineage", 1)).returncode == 0
    root.mkdir()
    os.chown(root, 0, 50)
    root.chmod(0o775)
    refused(shell, order(root, port), scripts.CANNOT_WRITE, "the group 50 can write")


def fake_smi(tmp_path: Path, lines: str, code: int = 0) -> str:
    tools = tmp_path / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "nvidia-smi").write_text(f"#!/bin/sh\nprintf '%s' '{lines}'\nexit {code}\n")
    (tools / "nvidia-smi").chmod(0o755)
    return f"{tools}:{os.environ['PATH']}"


def test_a_gpu_that_a_process_holds_is_refused(shell, tmp_path, port):
    """As a port in use is: the process is named, and nothing is left."""
    worker = subprocess.Popen(["sleep", "60"])
    try:
        wait_for(lambda: Path(f"/proc/{worker.pid}/comm").read_text() == "sleep\n", "it does not sleep")
        path = fake_smi(tmp_path, f"GPU-other, 1\n{UUID}, {worker.pid}\n")
        wanted = order(tmp_path / "r", port, gpus=(UUID,))
        refused(shell, wanted, scripts.CANNOT_START, f"GPU {UUID} is in use by process {worker.pid} (sleep)", path=path)
        assert not (tmp_path / "r").exists()
    finally:
        worker.kill()
        worker.wait()


def test_a_tool_that_fails_refuses_nothing(shell, tmp_path, port):
    """A GPU is not in use because nvidia-smi says so on its way to an error."""
    path = fake_smi(tmp_path, f"{UUID}, 1\n", code=9)
    wanted = order(tmp_path / "r", port, gpus=(UUID,))
    done = run(shell, scripts.start_script(wanted, "setsid", {}), env={**os.environ, "PATH": path})
    assert done.returncode == 0, done.stderr
    assert run(shell, scripts.stop_script(wanted.launch, "lineage", 1)).returncode == 0


def test_a_gpu_of_another_replica_is_refused(shell, member, port):
    """Of every kind of GPU, as long as the other engine lives."""
    first = member(gpus=("SIM-here-0", "SIM-here-1"))
    wait_for(lambda: listening(port), "the engine did not start")
    root = Path(first.launch.root)
    wanted = order(root, 1, gpus=("SIM-here-1",), folder="n.0.0")
    refused(shell, wanted, scripts.CANNOT_START, "GPU SIM-here-1 is in use by process")
    assert not folder(wanted).exists()
    sid = int((folder(first) / "session").read_text().split()[0])
    os.kill(sid, 9)
    os.kill(int((folder(first) / "pid").read_text()), 9)
    wait_for(lambda: not listening(port), "the engine did not end")
    done = run(shell, scripts.start_script(wanted, "setsid", {}))
    assert done.returncode == 0, done.stderr
    assert run(shell, scripts.stop_script(wanted.launch, "lineage", 1)).returncode == 0


def test_a_start_that_cannot_write_takes_back_what_it_made(shell, tmp_path, port):
    """Neither its folder nor those that it made on the way are left."""
    wanted = order(tmp_path / "llmgwctl" / "replicas", port)
    script = scripts.start_script(wanted, "setsid", {"no/folder": "x"})
    done = run(shell, script)
    assert done.returncode == scripts.CANNOT_WRITE
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_setsid_is_told_before_anything_is_made(shell, tmp_path, port):
    """The tool is named."""
    if shell[0] == "busybox":
        pytest.skip("busybox's shell has setsid built in")
    tools = tmp_path / "tools"
    tools.mkdir()
    for name in ("id", "ls", "cat", "tr", "sed", "grep", "mkdir", "rm", "rmdir", "sleep", "readlink", "head"):
        (tools / name).symlink_to(shutil.which(name))
    script = scripts.start_script(order(tmp_path / "r", port), "setsid", {}).replace(f"$PATH:{scripts.PATH}", "$PATH")
    where = shutil.which(shell[0])
    done = run([where, *shell[1:]], script, env={"PATH": str(tools), "HOME": "/nonexistent"})
    assert done.returncode == scripts.CANNOT_START, done.stderr
    assert "setsid was not found" in done.stderr.decode()
    assert not (tmp_path / "r").exists()


def test_a_mark_follows_no_link(shell, member, port, tmp_path):
    """Neither the mark of readiness nor that of a stop writes through a link."""
    first = member()
    wait_for(lambda: listening(port), "the engine did not start")
    target = tmp_path / "target"
    for name in ("ready", "stopping"):
        (folder(first) / name).unlink(missing_ok=True)
        (folder(first) / name).symlink_to(target)
    run(shell, scripts.mark_ready_script(first.launch))
    assert run(shell, scripts.stop_script(first.launch, "lineage", 1)).returncode == 0
    assert not target.exists()
    assert not listening(port)
    assert not folder(first).exists()
