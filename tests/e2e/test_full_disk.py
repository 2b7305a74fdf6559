"""A disk that fills up while an apply works: told once, nothing more is begun, and the next apply does what is left."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from .program import Program
from .test_simulated import host, model


@pytest.fixture
def disk(tmp_path):
    """Return a file system of 48 KiB; states of more than a third of that can't be written any more."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    folder = tmp_path / "disk"
    folder.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48k", "tmpfs", str(folder)], check=False).returncode != 0:
        pytest.skip("a tmpfs can't be mounted here")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_the_state_s_disk_is_full(tmp_path, disk):
    """Where and why is said once, with exit code 5; what was done and what was not begun is told."""
    (tmp_path / "fleet").mkdir()
    program = Program(tmp_path / "fleet")
    settings = {"state": {"path": str(disk / "state.json")}}
    program.write({"hosts": [host(f"s{i}") for i in range(4)], "models": [model("m", 30)], "settings": settings})
    failed = program.run("apply", "--auto-approve", "--parallelism", "2", code=5)
    told = failed.stdout + failed.stderr
    assert told.count(f"The state {disk / 'state.json'} can't be written: No space left on device.") == 1
    assert "itself" not in told
    assert "bug" not in told
    assert "Apply incomplete." in failed.stdout
    begun = failed.stdout.count("Starting on")
    assert 2 < begun < 30
    assert failed.stdout.count("Not begun: the state can't be written") == 30 - begun
    recorded = json.loads((disk / "state.json").read_text())["replicas"]
    assert begun - 2 <= len(recorded) <= begun
    assert sorted(os.listdir(disk))[-3:] == ["state.json", "state.json.backup", "state.json.lock"]

    events = program.run("destroy", "--auto-approve", "--json", "--parallelism", "1", code=5).stdout.splitlines()
    summary = json.loads(events[-1])
    assert (summary["type"], summary["done"], summary["failed"]) == ("summary", 0, 1)

    subprocess.run(["mount", "-o", "remount,size=4m", str(disk)], check=True)
    program.run("apply", "--auto-approve")
    assert len(program.status()) == 30
    assert program.changes() == []


def test_a_saved_plan_from_before_the_first_apply_is_stale(tmp_path):
    """It is said in words, not by a lineage that is none."""
    program = Program(tmp_path)
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    program.run("plan", "--out", str(tmp_path / "p"))
    program.run("apply", str(tmp_path / "p"))
    failed = program.run("apply", str(tmp_path / "p"), code=5)
    assert "The plan is stale" in failed.stderr
    assert "None" not in failed.stderr
    for name in ("", ".backup"):
        (tmp_path / f"llmgwctl.state.json{name}").unlink()
    program.run("plan", "--out", str(tmp_path / "q"))
    assert "another state" not in program.run("apply", str(tmp_path / "q"), code=None).stderr
