"""Starts and stops on a real systemd host that is not as the record says: foreign templates, lost folders, noise."""

from __future__ import annotations

import shutil
from dataclasses import replace

import pytest
from lab import Gpu
from lab.gpus import GpuProcess

from llmgwctl.domain.launch import LaunchSpec, Readiness, StopPolicy
from llmgwctl.hosts import scripts
from llmgwctl.hosts.session import StartOrder

from .program import Program

TEMPLATE = "/etc/systemd/system/llmgwctl-v1@.service"
UNIT = "llmgwctl-v1@m.0.0.service"
SIM = {"name": "p", "engine": "sim", "gpu_class": "h100-80gb", "startup_timeout": "60s"}


@pytest.fixture(scope="module")
def host(lab):
    """Boot one host with systemd and three GPUs."""
    return lab.start_host("super", [Gpu()] * 3)


@pytest.fixture
def controllers(lab, host, tmp_path):
    """Give as many controllers as asked for, each with a folder and a state of its own."""
    made = []

    def make(user: str = "root", settings: dict | None = None, models: tuple[str, ...] = ("m",), **more) -> Program:
        directory = tmp_path / f"controller-{len(made)}"
        directory.mkdir()
        (directory / "known_hosts").write_text(lab.known_hosts)
        config = directory / "ssh_config"
        config.write_text(f"Host *\n  IdentityFile {lab.ssh_key}\n  IdentitiesOnly yes\n")
        program = Program(directory, {"LLMGWCTL_SSH_CONFIG": str(config)})
        program.document = {
            "hosts": [{"name": "super", "address": host.address, "user": user, **more}],
            "settings": {"ssh": {"known_hosts": "known_hosts", "command_timeout_s": 20}, **(settings or {})},
            "models": [{"name": n, "source": "/m", "scaling": {"min": 1}, "profiles": [SIM]} for n in models],
        }
        program.write(program.document)
        made.append(program)
        return program

    yield make
    for program in made:
        program.run("destroy", "--auto-approve", code=None)
    assert host.files_of_ours() == []
    assert "sim_server" not in host.inside("ps axww -o args")


def is_active(host) -> bool:
    return host.inside(f"systemctl is-active {UNIT}", check=False).strip() == "active"


def launch(root: str, folder: str = "m.0.0") -> LaunchSpec:
    argv = ("sleep", "600")
    policy = StopPolicy(0.5)
    return LaunchSpec(folder, "sim", argv, (), (), "", (), "", 1, Readiness(""), policy, 1.0, root=root)


def test_a_controller_with_another_folder_is_refused_and_changes_nothing(controllers, host):
    """The template and what runs from it stay, whatever the second controller tries."""
    first = controllers()
    first.run("apply", "--auto-approve")
    template = host.inside(f"cat {TEMPLATE}")
    second = controllers(settings={"replica_dir": "/srv/other/replicas"}, models=("n",))
    done = second.run("apply", "--auto-approve", code=7)
    assert "is for another replica_dir" in done.stdout
    second.run("destroy", "--auto-approve")
    assert host.inside(f"cat {TEMPLATE}") == template
    assert host.inside("ls -A /srv").strip() == ""
    assert host.inside(f"systemctl is-enabled {UNIT}").strip() == "enabled"
    assert is_active(host)
    # A stop of the same name below the other folder, as from a record, is none of this one.
    host.inside(scripts.stop_script(launch("/srv/other/replicas"), "any", 1))
    assert is_active(host)
    assert host.inside(f"cat {TEMPLATE}") == template


def test_a_template_that_somebody_edited_is_left_alone(controllers, host):
    """It is neither used for another start nor removed with the last replica."""
    first = controllers()
    first.run("apply", "--auto-approve")
    host.inside(f"echo '# mine' >> {TEMPLATE}")
    second = controllers(models=("n",))
    assert "was edited" in second.run("apply", "--auto-approve", code=7).stdout
    first.run("destroy", "--auto-approve")
    assert not is_active(host)
    assert host.inside(f"tail -n 1 {TEMPLATE}") == "# mine\n"
    host.inside(f"rm {TEMPLATE}")


@pytest.mark.parametrize("user", ["root", "llm"])
def test_an_engine_whose_folder_was_removed_is_ended(controllers, host, user):
    """It is found by its unit; nothing of it is left."""
    program = controllers(user=user)
    program.run("apply", "--auto-approve")
    assert "sim_server" in host.inside("ps axww -o args")
    home = "/var/lib" if user == "root" else "/home/llm/.local/state"
    host.inside(f"rm -r {home}/llmgwctl/replicas/m.0.0")
    program.run("destroy", "--auto-approve")
    assert "sim_server" not in host.inside("ps axww -o args")
    assert host.files_of_ours() == []


def test_a_unit_that_runs_already_is_no_start_of_ours(controllers, host):
    """A start finds it although its folder is gone, and leaves it alone."""
    program = controllers()
    program.run("apply", "--auto-approve")
    root = "/var/lib/llmgwctl/replicas"
    host.inside(f"rm -r {root}/m.0.0")
    order = StartOrder("m/0", 0, "m", "p", "another", "super", launch(root))
    with pytest.raises(RuntimeError, match=r"exit status 70.*runs .*already"):
        host.inside(scripts.start_script(order, "systemd", {}))
    assert is_active(host)
    assert host.inside(f"ls {root}").strip() == ""


def test_a_replica_without_its_description_is_stopped(controllers, host):
    """Our record says that it is ours."""
    program = controllers()
    program.run("apply", "--auto-approve")
    host.inside("rm /var/lib/llmgwctl/replicas/m.0.0/replica.json")
    program.run("destroy", "--auto-approve")
    assert not is_active(host)
    assert host.files_of_ours() == []


def test_two_controllers_on_copied_states_do_not_kill_each_other(controllers, host):
    """The second start is refused because the first is there, and nothing is cleaned up after it."""
    first, second = controllers(models=()), controllers(models=())
    first.write(first.document | {"models": [{"name": "x", "source": "/m", "scaling": {"min": 1}, "profiles": [SIM]}]})
    first.run("apply", "--auto-approve")
    first.run("destroy", "--auto-approve")
    shutil.copy(first.directory / "llmgwctl.state.json", second.directory / "llmgwctl.state.json")
    model = {"name": "m", "source": "/m", "scaling": {"min": 1}, "profiles": [SIM]}
    for program in (first, second):
        program.write(program.document | {"models": [model]})
    saved = str(second.directory / "saved.plan")
    second.run("plan", "--out", saved)
    first.run("apply", "--auto-approve")
    pid = host.inside(f"systemctl show -p MainPID --value {UNIT}")
    done = second.run("apply", saved, code=7)
    assert "there is already a replica" in done.stdout
    assert host.inside(f"systemctl show -p MainPID --value {UNIT}") == pid
    assert first.status()["m/0"]["phase"] == "ready"


def test_a_gpu_taken_since_the_plan_is_refused(controllers, host):
    """The start asks again, and names who has it."""
    program = controllers()
    saved = str(program.directory / "saved.plan")
    program.run("plan", "--out", saved)
    uuid = program.json("show", saved)["actions"][0]["placement"][0]["gpus"][0]
    gpus = host.gpus
    held = GpuProcess(4711, "python3", 1000)
    host.set_gpus([replace(g, processes=(held,)) if g.uuid == uuid else g for g in gpus])
    try:
        done = program.run("apply", saved, code=7)
    finally:
        host.set_gpus(gpus)
    assert f"GPU {uuid} is in use by process 4711" in done.stdout
    assert host.files_of_ours() == []


def test_a_shell_that_prints_disturbs_nothing(controllers, host):
    """A banner of ~/.bashrc on both streams is in no answer: not in the record, nor in a log, nor taken for an end."""
    host.inside(
        "cp /root/.bashrc /root/.bashrc.old 2>/dev/null; printf 'echo ended 3 1\\necho oops >&2\\n' > /root/.bashrc"
    )
    try:
        program = controllers()
        program.run("apply", "--auto-approve")
        assert program.status()["m/0"]["phase"] == "ready"
        assert "ended 3" not in (program.directory / "llmgwctl.state.json").read_text()
        log = program.run("logs", "m/0").stdout
        assert "ended 3" not in log
        assert "listening" in log.lower()
        assert "No changes." in program.run("plan", "--detailed-exitcode").stdout
        program.run("destroy", "--auto-approve")
    finally:
        host.inside("rm /root/.bashrc; mv /root/.bashrc.old /root/.bashrc 2>/dev/null || true")


@pytest.mark.parametrize("folder", ["/srv/a b $HOME %i it's", "/srv/${PATH}%%/$$x;#y"])
def test_a_folder_with_signs_of_systemd_is_used_as_written(controllers, host, folder):
    """Blanks, $ and % reach the engine as they are; it is found again, also without its folder."""
    program = controllers(settings={"replica_dir": folder})
    program.run("apply", "--auto-approve")
    assert program.status()["m/0"]["phase"] == "ready"
    assert "No changes." in program.run("plan", "--detailed-exitcode").stdout
    assert "listening" in program.run("logs", "m/0").stdout.lower()
    quoted = scripts.quote(folder)
    host.inside(f"rm -r {quoted}/m.0.0")
    program.run("destroy", "--auto-approve")
    assert not is_active(host)
    assert host.inside("find /srv -name 'm.0.0' -o -name log").strip() == ""
    assert host.files_of_ours() == []


def test_an_engine_with_a_long_grace_gets_it_from_a_stop(controllers, host):
    """The unit's own patience is short, for reboots; a stop of ours waits as long as the engine is said to need."""

    def impatient(script: str) -> str:
        assert "TimeoutStopSec=60" in script
        return script.replace("TimeoutStopSec=60", "TimeoutStopSec=1")

    slow = ("sh", "-c", "trap 'sleep 4; echo whole > /tmp/whole; exit 0' TERM; while :; do sleep 0.2; done")
    member = replace(launch("/var/lib/llmgwctl/replicas"), argv=slow)
    order = StartOrder("m/0", 0, "m", "p", "any", "super", member)
    host.inside(impatient(scripts.start_script(order, "systemd", {})))
    assert is_active(host)
    host.inside(impatient(scripts.stop_script(replace(member, stop=StopPolicy(90.0)), "any", 1)))
    assert host.inside("cat /tmp/whole; rm /tmp/whole") == "whole\n"
    assert not is_active(host)
    assert host.files_of_ours() == []
