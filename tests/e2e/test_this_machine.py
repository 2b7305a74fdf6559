"""The whole program on this machine: real processes, no SSH, and the first command of the README."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from .program import Program, chat

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(tmp_path):
    """Return the program with a replica folder of its own, so that nobody else's replicas are seen."""
    (tmp_path / "fleet").mkdir()
    program = Program(tmp_path / "fleet")
    program.document = {
        "hosts": [{"name": "here", "connection": "local", "simulate": {"gpus": 2, "gpu_class": "demo"}}],
        "settings": {"replica_dir": str(tmp_path / "replicas")},
    }
    program.replicas = tmp_path / "replicas"
    yield program
    program.run("destroy", "--auto-approve", code=None)
    assert processes_of(program) == []


def serve(program: Program, *models: dict) -> None:
    program.write(program.document | {"models": list(models)})


def sim(name: str = "m", *args: str, **profile: object) -> dict:
    entry = {"name": "p", "engine": "sim", "gpu_class": "demo", "args": list(args), **profile}
    return {"name": name, "source": name, "scaling": {"min": 1}, "profiles": [entry]}


def processes_of(program: Program) -> list[str]:
    """Return the command lines of what runs in the replica folder."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(program.replicas) in os.readlink(process / "cwd"):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue  # it has just ended, or it is a zombie
    return found


def is_closed(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


def test_the_first_command_of_the_readme():
    """It sets itself up, plans, applies, is answered, finds nothing more to do, and leaves nothing."""
    env = os.environ | {"LLMGWCTL_VENV": sys.prefix}
    done = subprocess.run(
        [ROOT / "examples/local/run"],
        check=False,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=env,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = [
        "2 to start, 0 to stop",
        "Apply complete!",
        "simulated: True",
        "answer: [simulated]",
        "No changes.",
        "Destroy",
    ]
    places = [done.stdout.find(word) for word in told]
    assert -1 not in places
    assert places == sorted(places)
    assert done.stdout.endswith("Nothing of ours runs.\n")


def test_a_real_engine_with_real_weights(program, llama):
    """llama.cpp on this machine's CPU answers, is told when it was killed, is repaired, and goes."""
    profile = {"name": "cpu", "engine": "llamacpp", "cpu_cores": 1, "min_memory_gb": 1}
    model = {"name": "smol", "source": str(llama.model), "context_length": 512, "scaling": {"min": 1}}
    program.document["settings"]["engines"] = {"llamacpp": {"command": [str(llama.server)]}}
    serve(program, model | {"profiles": [profile | {"args": ["--threads", "1"]}]})
    program.run("apply", "--auto-approve")
    row = program.status()["smol/0"]
    assert (row["phase"], row["simulated"]) == ("ready", False)
    answer = chat(row["endpoint"], "smol")
    assert answer["model"] == "smol"
    assert answer["choices"][0]["message"]["content"].strip()
    assert program.changes() == []
    assert "load" in program.run("logs", "smol/0").stdout

    program.run("apply", "--auto-approve", "--replace", "smol/0")
    assert chat(program.status()["smol/0"]["endpoint"], "smol")["choices"]
    program.run("destroy", "--auto-approve")
    assert is_closed(row["port"])
    assert list(program.replicas.glob("*")) == []


def test_a_start_that_fails_says_why_and_leaves_nothing(program):
    """The last lines of the log are in the message; folder, process and port are gone; the next apply tries again."""
    serve(program, sim("m", "--fail-after-s", "0.2", "--fail-message", "RuntimeError: no such weights: spam"))
    failed = program.run("apply", "--auto-approve", code=7)
    assert "RuntimeError: no such weights: spam" in failed.stdout
    assert list(program.replicas.glob("*")) == []
    assert processes_of(program) == []
    assert program.status() == {}
    serve(program, sim())
    program.run("apply", "--auto-approve")
    assert program.status()["m/0"]["phase"] == "ready"


def test_a_start_that_takes_too_long_is_given_up(program):
    """After `startup_timeout` the engine is stopped, and the message has the time and the log."""
    serve(program, sim("m", "--load-time-s", "60", startup_timeout="2s"))
    begun = time.monotonic()
    failed = program.run("apply", "--auto-approve", code=7)
    assert time.monotonic() - begun < 30
    assert "was not ready after 2 s" in failed.stdout
    assert "loading 'm'" in failed.stdout
    assert list(program.replicas.glob("*")) == []
    assert processes_of(program) == []


def test_a_failure_leaves_the_others_alone(program):
    """One model that can't start neither stops nor delays another."""
    serve(program, sim("bad", "--fail-after-s", "0"), sim("good"))
    program.run("apply", "--auto-approve", code=7)
    assert {name: row["phase"] for name, row in program.status().items()} == {"good/0": "ready"}
    assert program.changes() == [("start", "bad/0", "new")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_logs_follow_until_interrupted(program, number):
    """`logs -f` shows what was there and what comes, and ends when told to."""
    serve(program, sim())
    program.run("apply", "--auto-approve")
    follower = program.start("logs", "m/0", "-f")
    try:
        assert "loading 'm'" in follower.stdout.readline()
        chat(program.status()["m/0"]["endpoint"], "m")
        line = follower.stdout.readline()
        while "POST /v1/chat/completions" not in line:
            assert line, "the log ended"
            line = follower.stdout.readline()
    finally:
        follower.send_signal(number)
        _, error = follower.communicate(timeout=20)
    assert follower.returncode in (0, 130)
    assert "Traceback" not in error


def test_logs_of_what_is_not_there(program):
    """A name that is not recorded is an error that names what is."""
    serve(program, sim())
    program.run("apply", "--auto-approve")
    failed = program.run("logs", "nothing/0", code=64)
    assert "m/0" in failed.stderr
    assert "member" in program.run("logs", "m/0", "--member", "3", code=64).stderr
    assert program.run("logs", "m", "-n", "1").stdout.count("\n") == 1


def test_a_taken_port_is_planned_around(program):
    """What listens already keeps its port; the replica gets another."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        program.document["settings"]["ports"] = {"from": port, "to": min(port + 50, 65535)}
        serve(program, sim())
        plan = program.json("plan")
        ports = [p["port"] for a in plan["actions"] for p in a["placement"]]
        assert port not in ports


def test_a_killed_supervisor_and_engine_are_repaired(program):
    """With its whole group killed, the replica is gone: told, and started again."""
    serve(program, sim())
    program.run("apply", "--auto-approve")
    for process in Path("/proc").glob("[0-9]*"):
        try:
            inside = str(program.replicas) in os.readlink(process / "cwd")
        except OSError:
            continue
        if inside:
            os.kill(int(process.name), signal.SIGKILL)
    time.sleep(0.5)
    assert program.changes() == [("start", "m/0", "process_gone")]
    program.run("apply", "--auto-approve")
    assert program.changes() == []
    assert program.status()["m/0"]["phase"] == "ready"
