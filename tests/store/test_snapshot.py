"""An inventory from elsewhere: what does not fit is told with its node and key, and a bare one is enough."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llmgwctl.domain.inventory import Phase
from llmgwctl.errors import LlmgwctlError
from llmgwctl.store.snapshot import read_snapshot, snapshot_document

from .test_damaged_state import places

BARE = {
    "format_version": "1.0",
    "taken_at": "2026-01-01T00:00:00Z",
    "nodes": [
        {
            "name": "a1",
            "reachable": True,
            "gpus": [{"index": 0, "uuid": "G0"}, {"index": 1, "uuid": "G1"}],
            "replicas": [{"id": "m/0"}],
        }
    ],
}


def changed(path: str, value: Any, base: dict[str, Any] = BARE) -> str:
    """Return the snapshot as text, but for one place; a value of ... removes it."""
    data = json.loads(json.dumps(base))
    *steps, last = [int(s) if s.isdigit() else s for s in path.split(".")]
    place = data
    for step in steps:
        place = place[step]
    if value is ...:
        del place[last]
    elif last == "+":
        place.append(value)
    else:
        place[last] = value
    return json.dumps(data)


@pytest.fixture
def read(tmp_path):
    def read(text: str) -> Any:
        (tmp_path / "i.json").write_text(text)
        return read_snapshot(tmp_path / "i.json")

    return read


def test_the_needed_keys_are_enough(read):
    """All else gets its default, and comes back through a file."""
    seen = read(json.dumps(BARE))
    (node,) = seen.nodes
    assert [g.gpu_class for g in node.gpus] == ["unknown", "unknown"]
    assert node.replicas[0].model == "m"
    assert node.replicas[0].phase is Phase.UNKNOWN
    assert read(json.dumps(snapshot_document(seen))) == seen


def test_what_a_newer_minor_version_adds_is_let_be(read):
    """It is only read, so nothing is lost."""
    assert read(changed("nodes.0.new", 1, BARE | {"format_version": "1.9", "new": []})) == read(json.dumps(BARE))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[]", "the document should be an object, not a list"),
        ("[" * 200_000, "nested too deeply"),
        ('{"format_version": "1.0", "taken_at": Infinity}', "Infinity is no number"),
        (changed("format_version", 1.0), "format_version should be a text, not 1.0"),
        (changed("format_version", "2.0"), "has format 2.0"),
        (changed("format_version", "x"), "has format x"),
        (changed("format_version", ...), "the document lacks format_version"),
        (changed("taken_at", ...), "the document lacks taken_at"),
        (changed("taken_at", "yesterday"), "taken_at should be a time"),
        (changed("taken_at", "2026-02-31T00:00:00Z"), "taken_at should be a time"),
        (changed("nodes", ...), "the document lacks nodes"),
        (changed("nodes", {}), "nodes should be a list, not an object"),
        (changed("nodes", None), "nodes should be a list, not null"),
        (changed("nodes.+", 3), "nodes[1] should be an object, not 3"),
        (changed("nodes.+", {"reachable": True}), "nodes[1] lacks name"),
        (changed("nodes.+", {"name": "", "reachable": True}), "nodes[1].name should be a text, not ''"),
        (changed("nodes.+", {"name": "a1", "reachable": False}), "the node 'a1' stands twice"),
        (changed("nodes.0.reachable", "zz"), "node 'a1': reachable should be true or false, not 'zz'"),
        (changed("nodes.0.reachable", ...), "lacks reachable"),
        (changed("nodes.0.ports_in_use", "zz"), "node 'a1': ports_in_use should be a list, not 'zz'"),
        (changed("nodes.0.ports_in_use", [0]), "ports_in_use[0] should be a whole number from 1 to 65535"),
        (changed("nodes.0.cores", -1), "node 'a1': cores should be a number from 0"),
        (changed("nodes.0.memory_gb", 1e15), "memory_gb should be a number"),
        (changed("nodes.0.labels", ["a"]), "labels should be an object, not a list"),
        (changed("nodes.0.labels", {"zone": 1}), "labels.zone should be a text, not 1"),
        (changed("nodes.0.fabric", []), "fabric should be a text"),
        (changed("nodes.0.ephemeral_ports", [9, 3]), "ephemeral_ports should be a first and a last port"),
        (changed("nodes.0.replica_root", "x"), "replica_root should be a path"),
        (changed("nodes.0.gpus", {"a": 1}), "node 'a1': gpus should be a list"),
        (changed("nodes.0.gpus.1.uuid", "G0"), "node 'a1': the GPU 'G0' stands twice"),
        (changed("nodes.0.gpus.1.uuid", ...), "node 'a1': gpus[1] lacks uuid"),
        (changed("nodes.0.gpus.1.uuid", []), "node 'a1': gpus[1].uuid should be a text, not a list"),
        (changed("nodes.0.gpus.1.index", -1), "gpus[1].index should be a whole number from 0 to 9999, not -1"),
        (changed("nodes.0.gpus.1.memory_mib", -5), "gpus[1].memory_mib should be"),
        (changed("nodes.0.gpus.1.memory_mib", 10**15), "gpus[1].memory_mib should be"),
        (changed("nodes.0.gpus.1.memory_mib", True), "gpus[1].memory_mib should be"),
        (changed("nodes.0.replicas.0.id", "m"), "replicas[0].id should be MODEL/INDEX, not 'm'"),
        (changed("nodes.0.replicas.0.id", "m/٣"), "replicas[0].id should be MODEL/INDEX"),
        (changed("nodes.0.replicas.0.member", -1), "replicas[0].member should be"),
        (changed("nodes.0.replicas.0.phase", "resting"), "phase should be one of starting"),
        (changed("nodes.0.replicas.0.folder", "../x"), "folder should be a folder's name"),
        (changed("nodes.0.replicas.0.gpus", [1]), "replicas[0].gpus[0] should be a text, not 1"),
    ],
    ids=lambda value: str(value)[-60:],
)
def test_what_does_not_fit_is_named(read, text, words):
    """With the node and the key, what was expected, and what is there."""
    with pytest.raises(LlmgwctlError) as problem:
        read(text)
    assert words in problem.value.message
    assert "i.json" in problem.value.message
    assert problem.value.exit_code == 1


def test_no_damage_ends_in_a_fault_of_ours(read):
    """Whatever stands anywhere: it is refused in words, or it is an inventory that comes back from a file."""
    full = snapshot_document(read(json.dumps(BARE)))
    refused = accepted = 0
    for path in places(full):
        for value in (None, True, -1, 3, 1.5, "", "x", [], [3], {}, {"a": 1}, 10**17):
            text = changed(".".join(map(str, path)), value, full) if path else json.dumps(value)
            try:
                seen = read(text)
            except LlmgwctlError:
                refused += 1
            else:
                accepted += 1
                assert read(json.dumps(snapshot_document(seen))).nodes == seen.nodes
    assert refused > 300
    assert accepted > 100
