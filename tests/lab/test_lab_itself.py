"""The lab does what the tests that use it rely on."""

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from . import Gpu, GpuProcess, Host, Lab, Listener, LlamaAssets
from .llama import MODEL_ON_HOST
from .run import RUNS, Run
from .system import call, start_time, wait_until

TEMPLATE_UNIT = """[Unit]
Description=A sleeper
[Service]
ExecStart=/bin/sleep 86400
[Install]
WantedBy=multi-user.target
"""
# Stands for an engine: a program that is no shell, with a GPU in its environment.
HOLDER = "exec python3 -c 'import time; time.sleep(86400)'"


@pytest.fixture(scope="module")
def systemd_host(lab: Lab) -> Host:
    return lab.start_host(
        "itself-systemd", [Gpu(), Gpu(product="NVIDIA L4", memory_mib=23034)], without=["curl"], wait=False
    )


@pytest.fixture(scope="module")
def other_host(lab: Lab) -> Host:
    return lab.start_host("itself-other", wait=False)


@pytest.fixture(scope="module")
def plain_host(lab: Lab) -> Host:
    return lab.start_plain_host("itself-plain", [Gpu()], wait=False)


@pytest.fixture(autouse=True, scope="module")
def all_up(systemd_host: Host, other_host: Host, plain_host: Host) -> None:
    for host in (systemd_host, other_host, plain_host):
        host.wait_up()


def applications(host: Host, user: str = "root") -> list[str]:
    fields = "gpu_uuid,pid,process_name,used_memory"
    query = f"nvidia-smi --query-compute-apps={fields} --format=csv,noheader,nounits"
    return host.run(query, user=user).stdout.splitlines()


@contextmanager
def tidy(undo: Callable[[], object]) -> Iterator[None]:
    try:
        yield
    finally:
        undo()


class TestHosts:
    def test_root_and_llm_log_in_by_the_labs_key_and_each_host_has_its_own_name_and_key(
        self, lab: Lab, systemd_host: Host, other_host: Host
    ):
        """SSH reaches each host as root and as llm, with strict checking of the host's own key."""
        assert systemd_host.run("hostname; id -un").stdout.split() == ["itself-systemd", "root"]
        assert other_host.run("hostname; id -un", user="llm").stdout.split() == ["itself-other", "llm"]
        assert systemd_host.host_key != other_host.host_key
        assert f"{other_host.address},itself-other {other_host.host_key}" in lab.known_hosts.splitlines()

    def test_only_ops_may_use_sudo(self, systemd_host: Host):
        """The user ops has sudo without a password; llm doesn't."""
        assert systemd_host.run("sudo -n id -un", user="ops").stdout.strip() == "root"
        assert systemd_host.run("sudo -n id -un", user="llm", check=False).returncode != 0

    def test_systemd_is_pid_1_and_its_boot_is_over(self, systemd_host: Host):
        """A host runs systemd as PID 1 with no failed unit."""
        assert systemd_host.run("systemctl is-system-running; cat /proc/1/comm").stdout.split() == [
            "running",
            "systemd",
        ]

    def test_a_plain_host_has_no_systemd(self, plain_host: Host):
        """On a plain host PID 1 is something else, systemd's commands are missing, and only its own processes show."""
        assert plain_host.run("systemctl", check=False).returncode == 127
        assert plain_host.run("test -e /run/systemd/system", check=False).returncode == 1
        names = {process.command for process in plain_host.processes()}
        assert "systemd" not in names
        assert "sshd" in names

    def test_two_hosts_units_of_one_name_are_apart(self, systemd_host: Host, other_host: Host):
        """Stopping a unit on one host leaves the unit of that name on another alone."""
        for host in (systemd_host, other_host):
            host.run("systemd-run --quiet --unit=same sleep 86400")
        systemd_host.run("systemctl stop same")
        assert other_host.run("systemctl is-active same").stdout.strip() == "active"
        other_host.run("systemctl stop same")

    def test_a_missing_command_can_be_had_and_given_back(self, systemd_host: Host, other_host: Host):
        """`without` and remove_tool take a command away, restore_tool gives it back, other hosts keep theirs."""
        assert systemd_host.run("curl --version", check=False).returncode == 127
        assert other_host.run("curl --version").stdout.startswith("curl")
        other_host.remove_tool("timeout")
        with tidy(lambda: other_host.restore_tool("timeout")):
            assert other_host.run("timeout 1 true", check=False).returncode == 127
        assert other_host.run("timeout 1 true").returncode == 0

    def test_processes_and_ports_and_files_are_seen_from_outside(self, plain_host: Host):
        """processes, listening and files_of_ours show what was started, by the host's own numbers."""
        plain_host.run(
            "mkdir -p /var/lib/llmgwctl/replicas/a /tmp/other; touch /var/lib/llmgwctl/replicas/a/llmgwctl.x"
        )
        with tidy(lambda: plain_host.run("rm -r /var/lib/llmgwctl /tmp/other")):
            assert plain_host.files_of_ours() == ["/var/lib/llmgwctl"]
        command = "setsid python3 -m http.server 8123 --bind 127.0.0.1 >/dev/null 2>&1 </dev/null & echo $!"
        pid = int(plain_host.run(command).stdout)
        with tidy(lambda: plain_host.run(f"kill {pid}")):
            wait_until("a listening port", lambda: Listener("127.0.0.1", 8123) in plain_host.listening())
            [process] = [process for process in plain_host.processes() if process.pid == pid]
            assert process.arguments[:3] == ("python3", "-m", "http.server")
            assert (process.uid, process.session) == (0, pid)
        assert plain_host.files_of_ours() == []


class TestBoots:
    def test_an_enabled_template_instance_runs_again_after_a_reboot(self, systemd_host: Host):
        """`enable --no-reload` and `start` of a template's instance need no daemon-reload; a reboot brings it back."""
        systemd_host.run("cat >/etc/systemd/system/sleeper@.service", stdin=TEMPLATE_UNIT)
        systemd_host.run("systemctl enable --no-reload sleeper@a.service && systemctl start sleeper@a.service")
        needs_reload = "systemctl show --property=NeedDaemonReload --value sleeper@a.service"
        assert systemd_host.run(needs_reload).stdout.strip() == "no"
        identity = "cat /etc/machine-id; hostname"
        boot = "cat /proc/sys/kernel/random/boot_id"
        before = systemd_host.run(identity).stdout
        first_boot = systemd_host.run(boot).stdout
        systemd_host.reboot()
        assert systemd_host.run("systemctl is-active sleeper@a.service").stdout.strip() == "active"
        assert systemd_host.run(identity).stdout == before
        assert systemd_host.run(boot).stdout != first_boot
        systemd_host.run("systemctl disable --now sleeper@a.service")

    def test_power_off_loses_processes_and_keeps_files(self, plain_host: Host, other_host: Host):
        """After a power cut nothing answers; after the next boot the files are there and the processes aren't."""
        for host in (plain_host, other_host):
            host.run("echo kept >/root/file; setsid sleep 86399 >/dev/null 2>&1 </dev/null &")
            host.power_off()
            assert not host.is_on
            attempt = subprocess.run([*host.ssh_command(connect_timeout_s=2), "true"], check=False, capture_output=True)
            assert attempt.returncode == 255
            host.boot()
            assert host.run("cat /root/file").stdout == "kept\n"
            assert not [process for process in host.processes() if "86399" in process.arguments]

    def test_llm_has_a_user_manager_that_outlives_the_login(self, systemd_host: Host):
        """`systemctl --user` works over SSH; with linger a unit outlives the login and comes back after a reboot."""
        systemd_host.run(
            "mkdir -p ~/.config/systemd/user && cat >~/.config/systemd/user/sleeper@.service",
            user="llm",
            stdin=TEMPLATE_UNIT.replace("multi-user", "default"),
        )
        systemd_host.run(
            "systemctl --user enable --no-reload sleeper@u && systemctl --user start sleeper@u", user="llm"
        )
        assert systemd_host.run("systemctl --user is-active sleeper@u", user="llm").stdout.strip() == "active"
        systemd_host.reboot()
        assert systemd_host.run("systemctl --user is-active sleeper@u", user="llm").stdout.strip() == "active"
        systemd_host.run("systemctl --user disable --now sleeper@u", user="llm")


class TestFaults:
    def test_a_cut_host_is_silent_and_heals(self, other_host: Host):
        """While cut, SSH times out and the host works on; afterwards the same host answers."""
        other_host.run("systemd-run --quiet --unit=during sleep 86400")
        other_host.cut()
        with tidy(other_host.heal):
            command = [*other_host.ssh_command(connect_timeout_s=2), "true"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 255
            assert "timed out" in done.stderr
            assert other_host.inside("systemctl is-active during").strip() == "active"
        assert other_host.run("systemctl stop during; hostname").stdout.strip() == "itself-other"

    def test_a_slow_and_lossy_wire_delivers_everything(self, other_host: Host):
        """Through a wire that delays and loses packets an SSH command's output still arrives whole."""
        other_host.slow(delay_ms=20, loss=0.02)
        with tidy(other_host.heal):
            assert len(other_host.run("head -c 200000 /dev/zero").stdout) == 200000
            carried = Path(f"/sys/class/net/{other_host.tap}/statistics/rx_bytes").read_text()
            assert int(carried) > 200000

    def test_a_full_disk_refuses_and_keeps_what_it_had(self, plain_host: Host):
        """Writes to a filled folder fail, its files are still there, and it has room again afterwards."""
        plain_host.run("mkdir -p /srv/data && echo old >/srv/data/file")
        plain_host.fill_disk("/srv/data")
        full = plain_host.run("cat /srv/data/file; head -c 100000 /dev/zero >/srv/data/new", check=False)
        assert (full.returncode, full.stdout) == (1, "old\n")
        assert "No space left" in full.stderr
        plain_host.unfill_disk("/srv/data")
        assert plain_host.run("echo new >/srv/data/new && cat /srv/data/file /srv/data/new").stdout == "old\nnew\n"

    def test_a_frozen_sshd_takes_connections_and_says_nothing(self, plain_host: Host):
        """With sshd frozen the port is open but no greeting comes; thawed it goes on."""
        plain_host.freeze_sshd()
        with tidy(plain_host.thaw_sshd):
            command = [*plain_host.ssh_command(connect_timeout_s=2), "true"]
            done = subprocess.run(command, check=False, capture_output=True, text=True)
            assert done.returncode == 255
            assert Listener("0.0.0.0", 22) in plain_host.listening()
        assert plain_host.run("echo back").stdout == "back\n"


class TestGpus:
    def test_a_process_holds_its_gpu_until_it_dies(self, systemd_host: Host):
        """nvidia-smi shows every user the process on the GPU that its environment names, until it dies."""
        first, second = systemd_host.gpus
        variables = f"CUDA_VISIBLE_DEVICES={second.uuid} LAB_GPU_MEMORY_MIB=2500"
        pid = systemd_host.run(
            f'{variables} setsid sh -c "{HOLDER}" >/dev/null 2>&1 </dev/null & echo $!'
        ).stdout.strip()
        try:
            wait_until("a process on the GPU", lambda: applications(systemd_host))
            assert applications(systemd_host) == [f"{second.uuid}, {pid}, python3, 2500"]
            assert applications(systemd_host, user="llm") == applications(systemd_host)
            used = systemd_host.run("nvidia-smi --query-gpu=uuid,memory.used --format=csv,noheader").stdout.splitlines()
            assert used == [f"{first.uuid}, 0 MiB", f"{second.uuid}, 2500 MiB"]
        finally:
            systemd_host.run(f"kill {pid}")
        wait_until("no process on the GPU", lambda: not applications(systemd_host))

    def test_a_gpu_may_be_named_by_its_index(self, systemd_host: Host):
        """A unit with CUDA_VISIBLE_DEVICES=0,1 is on both GPUs; its stop frees them."""
        systemd_host.run(f'systemd-run --quiet --unit=holder -E CUDA_VISIBLE_DEVICES=0,1 sh -c "{HOLDER}"')
        wait_until("two entries", lambda: len(applications(systemd_host)) == 2)
        assert [line.split(", ")[0] for line in applications(systemd_host)] == [gpu.uuid for gpu in systemd_host.gpus]
        systemd_host.run("systemctl stop holder")
        assert applications(systemd_host) == []

    def test_every_form_tells_the_same(self, systemd_host: Host):
        """CSV, -L and XML name the same GPUs, products and memory; lspci shows as many devices."""
        rows = systemd_host.run(
            "nvidia-smi --query-gpu=index,uuid,name,memory.total --format=csv,noheader,nounits"
        ).stdout
        csv = [row.split(", ") for row in rows.splitlines()]
        assert csv == [[str(gpu.index), gpu.uuid, gpu.product, str(gpu.memory_mib)] for gpu in systemd_host.gpus]
        listed = systemd_host.run("nvidia-smi -L").stdout.splitlines()
        assert listed == [f"GPU {index}: {name} (UUID: {uuid})" for index, uuid, name, _ in csv]
        root = ET.fromstring(systemd_host.run("nvidia-smi -q -x").stdout)
        assert root.findtext("attached_gpus") == "2"
        found = [
            [
                gpu.findtext("minor_number"),
                gpu.findtext("uuid"),
                gpu.findtext("product_name"),
                gpu.findtext("fb_memory_usage/total"),
            ]
            for gpu in root.iter("gpu")
        ]
        assert found == [[index, uuid, name, f"{memory} MiB"] for index, uuid, name, memory in csv]
        assert systemd_host.run("lspci -nn | grep -c '\\[10de:'").stdout.strip() == "2"

    def test_an_unknown_field_fails_the_whole_query(self, systemd_host: Host):
        """As the real tool, it answers nothing when one field is unknown."""
        done = systemd_host.run("nvidia-smi --query-gpu=index,no.such --format=csv", check=False)
        assert (done.returncode, done.stdout) == (2, 'Field "no.such" is not a valid field to query.\n\n')

    def test_sick_gpus_and_foreign_processes_show(self, plain_host: Host):
        """Health, hidden memory, processes of others and a dead driver show in nvidia-smi as they do on real hosts."""
        query = "nvidia-smi --query-gpu=temperature.gpu,memory.used --format=csv,noheader"
        with tidy(lambda: plain_host.set_gpus([Gpu()])):
            plain_host.set_gpu(0, health="requires_reset", used_mib=500)
            assert plain_host.run(query).stdout == "[GPU requires reset], 500 MiB\n"
            plain_host.set_gpu(0, health="ok", used_mib=0, processes=(GpuProcess(4242, "/usr/bin/python3", 20000),))
            assert applications(plain_host) == [f"{plain_host.gpus[0].uuid}, 4242, /usr/bin/python3, 20000"]
            plain_host.set_gpus(plain_host.gpus, fault="driver_not_loaded")
            done = plain_host.run(query, check=False)
            assert done.returncode == 9
            assert done.stdout.startswith("NVIDIA-SMI has failed because it couldn't communicate")
            assert plain_host.run("lspci -nn | grep -c '\\[10de:'").stdout.strip() == "1"
        assert plain_host.run(query).stdout == "41, 0 MiB\n"


def answer(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


class TestLlama:
    @pytest.mark.real_engine
    def test_a_real_llama_server_runs_on_a_host(self, lab: Lab, llama: LlamaAssets):
        """A host with `llama` serves the model over the lab's network and ends on SIGTERM with status 0."""
        host = lab.start_host("itself-llama", llama=True)
        command = f"llama-server -m {MODEL_ON_HOST} -a smol --host {host.address} --port 41000 -c 512 -np 1 --metrics"
        host.run(f"systemd-run --quiet --unit=llama --property=RemainAfterExit=yes {command}")
        wait_until("a loaded model", lambda: answer(f"http://{host.address}:41000/health") == 200, timeout_s=180)
        with urllib.request.urlopen(f"http://{host.address}:41000/v1/models", timeout=10) as reply:
            assert b'"smol"' in reply.read()
        host.run("systemctl kill llama")
        wait_until("the port's release", lambda: Listener(host.address, 41000) not in host.listening())
        wait_until("the exit", lambda: "exited" in host.run("systemctl show -p SubState llama").stdout)
        assert host.run("systemctl show -p ExecMainStatus --value llama").stdout.strip() == "0"
        host.power_off()

    @pytest.mark.real_engine
    def test_it_runs_on_this_machine_as_well_and_refuses_as_llama_cpp_does(self, llama: LlamaAssets):
        """The same program works in place, and an unknown flag or a missing model ends it with status 1."""
        version = subprocess.run([llama.server, "--version"], check=True, capture_output=True, text=True)
        assert version.stderr.startswith("version: ")
        wrong = subprocess.run(
            [llama.server, "-m", llama.model, "--no-such"], check=False, capture_output=True, text=True
        )
        assert (wrong.returncode, wrong.stderr) == (1, "error: invalid argument: --no-such\n")
        absent = subprocess.run([llama.server, "-m", "/no/such.gguf"], check=False, capture_output=True, text=True)
        assert absent.returncode == 1


class TestTeardown:
    def test_a_closed_lab_leaves_no_process_mount_link_or_file(self, lab: Lab):
        """After a lab's end, by an error too, nothing of it is left on this machine."""
        seen: list[str] = []

        def fail_within_a_lab() -> None:
            with Lab(lab.cache) as second:
                host = second.start_host("short", [Gpu()], wait=False)
                second.start_plain_host("short-plain").slow(5)
                host.wait_up()
                seen.append(second.run.bridge)
                assert traces(second.run.bridge)["mounts"]
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail_within_a_lab()
        [bridge] = seen
        assert bridge != lab.run.bridge
        assert traces(bridge) == NOTHING

    def test_the_next_run_removes_what_a_killed_one_left(self, lab: Lab):
        """A test run ended by SIGKILL leaves its hosts running; the next lab ends them and takes everything away."""
        script = (
            "import sys, time\n"
            f"sys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
            "from tests.lab import Lab\n"
            "lab = Lab().__enter__()\n"
            "lab.start_host('orphan')\n"
            "print(lab.run.bridge, flush=True)\n"
            "time.sleep(86400)\n"
        )
        with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as crashed:
            assert crashed.stdout is not None
            bridge = crashed.stdout.readline().strip()
            os.kill(crashed.pid, signal.SIGKILL)
        assert traces(bridge)["processes"]
        claimed = Run.claim()
        left = traces(bridge)
        claimed.remove()
        assert left == NOTHING or claimed.bridge == bridge
        assert traces(bridge) == NOTHING


NOTHING: dict[str, list[str]] = {"processes": [], "mounts": [], "links": [], "groups": [], "files": []}


def traces(bridge: str) -> dict[str, list[str]]:
    """Find everything on this machine that carries a run's name."""
    notes = (RUNS / bridge / "processes").glob("*")
    running = [note.name for note in notes if start_time(int(note.read_text().split()[0])) is not None]
    arguments = call(["ps", "-eo", "args", "ww"]).splitlines()
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return {
        "processes": running + [line for line in arguments if f"{RUNS}/{bridge}/" in line and "nspawn" in line],
        "mounts": [line for line in mounts if f"{RUNS}/{bridge}/" in line],
        "links": [
            link.name for link in Path("/sys/class/net").iterdir() if re.fullmatch(rf"{bridge}([ht]\d+)?", link.name)
        ],
        "groups": [str(group) for group in Path("/sys/fs/cgroup").rglob(f"{bridge}-*")],
        "files": [str(folder) for folder in RUNS.glob(bridge)],
    }
