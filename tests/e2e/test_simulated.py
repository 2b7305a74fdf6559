"""The whole program on simulated hosts: shapes, exit codes, seeds, faults."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time

import pytest

from .program import Program

HOST = {"gpus": 8, "gpu_class": "h100-80gb", "gpu_memory_gb": 80, "cores": 64, "memory_gb": 512}


def host(name: str, **simulate: object) -> dict:
    return {"name": name, "connection": "simulated", "simulate": {**HOST, **simulate}}


def model(name: str, count: int = 1, tp: int = 1, **more: object) -> dict:
    profile = {"name": "p", "engine": "vllm", "gpu_class": "h100-80gb", "tp": tp}
    return {"name": name, "source": f"/models/{name}", "scaling": {"min": count}, "profiles": [profile | more]}


@pytest.fixture
def program(tmp_path):
    (tmp_path / "fleet").mkdir()
    return Program(tmp_path / "fleet")


def test_the_main_job(program):
    """Plan, apply, no changes, destroy; the exit codes say which."""
    program.write({"hosts": [host("s1"), host("s2")], "models": [model("m", 3, 4)]})
    program.run("plan", "--detailed-exitcode", code=2)
    program.run("apply", "--auto-approve")
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout
    assert {r["phase"] for r in program.status().values()} == {"ready"}
    program.run("destroy", "--auto-approve")
    assert program.status() == {}
    assert "No changes." in program.run("plan", "--destroy", "--detailed-exitcode").stdout


def test_plan_json_has_the_promised_shape(program):
    """Every key of the contract is there, and secrets are words."""
    entry = model("m", 1, 2, env={"HF_TOKEN": {"from_env": "NOT_SET_ANYWHERE"}, "A": "b"})
    program.write(
        {
            "hosts": [host("s1")],
            "models": [entry | {"owner": "team:a"}, model("big", 1, 16)],
            "quotas": {"org:o": {"guarantee": {"gpus": 4}}, "team:a": {"parent": "org:o", "limit": {"cores": 8}}},
        }
    )
    plan = program.json("plan")
    assert plan["format_version"] == "1.0"
    assert plan["base"] == {"lineage": None, "serial": 0}
    assert plan["summary"] == {
        "start": 1,
        "stop": 0,
        "replace": 0,
        "move": 0,
        "keep": 0,
        "forget": 0,
        "defer": 0,
        "shortfall": 1,
    }
    (action,) = plan["actions"]
    assert action["placement"] == [
        {"node": "s1", "gpus": ["SIM-s1-0", "SIM-s1-1"], "gpu_indices": [0, 1], "port": action["placement"][0]["port"]}
    ]
    assert (action["before"], action["owner"], action["class"], action["standing"]) == (
        None,
        "team:a",
        "standard",
        "guaranteed",
    )
    assert action["after"]["argv"][:2] == ["vllm", "serve"]
    assert action["after"]["env"]["HF_TOKEN"] == "(sensitive)"
    assert action["after"]["env"]["A"] == "b"
    assert action["after"]["env"]["CUDA_VISIBLE_DEVICES"] == "0,1"
    assert action["reason"] == {"code": "new", "text": action["reason"]["text"], "for": None}
    (short,) = plan["shortfalls"]
    assert (short["model"], short["replica"], short["causes"][0]["code"]) == ("big", "big/0", "fits_no_node")
    assert {(q["scope"], q["resource"]): (q["guarantee"], q["limit"], q["held_after"]) for q in plan["quotas"]} == {
        ("org:o", "gpus"): (4, None, 2),
        ("org:o", "gpu_classes.h100-80gb"): (None, None, 2),
        ("team:a", "cores"): (None, 8, 0),
        ("team:a", "gpus"): (None, None, 2),
        ("team:a", "gpu_classes.h100-80gb"): (None, None, 2),
    }


def test_same_inputs_same_bytes(program):
    """Two plans differ in nothing but their time; the order of entries and files is irrelevant."""
    hosts, models = [host(f"s{i}") for i in range(4)], [model(f"m{i}", 1 + i % 2, 1 + i % 3) for i in range(6)]
    program.write({"hosts": hosts, "models": models})
    first = program.json("plan")
    program.write({"models": models[::-1]})
    program.write({"hosts": hosts[::-1]}, "a-hosts.yml")
    second = program.json("plan")
    assert first.pop("inventory_taken_at")
    assert second.pop("inventory_taken_at")
    assert json.dumps(first) == json.dumps(second)


def test_seeds_count_as_recorded(program):
    """simulate.running gives a host replicas of ours, launched as the catalog says; the plan keeps them."""
    running = [{"replica": "m/0", "profile": "p", "gpus": [2, 3]}, {"replica": "old/0", "profile": "p", "gpus": [4]}]
    gang = {"nodes": 2, "gpus_per_node": 1, "tp": 2}
    program.write(
        {
            "hosts": [
                host("s1", running=[*running, {"replica": "g/0", "profile": "p", "gpus": [7]}]) | {"fabric": "f"},
                host("s2", running=[{"replica": "g/0", "profile": "p", "gpus": [0]}]) | {"fabric": "f"},
            ],
            "models": [model("m", 2, 2), model("g", 1, **gang)],
        }
    )
    assert program.changes() == [("stop", "old/0", "not_wanted"), ("start", "m/1", "new")]
    program.run("apply", "--auto-approve")
    assert program.changes() == []
    assert set(program.status()) == {"m/0", "m/1", "g/0"}
    program.write({"hosts": [host("s1"), host("s2")], "models": []})
    program.run("apply", "--auto-approve")
    assert program.status() == {}


def test_faults_of_simulated_hosts(program):
    """A host told to be unreachable is deferred; a model told to fail makes the apply incomplete."""
    program.write({"hosts": [host("s1"), host("s2")], "models": [model("m", 2, 8)]})
    program.run("apply", "--auto-approve")
    program.write({"hosts": [host("s1", unreachable=True), host("s2")], "models": [model("m", 2, 8)]})
    plan = program.json("plan", "--detailed-exitcode")
    assert [(a["action"], a["reason"]["code"]) for a in plan["actions"] if a["action"] != "keep"] == [
        ("defer", "node_unreachable")
    ]
    program.write({"hosts": [host("s1", unreachable=True)], "models": []})
    program.run("plan", code=6)
    program.run("inventory", code=6)
    shown = program.json("status", code=6)
    assert {r["phase"] for r in shown["replicas"]} == {"unknown"}
    assert shown["hosts"][0]["reachable"] is False
    assert "m/0" in program.run("status", code=6).stdout
    program.write({"hosts": [host("s1"), host("s2", fail_start=["n"])], "models": [model("n", 2, 8)]})
    done = program.run("apply", "--auto-approve", code=7)
    assert "1 started" in done.stdout
    assert "n/" in done.stdout
    assert len(program.status()) == 1


def test_without_a_terminal_nothing_is_contacted(program):
    """Both apply and destroy refuse with 1 before they look at any host."""
    program.write({"hosts": [host("s1", unreachable=True)], "models": [model("m")]})
    assert "--auto-approve" in program.run("apply", code=1).stderr
    assert "--auto-approve" in program.run("destroy", code=1).stderr


@pytest.mark.parametrize(("answer", "code"), [("yes", 0), ("y", 1), ("YES", 1), ("", 1)])
def test_only_yes_approves(program, answer, code):
    """At a terminal the plan is shown, and exactly `yes` approves it."""
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    child, terminal = pty.fork()
    if child == 0:
        os.execve(
            sys.executable, [sys.executable, "-m", "llmgwctl", "-C", str(program.directory), "apply"], program.env
        )
    shown = b""
    while b"Enter a value" not in shown:
        shown += os.read(terminal, 4096)
    os.write(terminal, answer.encode() + b"\n")
    try:
        while chunk := os.read(terminal, 4096):
            shown += chunk
    except OSError:
        pass  # Linux tells the end of a terminal so
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == code
    assert (len(program.status()) == 1) == (code == 0)


def test_a_saved_plan_is_stale_once_the_state_moved(program):
    """Another apply in between makes it stale, with exit code 5; so does its own."""
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    saved = str(program.directory / "p")
    program.run("plan", "--out", saved)
    assert os.stat(saved).st_mode & 0o777 == 0o600
    program.run("apply", saved)
    assert "stale" in program.run("apply", saved, code=5).stderr + program.output
    shown = program.run("show", saved).stdout
    assert "m/0 will be started" in shown
    assert program.json("show", saved)["summary"]["start"] == 1


def test_an_inventory_can_be_planned_from(program):
    """A snapshot gives the same plan as looking, without any host."""
    program.write({"hosts": [host("s1"), host("s2")], "models": [model("m", 3, 4)]})
    saved = str(program.directory / "inventory.json")
    program.run("inventory", "--out", saved)
    looked = program.json("plan")
    read = program.json("plan", "--inventory", saved)
    assert looked["actions"] == read["actions"]
    snapshot = json.loads((program.directory / "inventory.json").read_text())
    assert {"name", "reachable", "error", "cores", "memory_gb", "labels", "gpus", "replicas"} <= set(
        snapshot["nodes"][0]
    )


def test_a_bare_snapshot_is_enough(program):
    """Only the keys of the contract are needed."""
    gpu = {"index": 0, "uuid": "GPU-1", "product": "NVIDIA H100 80GB HBM3", "gpu_class": "h100-80gb",
           "memory_mib": 81559, "used_mib": 3, "health": "ok", "taken_by": None}  # fmt: skip
    node = {"name": "s1", "reachable": True, "error": None, "cores": 64, "memory_gb": 503.5,
            "memory_available_gb": 480.0, "labels": {}, "fabric": None, "os": "Debian", "supervisor": "systemd",
            "gpus": [gpu], "replicas": [], "ports_in_use": [22]}  # fmt: skip
    path = program.directory / "i.json"
    path.write_text(json.dumps({"format_version": "1.0", "taken_at": "2026-01-01T00:00:00Z", "nodes": [node]}))
    program.write({"hosts": [{"name": "s1", "address": "10.0.0.1"}], "models": [model("m")]})
    plan = program.json("plan", "--inventory", str(path))
    assert plan["actions"][0]["placement"][0]["gpus"] == ["GPU-1"]
    assert plan["inventory_taken_at"] == "2026-01-01T00:00:00Z"
    broken = program.directory / "broken.json"
    broken.write_text('{"format_version": "1.0", "nodes": [{}]}')
    assert "does not fit" in program.run("plan", "--inventory", str(broken), code=1).stderr


def test_an_inventory_without_any_declared_host(program):
    """None known, or none reachable: exit code 6, as when looking reached none."""
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    path = program.directory / "i.json"
    for nodes in ([], [{"name": "s2", "reachable": True}], [{"name": "s1", "reachable": False, "error": "no route"}]):
        path.write_text(json.dumps({"format_version": "1.0", "taken_at": "2026-01-01T00:00:00Z", "nodes": nodes}))
        failed = program.run("plan", "--inventory", str(path), code=6)
        assert "None of the declared hosts is reachable" in failed.stderr
    assert "s1: no route" in failed.stderr
    program.write({"models": [model("m")]})
    program.run("plan", "--inventory", str(path))


def test_exit_codes_of_trouble(program):
    """3 for the configuration, 4 for --require-all, 5 for the state, 64 for usage."""
    program.write({"hosts": [host("s1")], "models": [model("m", 1, 16)]})
    program.run("plan", code=0)
    program.run("plan", "--require-all", code=4)
    program.run("apply", "--require-all", "--auto-approve", code=4)
    program.run("plan", "--no-such-option", code=64)
    program.run("plam", code=64)
    program.run("plan", "--target", "nothing", code=64)
    (program.directory / "llmgwctl.state.json").write_text("")
    assert "is empty" in program.run("plan", code=5).stderr
    program.write({"hosts": [host("s1")], "models": [{"name": "m"}], "modles": []})
    program.run("plan", code=3)
    assert "fleet.yaml:" in program.run("validate", code=3).stderr


def test_the_directory_may_stand_before_or_behind_the_command(program, tmp_path):
    """-C in both places; the later one wins."""
    program.write({"hosts": [host("s1")]})
    other = Program(tmp_path)
    assert "valid" in other.run("validate", "-C", str(program.directory)).stdout


def test_a_missing_secret_is_found_before_anything_is_stopped(program, monkeypatch):
    """An apply reads every secret first; nothing is changed when one is missing."""
    program.write({"hosts": [host("s1")], "models": [model("old", 1, 8)]})
    program.run("apply", "--auto-approve")
    program.write({"hosts": [host("s1")], "models": [model("new", 1, 8, env={"T": {"from_env": "NOT_SET_ANYWHERE"}})]})
    failed = program.run("apply", "--auto-approve", code=1)
    assert "NOT_SET_ANYWHERE" in failed.stderr
    assert "Nothing was changed" in failed.stderr
    assert set(program.status()) == {"old/0"}


def test_a_secret_that_changes_replaces_and_is_shown_nowhere(program):
    """The digest in the state is salted; the value is in no file and no output."""
    program.write({"hosts": [host("s1")], "models": [model("m", env={"T": {"from_env": "PLANTED"}})]})
    program.env["PLANTED"] = "first-planted-value"
    program.run("apply", "--auto-approve")
    assert program.changes() == []
    program.env["PLANTED"] = "second-planted-value"
    assert program.changes() == [("replace", "m/0", "launch_changed")]
    program.run("apply", "--auto-approve")
    del program.env["PLANTED"]
    assert program.changes() == []
    texts = [program.output, *(p.read_text() for p in program.directory.iterdir())]
    assert not any("planted-value" in text for text in texts)


def test_interrupting_finishes_what_is_under_way_and_saves(program):
    """SIGINT once: nothing new is begun, what runs is recorded, exit code 130; the next apply does the rest."""
    program.write({"hosts": [host("s1", slow_s=1.5)], "models": [model("m", 6)]})
    process = program.start("apply", "--auto-approve", "--parallelism", "2")
    deadline = time.monotonic() + 60
    state = program.directory / "llmgwctl.state.json"
    while not (state.exists() and '"m/' in state.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, out + err
    assert "Interrupted" in err
    assert len(program.status()) == 2
    program.write({"hosts": [host("s1")], "models": [model("m", 6)]})
    program.run("apply", "--auto-approve")
    assert len(program.status()) == 6


def test_two_at_once_one_is_told_who_holds_the_lock(program):
    """The second apply fails with 5 and names the first; with a time-out it waits, and then finds its plan stale."""
    program.write({"hosts": [host("s1", slow_s=2)], "models": [model("m")]})
    first = program.start("apply", "--auto-approve")
    lock = program.directory / "llmgwctl.state.json.lock"
    deadline = time.monotonic() + 60
    while not (lock.exists() and lock.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    second = program.run("apply", "--auto-approve", code=5)
    assert "locked by" in second.stderr
    assert str(first.pid) in second.stderr
    first.communicate(timeout=60)
    assert first.returncode == 0


def test_apply_json_is_one_event_a_line(program):
    """Every line parses; the last one sums up."""
    program.write({"hosts": [host("s1")], "models": [model("m", 2)]})
    lines = [json.loads(line) for line in program.run("apply", "--auto-approve", "--json").stdout.splitlines()]
    assert [line["type"] for line in lines].count("done") == 2
    assert lines[-1]["type"] == "summary"
    assert lines[-1]["done"] == 2


def test_no_escape_codes_in_a_pipe(program):
    """Colours only where a person looks, or where they are asked for."""
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    assert "\x1b" not in program.run("plan").stdout
    coloured = subprocess.run(
        [sys.executable, "-m", "llmgwctl", "--color", "always", "-C", str(program.directory), "plan"],
        capture_output=True, text=True, env=program.env, check=True,
    )  # fmt: skip
    assert "\x1b[" in coloured.stdout


def test_two_clones_do_not_see_each_others_simulated_world(program, tmp_path):
    """The world is beside the state: another directory is another fleet."""
    document = {"hosts": [host("s1")], "models": [model("m")]}
    program.write(document)
    program.run("apply", "--auto-approve")
    (tmp_path / "other").mkdir()
    other = Program(tmp_path / "other")
    other.write(document)
    assert other.changes() == [("start", "m/0", "new")]


def test_interrupting_twice_stops_at_once_and_saves(program):
    """Two SIGINTs: nobody waits for slow starts; the intents are in the state, and the next apply sorts them out."""
    program.write({"hosts": [host("s1", slow_s=30)], "models": [model("m", 4)]})
    process = program.start("apply", "--auto-approve")
    state = program.directory / "llmgwctl.state.json"
    deadline = time.monotonic() + 60
    while not (state.exists() and state.read_text().count('"m/') >= 4):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    begun = time.monotonic()
    for _ in range(2):
        process.send_signal(signal.SIGINT)
        time.sleep(0.3)
    out, err = process.communicate(timeout=20)
    assert process.returncode == 130, out + err
    assert time.monotonic() - begun < 15
    assert "Interrupted again" in err
    assert {f"m/{i}" for i in range(4) if f"Failed: m/{i} was interrupted" in out} == {f"m/{i}" for i in range(4)}
    program.write({"hosts": [host("s1")], "models": [model("m", 4)]})
    assert {c[2] for c in program.changes()} == {"interrupted"}
    program.run("apply", "--auto-approve")
    assert program.changes() == []


def test_a_reader_that_goes_away_stops_nothing_half_way(program):
    """`apply | head -1`: what is under way is finished and recorded, nothing new is begun, and the lock is free."""
    program.write({"hosts": [host("s1", slow_s=0.5)], "models": [model("m", 6)]})
    process = program.start("apply", "--auto-approve", "--parallelism", "2")
    while "Starting" not in process.stdout.readline():
        pass
    process.stdout.close()
    assert process.wait(timeout=30) != 0
    assert "Traceback" not in process.stderr.read()
    process.stderr.close()
    program.run("apply", "--auto-approve")
    assert {r["phase"] for r in program.status().values()} == {"ready"}
    assert program.changes() == []


def test_a_terminal_that_closes_is_one_interrupt(program):
    """The hang-up comes with a terminal that is gone; what is under way is finished all the same."""
    program.write({"hosts": [host("s1", slow_s=2)], "models": [model("m", 4)]})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "llmgwctl", "-C", str(program.directory), "apply", "--auto-approve"]
    process = subprocess.Popen(
        [*command, "--parallelism", "2"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=program.env,
        start_new_session=True,
    )
    os.close(theirs)
    shown = b""
    while b"Starting" not in shown:
        shown += os.read(ours, 4096)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=30) != 0
    phases = [r["phase"] for r in program.status().values()]
    assert phases
    assert set(phases) == {"ready"}


def test_waiting_for_the_lock_plans_anew(program):
    """With --auto-approve a plan that went stale while it waited for the lock is made again."""
    program.write({"hosts": [host("s1", slow_s=1.5)], "models": [model("m", 2)]})
    program.run("apply", "--auto-approve")
    first = program.start("apply", "--auto-approve", "--replace", "m/0")
    while "Replacing" not in first.stdout.readline():
        pass
    second = program.run("apply", "--auto-approve", "--replace", "m/1", "--lock-timeout", "30s")
    assert first.wait(timeout=30) == 0
    first.communicate()
    assert "planning again" in second.stderr
    assert "m/1: Replaced" in second.stdout


def test_a_destroy_that_could_not_look_everywhere_is_incomplete(program):
    """What can't be seen may run on: exit code 7, each time."""
    hosts = [host("s1"), host("s2")]
    program.write({"hosts": hosts, "models": [model("m", 2, 8)]})
    program.run("apply", "--auto-approve")
    hosts[1]["simulate"]["unreachable"] = True
    program.write({"hosts": hosts, "models": [model("m", 2, 8)]})
    for _ in range(2):
        left = program.run("destroy", "--auto-approve", code=7)
        assert "complete!" not in left.stdout
        assert "1 of ours can't be seen" in left.stderr
    events = program.run("destroy", "--auto-approve", "--json", code=7).stdout.splitlines()
    assert json.loads(events[-1])["deferred"] == 1


def test_a_move_that_fails_leaves_the_replica_where_it_is(program):
    """It still runs at its old place, and the state still says so."""
    program.write({"hosts": [host("s1")], "models": [model("m")]})
    program.run("apply", "--auto-approve")
    before = program.status()["m/0"]
    drained = {**host("s1"), "drain": True}
    program.write({"hosts": [drained, host("s2", fail_start=["m"])], "models": [model("m")]})
    assert [c[:2] for c in program.changes()] == [("move", "m/0")]
    program.run("apply", "--auto-approve", code=7)
    after = program.status()["m/0"]
    assert (after["node"], after["phase"], after["gpus"]) == ("s1", "ready", before["gpus"])
    state = json.loads((program.directory / "llmgwctl.state.json").read_text())
    assert [m["node"] for m in state["replicas"]["m/0"]["members"]] == ["s1"]
    assert program.changes() == [("move", "m/0", "drained")]
    program.write({"hosts": [drained, host("s2")], "models": [model("m")]})
    program.run("apply", "--auto-approve")
    assert program.status()["m/0"]["node"] == "s2"
    assert program.changes() == []
