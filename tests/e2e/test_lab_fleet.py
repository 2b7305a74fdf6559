"""The main job on real hosts: systemd and none, fake GPUs, a real llama.cpp with a real model, kills, reboots, cuts."""

from __future__ import annotations

import json
import time

import pytest
from lab import Gpu
from lab.llama import MODEL_ON_HOST

from .program import Program, chat

H100, L4 = "NVIDIA H100 80GB HBM3", "NVIDIA L4"
ODD_NAME = "odd/na me's $(touch /tmp/evaluated)"
ODD_WORDS = ["two words", 'it\'s "q"', "$(touch /tmp/evaluated)", "line\nbreak"]
SECRET = "planted-s3cret-'$(id)\"-value"


@pytest.fixture(scope="module")
def fleet(lab):
    """Boot four hosts with systemd and one without, and remove them at the end."""
    hosts = {
        "h1": lab.start_host("h1", [Gpu(H100)] * 2, wait=False),
        "h2": lab.start_host("h2", [Gpu(H100)] * 2, wait=False),
        "h3": lab.start_host("h3", [Gpu(L4, 23034)] * 3, llama=True, wait=False),
        "h4": lab.start_host("h4", [Gpu(L4, 23034)] * 2, wait=False),
        "plain": lab.start_plain_host("plain", [Gpu(L4, 23034)], wait=False),
    }
    for host in hosts.values():
        host.wait_up()
    yield hosts
    for host in hosts.values():
        host.heal()


@pytest.fixture(scope="module")
def program(lab, fleet, tmp_path_factory):
    """Give the program with a configuration of the fleet: six models, a secret, and words that a shell would eat."""
    directory = tmp_path_factory.mktemp("fleet")
    (directory / "known_hosts").write_text(lab.known_hosts)
    (directory / "token").write_text(SECRET + "\n")
    config = directory / "ssh_config"
    config.write_text(f"Host *\n  IdentityFile {lab.ssh_key}\n  IdentitiesOnly yes\n")
    program = Program(directory, {"LLMGWCTL_SSH_CONFIG": str(config)})
    program.write(configuration(fleet))
    return program


def configuration(fleet) -> dict:
    """Return the declaration of the fleet."""

    def host(name: str, **more: object) -> dict:
        return {"name": name, "address": fleet[name].address, "user": "root", **more}

    def sim(gpu_class: str, gpus: int = 1, **more: object) -> dict:
        return {"name": "sim", "engine": "sim", "gpu_class": gpu_class, "tp": gpus, "startup_timeout": "60s", **more}

    def model(name: str, profile: dict, count: int = 1, **more: object) -> dict:
        return {
            "name": name,
            "source": f"/models/{len(name)}",
            "scaling": {"min": count},
            "profiles": [profile],
            **more,
        }

    llama = {
        "name": "cpu",
        "engine": "llamacpp",
        "cpu_cores": 1,
        "min_memory_gb": 1,
        "node_selector": {"llama": "yes"},
        "startup_timeout": "120s",
    }
    odd = sim("l4-24gb", node_selector={"llama": "yes"}, env={"ODD": ODD_WORDS[1], "HF_TOKEN": {"from_file": "token"}})
    return {
        "hosts": [
            host("h1"),
            host("h2"),
            host("h3", labels={"llama": "yes"}),
            host("h4", labels={"kind": "cut"}),
            host("plain", labels={"kind": "plain"}),
        ],
        "models": [
            model("one", sim("h100-80gb"), 2),
            model("pair", sim("h100-80gb", 2)),
            model("llama", llama, source=MODEL_ON_HOST, context_length=1024, aliases=["small"]),
            model("far", sim("l4-24gb", node_selector={"kind": "cut"})),
            model(ODD_NAME, odd, aliases=ODD_WORDS[2:3]),
            model("plain", sim("l4-24gb", node_selector={"kind": "plain"})),
        ],
        "settings": {
            "ssh": {"known_hosts": "known_hosts", "connect_timeout_s": 5, "command_timeout_s": 20},
        },
    }


def engine_pid(host, replica: str) -> int:
    """Return the process of a replica's engine, as the host's own supervisor knows it."""
    folder = next(
        line.split()[0].rpartition("/")[0]
        for line in host.inside("grep -l . /var/lib/llmgwctl/replicas/*/replica.json").splitlines()
        if json.loads(host.inside(f"cat '{line}'"))["id"] == replica
    )
    unit = f"llmgwctl-v1@{folder.rpartition('/')[2]}.service"
    pid = int(
        host.inside(f"systemctl show -p MainPID --value '{unit}' 2>/dev/null || echo 0", check=False).strip() or 0
    )
    return pid or int(host.inside(f"cat '{folder}/pid'"))


def wait_until(condition, what: str, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.5)


# The tests of this module are one story, in order: each begins where the one before ended.


def test_the_inventory_shows_what_there_is(program, fleet):
    """Every host, its GPUs by class, its supervisor; in one round trip each."""
    nodes = {n["name"]: n for n in program.json("inventory")["nodes"]}
    assert {n: v["supervisor"] for n, v in nodes.items()} == {
        "h1": "systemd",
        "h2": "systemd",
        "h3": "systemd",
        "h4": "systemd",
        "plain": "setsid",
    }
    assert {n: [g["gpu_class"] for g in v["gpus"]] for n, v in nodes.items()} == {
        "h1": ["h100-80gb"] * 2,
        "h2": ["h100-80gb"] * 2,
        "h3": ["l4-24gb"] * 3,
        "h4": ["l4-24gb"] * 2,
        "plain": ["l4-24gb"],
    }
    assert all(g["uuid"] == fleet[n].gpus[g["index"]].uuid for n, v in nodes.items() for g in v["gpus"])
    assert all(g["taken_by"] is None and g["health"] == "ok" for v in nodes.values() for g in v["gpus"])


def test_apply_starts_everything_and_a_second_plan_is_empty(program):
    """Six models, seven replicas, each ready; then there is nothing to do."""
    assert program.run("plan", "--detailed-exitcode", code=2)
    program.run("apply", "--auto-approve")
    status = program.status()
    assert {r: s["phase"] for r, s in status.items()} == dict.fromkeys(
        ["one/0", "one/1", "pair/0", "llama/0", "far/0", f"{ODD_NAME}/0", "plain/0"], "ready"
    )
    assert {r for r, s in status.items() if not s["simulated"]} == {"llama/0"}
    plan = program.run("plan", "--detailed-exitcode")
    assert "No changes." in plan.stdout


def test_real_weights_answer_a_chat_completion(program):
    """The llama.cpp engine really computes, by its name and by its alias."""
    endpoint = program.status()["llama/0"]["endpoint"]
    answer = chat(endpoint, "small", temperature=0)
    assert answer["choices"][0]["message"]["content"].strip()
    assert answer["usage"]["completion_tokens"] > 0
    assert "simulated" not in answer


def test_a_simulated_engine_says_so(program):
    """A synthetic answer is marked."""
    answer = chat(program.status()["one/0"]["endpoint"], "one")
    assert answer["simulated"] is True


def test_words_reach_the_engine_as_written(program, fleet):
    """Quotes, blanks and $(…) arrive in argv and environment; nothing was evaluated on any host."""
    row = program.status()[f"{ODD_NAME}/0"]
    host = fleet[row["node"]]
    pid = engine_pid(host, f"{ODD_NAME}/0")
    argv = host.inside(f"cat /proc/{pid}/cmdline").split("\0")
    assert ODD_NAME in argv
    assert ODD_WORDS[2] in argv
    env = dict(e.split("=", 1) for e in host.inside(f"cat /proc/{pid}/environ").split("\0") if "=" in e)
    assert env["ODD"] == ODD_WORDS[1]
    assert env["HF_TOKEN"] == SECRET
    assert env["CUDA_VISIBLE_DEVICES"] == str(next(g.index for g in host.gpus if g.uuid == row["gpus"][0]))
    for other in fleet.values():
        assert "absent" in other.inside("ls /tmp/evaluated 2>/dev/null || echo absent")


def test_the_secret_is_nowhere_but_in_its_file(program, fleet):
    """No state, plan, log, output, unit or process list holds it; on the host only one 0600 file does."""
    program.run("plan", "--out", str(program.directory / "saved.plan"))
    program.run("show", str(program.directory / "saved.plan"), "--json")
    core = SECRET.split("'", maxsplit=1)[0]
    holders = [p.name for p in program.directory.iterdir() if p.name != "token" and core.encode() in p.read_bytes()]
    assert holders == []
    assert core not in program.output
    for host in fleet.values():
        assert core not in host.inside("ps axww -o args")
        found = host.inside(
            f"grep -rlF '{core}' /var/lib/llmgwctl /etc/systemd /tmp /root /var/log 2>/dev/null || true"
        )
        for path in found.split():
            assert path.endswith("/secrets")
            assert host.inside(f"stat -c %a {path}").strip() == "600"


def test_a_killed_engine_is_told_and_repaired(program, fleet):
    """Kill -9: the plan says what happened to it, and after an apply it answers again."""
    row = program.status()["one/0"]
    host = fleet[row["node"]]
    host.inside(f"kill -9 {engine_pid(host, 'one/0')}")
    plan = program.json("plan")
    assert "one/0" in {d["replica"] for d in plan["drift"]}
    program.run("apply", "--auto-approve")
    wait_until(lambda: program.status()["one/0"]["phase"] == "ready", "one/0 is not ready again")
    program.run("apply", "--auto-approve")
    program.run("plan", "--detailed-exitcode")
    assert chat(program.status()["one/0"]["endpoint"], "one")["simulated"]


def test_engines_return_after_a_reboot(program, fleet):
    """The supervisor starts them again; the plan tells of the reboot, and wants nothing stopped or started."""
    fleet["h3"].reboot()
    wait_until(lambda: program.status()["llama/0"]["phase"] == "ready", "llama/0 did not return")
    plan = program.json("plan")
    assert {d["condition"] for d in plan["drift"] if d["replica"] == "llama/0"} == {"rebooted"}
    assert [a for a in plan["actions"] if a["action"] not in ("keep",)] == []
    program.run("apply", "--auto-approve")
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout


def test_a_rebooted_host_without_systemd_is_repaired(program, fleet):
    """Nothing starts the engine there, so the plan says that it is gone, and apply starts it."""
    fleet["plain"].reboot()
    assert [c[:2] for c in program.changes()] == [("start", "plain/0")]
    program.run("apply", "--auto-approve")
    assert program.status()["plain/0"]["phase"] == "ready"


def test_a_cut_host_is_waited_for(program, fleet):
    """Unreachable is unknown: its replica is deferred, and no second copy is started anywhere."""
    fleet["h4"].cut()
    plan = program.json("plan")
    assert [(a["action"], a["replica"]) for a in plan["actions"] if a["action"] != "keep"] == [("defer", "far/0")]
    assert any("h4" in d["summary"] for d in plan["diagnostics"])
    program.run("plan", "--detailed-exitcode")  # to wait is no change
    program.run("apply", "--auto-approve")
    status = program.status()
    assert status["far/0"]["phase"] == "unknown"
    assert status["far/0"]["node"] == "h4"
    fleet["h4"].heal()
    wait_until(lambda: program.status()["far/0"]["phase"] == "ready", "far/0 did not come back")
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout


def test_a_start_that_fails_says_why_and_leaves_nothing(program, fleet):
    """The last lines of the engine's log are in the message; no folder, unit or record is left."""
    document = json.loads((program.directory / "fleet.yaml").read_text())
    broken = {
        "name": "broken",
        "source": "/models/none.gguf",
        "scaling": {"min": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp", "min_memory_gb": 1, "node_selector": {"llama": "yes"}}],
    }
    program.write({**document, "models": [*document["models"], broken]})
    done = program.run("apply", "--auto-approve", code=7)
    assert "broken/0" in done.stdout
    assert "none.gguf" in done.stdout
    assert not any("broken" in f for f in fleet["h3"].files_of_ours())
    assert "broken/0" not in program.status()
    program.write(document)
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout


def test_logs_show_what_the_engine_said(program):
    """The log of a replica comes over the same connection."""
    assert "listening" in program.run("logs", "llama/0").stdout.lower()


def test_a_saved_plan_does_what_it_says_once(program, fleet):
    """A change is planned, saved, applied from the file; a second apply of the file is refused as stale."""
    document = json.loads((program.directory / "fleet.yaml").read_text())
    models = [dict(m, scaling={"min": 1}) if m["name"] == "one" else m for m in document["models"]]
    program.write({**document, "models": models})
    saved = str(program.directory / "down.plan")
    program.run("plan", "--out", saved, "--detailed-exitcode", code=2)
    stopped = [a["replica"] for a in program.json("show", saved)["actions"] if a["action"] == "stop"]
    assert len(stopped) == 1
    before = set(program.status())
    program.run("apply", saved)
    assert set(program.status()) == before - set(stopped)
    assert "stale" in program.run("apply", saved, code=5).stderr
    program.write(document)
    program.run("apply", "--auto-approve")


def test_destroy_leaves_nothing(program, fleet):
    """No process, port, unit or file of ours is left on any host."""
    ports = {(r["node"], r["port"]) for r in program.status().values()}
    program.run("destroy", "--auto-approve")
    assert program.json("status")["replicas"] == []
    for name, host in fleet.items():
        assert host.files_of_ours() == []
        assert not {listener.port for listener in host.listening()} & {p for n, p in ports if n == name}
        commands = host.inside("ps axww -o args")
        assert "sim_server" not in commands
        assert "llama-server" not in commands
        # Since a reboot systemd remembers the units that its boot target wanted; dead is all that they may be.
        units = host.inside("systemctl list-units --all --plain --no-legend 'llmgwctl*' 2>/dev/null || true")
        assert all(" inactive dead " in " ".join(line.split()) for line in units.splitlines())
        assert host.inside("systemctl list-unit-files --no-legend 'llmgwctl*' 2>/dev/null || true").strip() == ""
    assert "No changes." in program.run("plan", "--destroy").stdout
