"""Links are followed: what they lead to is written, and who shares it shares its lock."""

from __future__ import annotations

import os
import subprocess

import pytest

from llmgwctl.errors import LockError, StateError
from llmgwctl.store.statefile import StateFile

from .test_statefile import record


@pytest.fixture
def shared(tmp_path):
    """Return a state that exists, and two links to it in other folders."""
    for name in ("real", "a", "b"):
        (tmp_path / name).mkdir()
    real = tmp_path / "real" / "s.json"
    with StateFile(real).session("apply") as writer:
        writer.put(record())
    for name in ("a", "b"):
        (tmp_path / name / "s.json").symlink_to(real)
    return real, tmp_path / "a" / "s.json", tmp_path / "b" / "s.json"


def test_a_linked_state_stays_a_link(shared):
    """The write goes to the file behind it, and its backup is there as well."""
    real, a, b = shared
    before = real.read_text()
    with StateFile(a).session("apply") as writer:
        writer.put(record("m/1"))
    assert a.is_symlink()
    assert not real.is_symlink()
    assert set(StateFile(b).load().replicas) == {"m/0", "m/1"}
    assert real.with_name("s.json.backup").read_text() == before
    assert os.listdir(a.parent) == ["s.json"]


def test_two_links_to_one_state_share_its_lock(shared):
    """Two configurations with one state never write at the same time."""
    _, a, b = shared
    with StateFile(a).session("apply"), pytest.raises(LockError), StateFile(b).session("apply"):
        pass


def test_a_link_that_leads_nowhere_is_not_no_state(shared):
    """A disk that isn't mounted must not start second copies."""
    real, a, _ = shared
    for path in real.parent.iterdir():
        path.unlink()
    with pytest.raises(StateError, match="is a link to"):
        StateFile(a).load()


def test_a_backup_a_lock_and_steps_may_be_links(tmp_path):
    """Each is written where its link leads."""
    (tmp_path / "far").mkdir()
    state = tmp_path / "s.json"
    for ending in ("backup", "lock", "steps"):
        (tmp_path / f"s.json.{ending}").symlink_to(tmp_path / "far" / ending)
    with StateFile(state).session("apply") as writer:
        for i in range(130):
            writer.put(record(f"m/{i}"))
        assert (tmp_path / "far" / "steps").exists()
        assert (tmp_path / "far" / "lock").read_text()
        assert len(StateFile(state).load().replicas) == 130
    assert '"m/0"' in (tmp_path / "far" / "backup").read_text()
    assert all((tmp_path / f"s.json.{ending}").is_symlink() for ending in ("backup", "lock", "steps"))


def test_a_backup_on_another_file_system(tmp_path):
    """It can't be a second name of the state there, so it is a copy."""
    if os.geteuid() != 0:
        pytest.skip("another file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "tmpfs", str(disk)], check=False).returncode != 0:
        pytest.skip("a tmpfs can't be mounted here")
    try:
        store_path = tmp_path / "s.json"
        (tmp_path / "s.json.backup").symlink_to(disk / "backup")
        for name in ("m/0", "m/1"):
            before = store_path.read_text() if store_path.exists() else ""
            with StateFile(store_path).session("apply") as writer:
                writer.put(record(name))
        assert (disk / "backup").read_text() == before
        assert (disk / "backup").stat().st_mode & 0o777 == 0o600
        assert os.listdir(disk) == ["backup"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.mark.parametrize("what", ["fifo", "directory"])
def test_a_lock_that_is_no_file(tmp_path, what):
    """It is an error that names it, and nothing is waited for."""
    store = StateFile(tmp_path / "s.json")
    os.mkfifo(store.lock) if what == "fifo" else store.lock.mkdir()
    with pytest.raises(StateError) as problem, store.session("apply"):
        pass
    assert str(store.lock if what == "fifo" else store.path) in problem.value.message
