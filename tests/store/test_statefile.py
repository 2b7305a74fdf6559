"""The state file: whole or not at all, kept once more, locked, and never mistaken for no state."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.domain.state import MemberRecord, ReplicaRecord, State
from llmgwctl.errors import LockError, StateError
from llmgwctl.store.format import dump_state, load_state
from llmgwctl.store.statefile import StateFile


def record(name: str = "m/0", **changes: object) -> ReplicaRecord:
    launch = LaunchSpec(
        "m.0.0",
        "vllm",
        ("vllm", "serve", 'a "b"\n$(c)'),
        (("A", "1"), ("T", SecretRef("from_env", ("HF",))), ("U", SecretRef("from_command", ("pass", "x y")))),
        ("GPU-1",),
        "CUDA_VISIBLE_DEVICES",
        (),
        "10.0.0.1",
        20000,
        Readiness("/health", "/v1/models", "m"),
        StopPolicy(5.0, True, 2.0),
        1200.0,
    )
    values: dict[str, object] = {"members": (MemberRecord("a1", ("GPU-1",), (0,), launch, "boot"),)}
    return ReplicaRecord(name, name.rpartition("/")[0], "p", "vllm", **(values | changes))


def test_a_state_comes_back_as_it_was():
    """Everything in a state survives the file, secrets as references."""
    state = State(
        "lineage", 7, {"m/0": record(), "m/1": record("m/1", owner=None)}, {"x": {"definition": {}}}, {}, ({"a": 1},)
    )
    text = dump_state(state)
    assert load_state(text, "s") == state
    assert set(json.loads(text)) == {
        "format_version",
        "lineage",
        "serial",
        "tool_version",
        "replicas",
        "runtime_models",
        "runtime_quotas",
        "journal",
    }


def test_the_file_is_private_and_keeps_the_one_before(tmp_path):
    """Mode 0600, and the state before the last write beside it."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        writer.put(record())
    first = store.path.read_text()
    with store.session("apply") as writer:
        writer.put(record("m/1"))
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.backup.read_text() == first
    assert store.lock.exists()
    assert set(store.load().replicas) == {"m/0", "m/1"}


def test_the_serial_rises_and_the_lineage_stays(tmp_path):
    """Every change counts; a session without one writes nothing."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        writer.put(record())
    before = store.load()
    with store.session("plan"):
        pass
    assert store.load() == before
    with store.session("apply") as writer:
        writer.put(record("m/1"))
        writer.remove(record("m/1"))
    after = store.load()
    assert (after.lineage, after.serial) == (before.lineage, before.serial + 2)


def test_a_missing_state_beside_a_backup_is_an_error(tmp_path):
    """A file that someone took away is not a new beginning."""
    store = StateFile(tmp_path / "s.json")
    assert store.load() == State()
    store.backup.write_text("{}")
    with pytest.raises(StateError, match="missing"):
        store.load()


def test_an_edit_by_hand_is_accepted(tmp_path):
    """A well-formed edit counts, however it is laid out: there is no checksum."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        writer.put(record())
        writer.put(record("m/1"))
    data = json.loads(store.path.read_text())
    data["replicas"]["m/0"]["owner"] = "team:a"
    del data["replicas"]["m/1"], data["journal"], data["tool_version"]
    store.path.write_text(json.dumps(data, indent=4))
    (edited,) = store.load().replicas.values()
    assert edited.owner == "team:a"


def test_the_lock_names_its_holder(tmp_path):
    """The second writer is told who, when and what, and writes nothing."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply"):
        with pytest.raises(LockError) as problem, store.session("destroy"):
            pass
        assert f"process {os.getpid()}" in problem.value.message
        assert "who runs apply" in problem.value.message
    with store.session("destroy"):
        pass


def test_the_lock_waits_as_long_as_told(tmp_path):
    """A lock that is freed in time is obtained."""
    store = StateFile(tmp_path / "s.json")
    code = (
        "import sys, time, pathlib; from llmgwctl.store.statefile import StateFile\n"
        "with StateFile(pathlib.Path(sys.argv[1])).session('apply'): print('held', flush=True); time.sleep(1)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(store.path)], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        told = []
        with store.session("apply", lock_timeout_s=30, notice=told.append):
            assert len(told) == 1


def test_a_killed_holder_frees_the_lock_and_loses_no_step(tmp_path):
    """Steps that were recorded before a kill -9 are in the next state, though it was not written whole."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        for i in range(200):
            writer.put(record(f"m/{i}"))
    code = (
        "import sys, time, pathlib; sys.path.insert(0, sys.argv[2])\n"
        "from llmgwctl.store.statefile import StateFile; from tests.store.test_statefile import record\n"
        "with StateFile(pathlib.Path(sys.argv[1])).session('apply') as w:\n"
        "    w.put(record('new/0')); w.remove(record('m/7')); print('done', flush=True); time.sleep(60)"
    )
    root = str(Path(__file__).parents[2])
    with subprocess.Popen([sys.executable, "-c", code, str(store.path), root], stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"done\n"
        holder.send_signal(signal.SIGKILL)
    assert store.steps.exists()
    loaded = store.load()
    assert "new/0" in loaded.replicas
    assert "m/7" not in loaded.replicas
    with store.session("apply") as writer:
        assert writer.state == loaded
    assert not store.steps.exists()
    assert load_state(store.path.read_text(), "s") == loaded


def test_a_torn_last_step_is_left_out(tmp_path):
    """A crash in the middle of a step's line costs that step only."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        for i in range(200):
            writer.put(record(f"m/{i}"))
    state = store.load()
    step = {"serial": state.serial + 1, "lineage": state.lineage, "replica": "m/3", "record": None}
    store.steps.write_text(json.dumps(step) + "\n" + '{"serial": 999, "lin')
    loaded = store.load()
    assert "m/3" not in loaded.replicas
    assert loaded.serial == state.serial + 1


def test_steps_of_another_state_are_not_applied(tmp_path):
    """A journal that belongs to another lineage, or an older state, changes nothing."""
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        writer.put(record())
    state = store.load()
    for lineage, serial in (("other", 99), (state.lineage, state.serial - 1)):
        store.steps.write_text(
            json.dumps({"serial": serial, "lineage": lineage, "replica": "m/0", "record": None}) + "\n"
        )
        assert store.load().replicas == state.replicas


def test_a_write_that_fails_leaves_the_state(tmp_path):
    """No space, no rights, a read-only disk: the old state stays whole and the error says so."""
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere")
    store = StateFile(tmp_path / "s.json")
    with store.session("apply") as writer:
        writer.put(record())
    before = store.path.read_text()
    tmp_path.chmod(0o500)
    with pytest.raises(StateError), store.session("apply") as writer:
        writer.put(record("m/1"))
    tmp_path.chmod(0o700)
    assert store.path.read_text() == before


def test_a_full_disk_leaves_the_state(tmp_path):
    """A write that runs out of space is an error, and the state before is whole."""
    if os.geteuid() != 0:
        pytest.skip("a small file system needs root")
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)], check=False)
    if mounted.returncode != 0:
        pytest.skip("a tmpfs can't be mounted here")
    try:
        store = StateFile(disk / "s.json")
        with store.session("apply") as writer:
            writer.put(record())
        before = store.load()
        with pytest.raises(StateError, match="can't be written"), store.session("apply") as writer:
            writer.put(record("m/1", owner="team:" + "x" * 100_000))
        assert store.load() == before
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_forgetting_spares_a_record_of_another_place(tmp_path):
    """Stopping a stray copy does not forget the replica that is recorded elsewhere under the same name."""
    store = StateFile(tmp_path / "s.json")
    stray = record(members=(replace(record().members[0], node="b2"),))
    with store.session("apply") as writer:
        writer.put(record())
        writer.remove(stray)
        assert "m/0" in writer.state.replicas


def test_many_steps_cost_about_as_many_bytes(tmp_path):
    """Writing does not grow with the square of the steps: the state is written whole only now and then."""
    store = StateFile(tmp_path / "s.json")
    written = 0
    with store.session("apply") as writer:
        original = writer._write

        def counted() -> None:
            nonlocal written
            written += 1
            original()

        writer._write = counted
        for i in range(1000):
            writer.put(record(f"m/{i}"))
    assert written < 200
