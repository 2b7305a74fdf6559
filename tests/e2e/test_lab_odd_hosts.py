"""Hosts in trouble: each is one row with a plain reason, and none holds the others up."""

from __future__ import annotations

import time

import pytest
from lab import Gpu

from .program import Program


@pytest.fixture(scope="module")
def hosts(lab):
    """Boot four hosts, one without `timeout` and `curl`."""
    hosts = {name: lab.start_host(name, [Gpu()], wait=False) for name in ("good", "late", "full", "bare")}
    for host in hosts.values():
        host.wait_up()
    for tool in ("timeout", "curl"):
        hosts["bare"].remove_tool(tool)
    yield hosts
    hosts["late"].thaw_sshd()
    hosts["full"].unfill_disk("/var/lib/llmgwctl")


@pytest.fixture
def program(lab, hosts, tmp_path):
    (tmp_path / "known_hosts").write_text(lab.known_hosts)
    config = tmp_path / "ssh_config"
    config.write_text(f"Host *\n  IdentityFile {lab.ssh_key}\n  IdentitiesOnly yes\n")
    program = Program(tmp_path, {"LLMGWCTL_SSH_CONFIG": str(config)})
    program.document = {
        "hosts": [{"name": n, "address": h.address, "user": "root"} for n, h in hosts.items()],
        "settings": {"ssh": {"known_hosts": "known_hosts", "connect_timeout_s": 4, "command_timeout_s": 8}},
    }
    program.write(program.document)
    yield program
    program.run("destroy", "--auto-approve", code=None)


def nodes_of(program) -> dict:
    return {n["name"]: n for n in program.json("inventory")["nodes"]}


def test_a_host_that_does_not_answer_holds_nobody_up(program, hosts):
    """A frozen sshd is a row with its reason, within the deadline; the other hosts are complete."""
    hosts["late"].freeze_sshd()
    begun = time.monotonic()
    nodes = nodes_of(program)
    took_s = time.monotonic() - begun
    hosts["late"].thaw_sshd()
    assert nodes["late"]["reachable"] is False
    assert "says nothing within 4 s" in nodes["late"]["error"]
    assert [n for n, v in nodes.items() if v["reachable"] and len(v["gpus"]) == 1] == ["bare", "full", "good"]
    assert took_s < 60


def test_a_host_without_timeout_and_curl_is_read_like_any_other(program):
    """What is missing there is done without."""
    nodes = nodes_of(program)
    assert nodes["bare"]["gpus"][0]["gpu_class"] == nodes["good"]["gpus"][0]["gpu_class"] == "h100-80gb"
    sim = {"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}
    model = {"name": "m", "source": "/m", "scaling": {"min": 4}, "profiles": [sim]}
    program.write(program.document | {"models": [model]})
    program.run("apply", "--auto-approve")
    assert {(r["node"], r["phase"]) for r in program.status().values()} == {
        (n, "ready") for n in ("good", "late", "full", "bare")
    }
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout


def test_a_full_disk_is_told_and_nothing_is_left(program, hosts):
    """The host is read all the same; a start there fails with the reason, and leaves no folder and no record."""
    hosts["full"].inside("mkdir -p /var/lib/llmgwctl")
    hosts["full"].fill_disk("/var/lib/llmgwctl")
    assert nodes_of(program)["full"]["reachable"] is True
    sim = {"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}
    model = {"name": "m", "source": "/m", "scaling": {"min": 4}, "profiles": [sim]}
    program.write(program.document | {"models": [model]})
    done = program.run("apply", "--auto-approve", code=7)
    assert "is the disk full?" in done.stdout
    assert "3 started" in done.stdout
    assert "full" not in {r["node"] for r in program.status().values()}
    assert hosts["full"].inside("ls /var/lib/llmgwctl/replicas 2>/dev/null || true").strip() == ""
    hosts["full"].unfill_disk("/var/lib/llmgwctl")
    program.run("apply", "--auto-approve")
    assert len(program.status()) == 4


def test_a_start_that_systemd_puts_off_is_waited_for(program, hosts):
    """A unit waits in systemd's queue until the network is online; that is no end before it was ready."""
    host = hosts["good"]
    slow = "[Unit]\nBefore=network-online.target\n[Service]\nType=oneshot\nExecStart=/bin/sleep 3\n"
    host.inside(f"printf '{slow}' > /etc/systemd/system/slow.service && systemctl daemon-reload")
    host.inside("systemctl stop network-online.target; systemctl add-wants network-online.target slow.service")
    sim = {"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}
    model = {"name": "late", "source": "/m", "scaling": {"min": 1}, "profiles": [sim]}
    here = next(h for h in program.document["hosts"] if h["name"] == "good")
    program.write(program.document | {"hosts": [here], "models": [model]})
    begun = time.monotonic()
    program.run("apply", "--auto-approve")
    assert time.monotonic() - begun > 2, "systemd did not put it off"
    assert program.changes() == []
    program.run("destroy", "--auto-approve")
    host.inside("systemctl disable slow.service; rm /etc/systemd/system/slow.service; systemctl daemon-reload")


def test_engines_of_an_unprivileged_user_run_under_its_own_systemd(program, hosts):
    """A login user with linger gets user units; they return after a reboot, and a destroy leaves nothing."""
    document = program.document | {
        "hosts": [{"name": "good", "address": hosts["good"].address, "user": "llm"}],
        "models": [
            {
                "name": "m",
                "source": "/m",
                "scaling": {"min": 1},
                "profiles": [{"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}],
            }
        ],
    }
    program.write(document)
    assert nodes_of(program)["good"]["supervisor"] == "systemd-user"
    program.run("apply", "--auto-approve")
    hosts["good"].reboot()
    deadline = time.monotonic() + 60
    while program.status()["m/0"]["phase"] != "ready":
        assert time.monotonic() < deadline, "m/0 did not return"
        time.sleep(0.5)
    assert {d["condition"] for d in program.json("plan")["drift"]} == {"rebooted"}
    program.run("destroy", "--auto-approve")
    assert hosts["good"].files_of_ours() == []
    assert "sim_server" not in hosts["good"].inside("ps axww -o args")


def test_sudo_makes_system_units_from_an_unprivileged_login(program, hosts):
    """With `sudo: true` everything is done as root, by a user who may."""
    document = program.document | {
        "hosts": [{"name": "good", "address": hosts["good"].address, "user": "ops", "sudo": True}],
        "models": [
            {
                "name": "m",
                "source": "/m",
                "scaling": {"min": 1},
                "profiles": [{"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}],
            }
        ],
    }
    program.write(document)
    assert nodes_of(program)["good"]["supervisor"] == "systemd"
    program.run("apply", "--auto-approve")
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout
    assert "m.0.0" in hosts["good"].inside("systemctl list-units --plain --no-legend 'llmgwctl*'")
    program.run("destroy", "--auto-approve")
    assert hosts["good"].files_of_ours() == []
