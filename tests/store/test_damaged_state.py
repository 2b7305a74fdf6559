"""A state that can't have been written so is refused with its place and its backup, and is never no state."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest

from llmgwctl.domain.state import State
from llmgwctl.errors import StateError
from llmgwctl.store.format import dump_state, load_state
from llmgwctl.store.statefile import StateFile

from .test_statefile import record

GOOD = json.loads(
    dump_state(
        State(
            "lineage",
            7,
            {"m/0": record(owner="team:a", secret_digests=(("T", "d"),)), "a/b/1": record("a/b/1")},
            {"x": {"definition": {"name": "x"}, "created_at": "2026-01-01T00:00:00Z", "created_by": "u@h"}},
            {"org:o": {"definition": {}}},
            ({"a": 1},),
        )
    )
)
RECORD = GOOD["replicas"]["m/0"]


def refusal(store: StateFile, text: str | bytes) -> str:
    """Return what is said of a state file with that text; nothing may have touched it."""
    content = text.encode() if isinstance(text, str) else text
    store.path.write_bytes(content)
    with pytest.raises(StateError) as problem:
        store.load()
    with pytest.raises(StateError), store.session("apply"):
        pass
    assert store.path.read_bytes() == content
    assert not store.backup.exists()
    return f"{problem.value.message} {problem.value.detail}"


@pytest.fixture
def store(tmp_path):
    return StateFile(tmp_path / "s.json")


def with_(path: str, value: Any) -> str:
    """Return a good state as text, but for one place (`a.b.0.c`; a value of ... removes it)."""
    data = json.loads(json.dumps(GOOD))
    *steps, last = [int(s) if s.isdigit() else s for s in path.split(".")]
    place = data
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return json.dumps(data)


def test_the_good_one_is_good(store):
    """What the others differ from is accepted."""
    store.path.write_text(json.dumps(GOOD))
    assert set(store.load().replicas) == {"m/0", "a/b/1"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is empty"),
        ("  \n", "is empty"),
        ('{"format_version": "1.0", "repl', "is damaged: "),
        ('{"format_version": "1.0", "repl', "line 1 column"),
        ("[]", "not a state file"),
        ("{}", "not a state file"),
        ('{"format_version": "1.0"}', "lacks lineage, serial, replicas"),
        ('{"format_version": "1.0", "taken_at": "2026-01-01T00:00:00Z", "nodes": []}', "lacks lineage"),
        ('{"format_version": "1.0", "kind": "llmgwctl plan", "plan": {}}', "lacks lineage"),
        ('{"format_version": "1.0", "lineage": "x", "serial": 1, "replicas": {"m/0": {"id": "m/0"}}}', "lacks model"),
        ('{"format_version": "0.9"}', 'format_version is \'0.9\''),
        ('{"format_version": 1.0}', "format_version is 1.0"),
        (b"\xff\xfe", "byte 0xff at offset 0 is not UTF-8"),
        ("[" * 200_000, "nested too deeply"),
        ('{"a": 1, "a": 2}', "the key 'a' stands twice"),
        ('{"a": NaN}', "NaN"),
        ('{"a": -Infinity}', "-Infinity"),
        ('{"a": 1e999}', "too large"),
        ('{"a": 1' + "0" * 5000 + "}", "too large"),
        (with_("lineage", None), "lineage should be"),
        (with_("lineage", ""), "lineage should be"),
        (with_("lineage", ...), "lacks lineage"),
        (with_("serial", ...), "lacks serial"),
        (with_("serial", 0), "serial should be a whole number from 1 on, not 0"),
        (with_("serial", -3), "serial should be"),
        (with_("serial", True), "serial should be"),
        (with_("serial", 1.5), "serial should be"),
        (with_("replicas", ...), "lacks replicas"),
        (with_("replicas", None), "replicas should be an object, not null"),
        (with_("replicas", []), "replicas should be an object"),
        (with_("replicsa", {}), "unknown key 'replicsa' (did you mean 'replicas'?)"),
        (with_("journal", {}), "journal should be a list"),
        (with_("journal", None), "journal should be a list"),
        (with_("runtime_models", []), "runtime_models should be an object"),
        (with_("runtime_models.x", 3), "runtime_models['x'] should be an object"),
        (with_("runtime_models.x.definition", ...), "runtime_models['x'].definition should be"),
        (with_("runtime_models.x.created_by", 3), "runtime_models['x'].created_by should be a text"),
        (with_("runtime_quotas", "x"), "runtime_quotas should be an object"),
        (with_("tool_version", 3), "tool_version should be"),
        (with_("replicas.m/0.members", []), "replicas['m/0'].members should be a list of at least one"),
        (with_("replicas.m/0.id", "m/1"), "replicas['m/0'].id should be 'm/0'"),
        (with_("replicas.m/7", RECORD), "replicas['m/7'].id should be 'm/7'"),
        (with_("replicas.m/0.model", "n"), "replicas['m/0'].model should be 'm'"),
        (with_("replicas.m/0.owner", "x:a"), "owner should be org:ID"),
        (with_("replicas.m/0.model_class", "vip"), "model_class should be"),
        (with_("replicas.m/0.order", -1), "order should be 0 or more, not -1"),
        (with_("replicas.m/0.started_at", "yesterday"), "started_at should be a time"),
        (with_("replicas.m/0.prevent_stpo", True), "unknown key 'prevent_stpo' (did you mean 'prevent_stop'?)"),
        (with_("replicas.m/0.members.0.lunch", {}), "members[0] has the unknown key 'lunch'"),
        (with_("replicas.m/0.members.0.gpu_indices", []), "members[0].gpu_indices should be"),
        (with_("replicas.m/0.members.0.launch.port", 99999), "members[0].launch.port should be a port"),
        (with_("replicas.m/0.members.0.launch.folder", "../../etc"), "members[0].launch.folder should be"),
        (with_("replicas.m/0.members.0.launch.root", "etc"), "members[0].launch.root should be"),
        (with_("replicas.m/0.members.0.launch.env.1.1", {"from_file": 3}), "env[1][1] should be a text, or one of"),
    ],
    ids=lambda value: str(value)[:60],
)  # fmt: skip
def test_what_no_write_has_left_is_refused(store, text, words):
    """The place and the backup are named, and the file is left alone."""
    told = refusal(store, text)
    assert words in told
    assert f"{store.path}.backup" in told


@pytest.mark.parametrize("name", ["m", "m/", "/0", "m/x", "m/-1", "m/1234567890", "m/٣", "m/1 "])
def test_names_that_no_replica_has(store, name):
    """A replica is MODEL/INDEX, with the index in ASCII digits, at most nine."""
    changed = {**RECORD, "id": name, "model": name.rpartition("/")[0]}
    assert "MODEL/INDEX" in refusal(store, json.dumps({**GOOD, "replicas": {name: changed}}))


@pytest.mark.parametrize("version", ["1.1", "1.9", "1.10.3", "2.0", "99"])
def test_every_newer_format_is_refused(store, version):
    """A minor version may hold what a rewrite would lose, so it is left alone as well."""
    told = refusal(store, json.dumps({**GOOD, "format_version": version, "new_in_it": True}))
    assert f"has format {version}" in told
    assert "reads up to 1.0" in told


@pytest.mark.parametrize("what", ["fifo", "directory", "device", "loop"])
def test_a_state_that_is_no_file(store, what):
    """It is neither waited for nor taken for none."""
    if what == "fifo":
        os.mkfifo(store.path)
    elif what == "directory":
        store.path.mkdir()
    else:
        store.path.symlink_to("/dev/null" if what == "device" else store.path.name)
    with pytest.raises(StateError) as problem:
        StateFile(store.path).load()
    assert f"{store.path.name if what != 'device' else 'null'}.backup" in problem.value.detail


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield from places(child, (*path, key))


def test_no_damage_ends_in_a_fault_of_ours():
    """Whatever stands anywhere in a state: it is refused, or it is a state that can be written and read again."""
    nested: list[Any] = []
    for _ in range(300):
        nested = [nested]
    wrong = (None, True, -1, 3, 1.5, "", "x", "\ud800", [], [3], {}, {"from_env": 3}, nested, 10**17, -(10**17))
    refused = accepted = 0
    for path in places(GOOD):
        for value in wrong:
            data = json.loads(json.dumps(GOOD))
            place, last = data, None
            for step in path:
                place, last = (data if last is None else place[last]), step
            if last is None:
                data = value
            else:
                place[last] = value
            try:
                state = load_state(json.dumps(data), "s")
            except StateError:
                refused += 1
            else:
                accepted += 1
                assert load_state(dump_state(state), "s") == state
    assert refused > 1000
    assert accepted > 100  # a text may be any text


@pytest.fixture
def stepped(store):
    """Return a store with a large state, and the next step's fields."""
    with store.session("apply") as writer:
        for i in range(120):
            writer.put(record(f"m/{i}"))
    state = load_state(store.path.read_text(), "s")
    store.steps.unlink(missing_ok=True)
    return store, {"serial": state.serial + 1, "lineage": state.lineage, "replica": "m/3", "record": None}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"serial": "x"}, "serial should be"),
        ({"replica": 3}, "replica should be a text"),
        ({"record": {}}, "record lacks id"),
        ({"record": RECORD}, "record.id should be 'm/3'"),
        ({"more": 1}, "a step should be an object with"),
    ],
)
def test_a_damaged_step_is_refused(stepped, change, words):
    """A whole line was promised: what does not fit is no torn end, and nothing behind it may get lost."""
    store, step = stepped
    store.steps.write_text(json.dumps(step | change) + "\n" + json.dumps(step) + "\n")
    with pytest.raises(StateError) as problem:
        store.load()
    assert f"{store.steps} is damaged in line 1: " in problem.value.message
    assert words in problem.value.message
    assert str(store.backup) in problem.value.detail


@pytest.mark.parametrize("line", ["[]", "{", '{"a": NaN}', "[" * 200_000, "", "\0\0"], ids=lambda line: line[:9])
def test_a_line_of_the_steps_that_is_no_step(stepped, line):
    """Each is an error that names its line."""
    store, step = stepped
    store.steps.write_text(json.dumps(step) + "\n" + line + "\n")
    with pytest.raises(StateError, match="damaged in line 2"):
        store.load()


def test_steps_that_do_not_follow_the_state(stepped):
    """A backup that was copied back lacks what came between it and the steps."""
    store, step = stepped
    store.steps.write_text(json.dumps(step | {"serial": step["serial"] + 5}) + "\n")
    with pytest.raises(StateError, match=f"{step['serial']} should come next"):
        store.load()


def test_steps_that_are_no_file(stepped):
    """A pipe in their place is not waited for."""
    store, _ = stepped
    os.mkfifo(store.steps)
    with pytest.raises(StateError, match="no regular file"):
        store.load()


def test_steps_without_a_state(stepped):
    """They belong to a state that someone took away."""
    store, step = stepped
    store.steps.write_text(json.dumps(step) + "\n")
    store.path.unlink()
    store.backup.unlink()
    with pytest.raises(StateError, match="missing, but its steps file"):
        store.load()


def test_no_step_is_added_to_a_torn_line(stepped):
    """What is recorded after a crash in the middle of a line is not lost with it."""
    store, step = stepped
    store.steps.write_text(json.dumps(step) + "\n" + '{"serial": 999, "lin')
    with store.session("apply") as writer:
        writer.put(record("new/0"))
        assert "new/0" in store.load().replicas
        assert "m/3" not in store.load().replicas
