"""The probe's script runs under every shell that a host may have, and says what is really there."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llmgwctl.domain.desired import EngineInstall, Host, Simulate, SimulatedGpus
from llmgwctl.domain.inventory import Node, Phase
from llmgwctl.hosts.probe import ProbeError, ProbeRequest, build_script, read_answer

TOKEN = "k7f3a9"
HOST = Host("h1", "127.0.0.1", labels=(("zone", "a"),), fabric="ib-1", engines={"vllm": EngineInstall()})
SHELLS = {
    "dash": ("dash", "-s"),
    "bash": ("bash", "-s"),
    "busybox": ("busybox", "sh", "-s"),
    "fish": ("fish", "-c", "exec /bin/sh -s"),
    "tcsh": ("tcsh", "-c", "exec /bin/sh -s"),
    "bash-login": ("bash", "-lc", "exec /bin/sh -s"),
}
COMMANDS = ("cat", "date", "df", "grep", "mkdir", "rm", "sed", "sh", "sleep", "timeout", "uname", "id")


def run(
    request: ProbeRequest,
    *,
    shell: tuple[str, ...] = ("/bin/sh", "-s"),
    host: Host = HOST,
    path: str | None = None,
    env=None,
) -> tuple[Node, bytes]:
    script = build_script(request, TOKEN)
    variables = {**os.environ, **(env or {})}
    if path is not None:
        variables["PATH"] = path
    done = subprocess.run(
        [shutil.which(shell[0]) or shell[0], *shell[1:]],
        input=script.encode(),
        capture_output=True,
        env=variables,
        check=False,
        timeout=60,
    )
    now = time.time()
    return read_answer(done.stdout, TOKEN, request, host, sent_at=now - 2, received_at=now), done.stdout


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    """Make a folder to put before PATH."""
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


def tool(folder: Path, name: str, text: str) -> None:
    file = folder / name
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)


def only(folder: Path, *names: str) -> str:
    """Make a PATH that holds these commands of the system and nothing else; the script adds folders without them."""
    for name in names:
        with contextlib.suppress(FileExistsError):
            (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    return str(folder)


def before_path(folder: Path) -> str:
    return f"{folder}:{os.environ['PATH']}"


@pytest.mark.parametrize("name", SHELLS)
def test_every_shell(name: str, tmp_path: Path):
    """The answer is whole under each shell, and reached through each login shell."""
    shell = SHELLS[name]
    if shutil.which(shell[0]) is None:
        pytest.skip(f"{shell[0]} is not installed")
    node, _ = run(ProbeRequest(replica_dir=str(tmp_path), paths=("/nowhere/at/all",)), shell=shell)
    assert node.millicores
    assert node.millicores <= (os.cpu_count() or 1) * 1000
    total_kib = int(re.search(r"MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text())[1])
    assert 0 < node.memory_mib <= total_kib // 1024
    assert node.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert [d.path for d in node.disks] == [str(tmp_path), "/nowhere/at/all"]
    assert all(d.total_mib > 0 for d in node.disks)
    assert node.supervisor in ("systemd", "systemd-user", "setsid")
    assert (node.labels, node.fabric, node.replica_root) == (HOST.labels, "ib-1", str(tmp_path))
    assert node.warnings == ()


@pytest.mark.parametrize("with_ss", [True, False])
def test_ports_and_clock(with_ss: bool, bin_dir: Path):
    """A listening port is seen, by ss or without it; a clock that agrees gives no warning."""
    if not with_ss:
        tool(bin_dir, "ss", "exit 1")
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        node, _ = run(ProbeRequest(), path=before_path(bin_dir))
        assert server.server_port in node.ports_in_use
    low, high = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert node.ephemeral_ports == (int(low), int(high))
    assert abs(node.clock_skew_s) <= 3
    assert not node.warnings


@pytest.mark.parametrize("shell", ["/bin/dash", "/bin/bash"])
def test_no_tools_at_all(shell: str, bin_dir: Path, tmp_path: Path):
    """With nothing but the shell's own words the host is still described."""
    if not Path(shell).exists():
        pytest.skip(f"{shell} is not installed")
    node, _ = run(ProbeRequest(replica_dir=str(tmp_path)), shell=(shell, "-s"), path=str(bin_dir))
    assert node.memory_mib
    assert node.millicores
    assert node.boot_id
    assert node.os
    assert node.clock_skew_s is None


GOOD_SMI = """case "$*" in
*query-gpu*) echo "0, GPU-aaaa, 00000000:17:00.0, NVIDIA H100 80GB HBM3, 81559, {used}, 570.86.10, Disabled"
  echo "1, GPU-bbbb, 00000000:65:00.0, NVIDIA H100 80GB HBM3, 81559, 0, 570.86.10, Disabled" ;;
*query-compute-apps*) echo "{apps}" ;;
*) echo "not this" >&2; exit 2 ;;
esac"""


def test_foreign_process(bin_dir: Path):
    """A process that isn't ours takes its GPU, by number and name; the other GPU is free."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=20000, apps="GPU-aaaa, 4711, 19990, /opt/conda/bin/python3"))
    node, _ = run(ProbeRequest(), path=before_path(bin_dir))
    first, second = node.gpus
    assert (first.uuid, first.gpu_class, first.taken_by) == ("GPU-aaaa", "h100-80gb", "pid 4711 python3")
    assert (second.index, second.memory_mib, second.taken_by, second.health) == (1, 81559, None, "ok")


def test_memory_without_process(bin_dir: Path):
    """Memory that no visible process has means somebody else's, never a free GPU."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=558, apps=""))
    node, _ = run(ProbeRequest(), path=before_path(bin_dir))
    assert [g.taken_by for g in node.gpus] == ["unknown process", None]


def test_idle_memory(bin_dir: Path):
    """What a driver keeps on an idle card is nobody's."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=116, apps=""))
    node, _ = run(ProbeRequest(), path=before_path(bin_dir))
    assert [g.taken_by for g in node.gpus] == [None, None]


@pytest.mark.parametrize("with_timeout", [True, False])
def test_hanging_nvidia_smi(with_timeout: bool, bin_dir: Path):
    """An nvidia-smi that never answers costs its time limit and a warning, not the host; `timeout` isn't needed."""
    tool(bin_dir, "nvidia-smi", "exec sleep 50")
    names = COMMANDS if with_timeout else [c for c in COMMANDS if c != "timeout"]
    node, _ = run(ProbeRequest(tool_timeout_s=1), path=only(bin_dir, *names))
    assert node.gpus == ()
    assert any("did not answer in time" in w for w in node.warnings)
    assert node.memory_mib


def test_nvidia_smi_that_ignores_signals(bin_dir: Path):
    """A tool that can't be ended is left behind: the answer comes without it."""
    tool(bin_dir, "nvidia-smi", "trap '' TERM; n=0; while [ $n -lt 8 ]; do sleep 1; n=$((n+1)); done")
    node, _ = run(ProbeRequest(tool_timeout_s=1), path=before_path(bin_dir))
    assert any("did not answer in time" in w for w in node.warnings)


def test_rows_after_an_error(bin_dir: Path):
    """An error line before the rows is told, and the rows still count."""
    tool(
        bin_dir,
        "nvidia-smi",
        'echo "Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error"\n'
        + GOOD_SMI.format(used=0, apps="").replace("esac", "esac; exit 15"),
    )
    node, _ = run(ProbeRequest(), path=before_path(bin_dir))
    assert [g.uuid for g in node.gpus] == ["GPU-aaaa", "GPU-bbbb"]
    assert any("0000:0B:00.0 does not answer" in w for w in node.warnings)


@pytest.mark.parametrize(
    ("text", "status", "said"),
    [
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", 9, "driver is not running"),
        ("Failed to initialize NVML: Driver/library version mismatch", 18, "differ in version"),
        ("No devices were found", 6, "finds no device"),
    ],
)
def test_failing_nvidia_smi(text: str, status: int, said: str, bin_dir: Path):
    """A failure on nvidia-smi's standard output becomes a warning in plain words."""
    tool(bin_dir, "nvidia-smi", f'echo "{text}"; exit {status}')
    node, _ = run(ProbeRequest(), path=before_path(bin_dir))
    assert node.gpus == ()
    assert any(said in w for w in node.warnings)


def test_nothing_is_left_behind(bin_dir: Path):
    """The folder for slow tools' answers is gone afterwards."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=0, apps=""))
    run(ProbeRequest(), path=before_path(bin_dir))
    left = [p for base in ("/dev/shm", "/tmp") for p in Path(base).glob(f"llmgwctl-probe-{TOKEN}*")]
    assert left == []


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root and unshare")
@pytest.mark.parametrize("options", ["ro", "size=4k"])
def test_without_room_for_answers(options: str, bin_dir: Path, tmp_path: Path):
    """With every temporary folder read-only or full the slow tools are asked one after another."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=0, apps=""))
    hide = (
        f"mount -t tmpfs -o {options} none /dev/shm && mount --bind /dev/shm /var/tmp"
        + ("; cat /dev/zero > /dev/shm/full 2>/dev/null" if options != "ro" else "")
        + "; TMPDIR=/dev/shm exec /bin/sh -s"
    )
    probe = subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True)
    if probe.returncode != 0:
        pytest.skip("mount namespaces are not allowed here")
    node, _ = run(
        ProbeRequest(replica_dir=str(tmp_path)), shell=("unshare", "-m", "sh", "-c", hide), path=before_path(bin_dir)
    )
    assert [g.uuid for g in node.gpus] == ["GPU-aaaa", "GPU-bbbb"]


def test_engines_and_versions(bin_dir: Path):
    """An engine's version comes from its own Python's package data, or from the binary."""
    tool(bin_dir, "llama-server", 'echo "version: 5123 (abc1234)" >&2')
    python = bin_dir / "python-of-venv"
    tool(bin_dir, python.name, "echo 0.11.0")
    vllm = bin_dir / "my-vllm"
    vllm.write_text(f"#!{python}\nraise SystemExit('must not be started')\n")
    vllm.chmod(0o755)
    node, _ = run(ProbeRequest(commands={"vllm": str(vllm), "sglang": "/no/such/sglang"}), path=before_path(bin_dir))
    assert dict(node.engines_found) == {"vllm": "0.11.0", "llamacpp": "5123"}
    assert node.commands_found["vllm"] == str(vllm)


class Health(http.server.BaseHTTPRequestHandler):
    status = 200

    def do_GET(self):
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_):
        pass


@pytest.fixture
def health():
    """Serve HTTP for real, with a status that can be set."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Health)
    server.status = 200
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


def make_replica(
    root: Path, name: str, *, port: int, gpus=(), supervisor: str = "setsid", path: str = "/health"
) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    model, _, index = name.rpartition("-")
    (folder / "replica.json").write_text(
        json.dumps(
            {
                "format_version": "1.0", "id": f"{model}/{index}", "member": 0, "model": model, "profile": "p",
                "engine": "sim", "launch_digest": "d1", "gpus": list(gpus), "port": port, "address": "127.0.0.1",
                "lineage": "L", "node": "h1", "folder": name, "simulated": True, "health_path": "/health",
            },
            indent=1,
        )
    )  # fmt: skip
    (folder / "health").write_text(f"127.0.0.1 {port} {path}\n")
    (folder / "supervisor").write_text(f"{supervisor}\n")
    (folder / "secrets").write_text("export HF_TOKEN=hunter2\n")
    return folder


@pytest.fixture
def supervised():
    """Start real processes in sessions of their own; ends them by their session."""
    started = []

    def start(folder: Path) -> subprocess.Popen:
        process = subprocess.Popen(
            ["setsid", "sh", "-c", f"sleep 300 & echo $! > {folder}/pid; wait"], stdin=subprocess.DEVNULL
        )
        started.append(process)
        deadline = time.monotonic() + 20
        while not (folder / "pid").exists() or not (folder / "pid").read_text().strip():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        stat = Path(f"/proc/{process.pid}/stat").read_text()
        (folder / "session").write_text(f"{process.pid} {stat.rpartition(')')[2].split()[19]}\n")
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_a_replica_under_setsid(shell: str, tmp_path: Path, health, supervised, bin_dir: Path):
    """A live replica is ready, its GPU and its process are ours; its secrets are never printed."""
    if shutil.which(SHELLS[shell][0]) is None:
        pytest.skip(f"{shell} is not installed")
    folder = make_replica(tmp_path / "r", "chat-0", port=health.server_port, gpus=("GPU-aaaa",))
    supervised(folder)
    pid = (folder / "pid").read_text().strip()
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=9000, apps=f"GPU-bbbb, {pid}, 8000, vllm"))
    node, answer = run(ProbeRequest(replica_dir=str(tmp_path / "r")), shell=SHELLS[shell], path=before_path(bin_dir))
    (replica,) = node.replicas
    assert (replica.id, replica.phase, replica.lineage, replica.port) == (
        "chat/0",
        Phase.READY,
        "L",
        health.server_port,
    )
    assert replica.pid == int(pid)
    # One GPU by its declaration, the other by the process that is on it.
    assert [g.taken_by for g in node.gpus] == ["chat/0", "chat/0"]
    assert b"hunter2" not in answer


def test_phases(tmp_path: Path, health, supervised):
    """Starting, unhealthy, stopping, failed: each by its marks, its process and its health."""
    root = tmp_path / "r"
    health.status = 503
    for name in ("starting-0", "unhealthy-0", "stopping-0", "failed-0", "vanished-0", "between-0", "silent-0"):
        folder = make_replica(root, name, port=health.server_port, path="-" if name == "silent-0" else "/health")
        if name not in ("failed-0", "vanished-0"):
            supervised(folder)
    (root / "unhealthy-0" / "ready").touch()
    (root / "stopping-0" / "stopping").touch()
    (root / "failed-0" / "failed").touch()
    (root / "failed-0" / "exit").write_text("1\n")
    (root / "failed-0" / "restarts").write_text("3\n")
    (root / "vanished-0" / "session").write_text("1 12345\n")
    (root / "vanished-0" / "exit").write_text("137\n")
    os.kill(int((root / "between-0" / "pid").read_text()), signal.SIGKILL)
    (root / "between-0" / "exit").write_text("139\n")
    # The shell of `between` waits for its child and ends: keep its session by a process of its own.
    node, _ = run(ProbeRequest(replica_dir=str(root)))
    phases = {r.model: r.phase for r in node.replicas}
    details = {r.model: r.detail for r in node.replicas}
    assert phases["starting"] is Phase.STARTING
    assert phases["unhealthy"] is Phase.UNHEALTHY
    assert phases["stopping"] is Phase.STOPPING
    assert phases["failed"] is Phase.FAILED
    assert phases["vanished"] is Phase.FAILED
    assert phases["between"] is Phase.FAILED
    assert phases["silent"] is Phase.READY
    assert "503" in details["unhealthy"]
    assert details["failed"] == "exited with status 1"
    assert "killed by signal 9" in details["vanished"]
    assert next(r for r in node.replicas if r.model == "failed").restarts == 3


@pytest.mark.parametrize("tools", [("wget",), ("busybox wget",), ("bash",), ("python3",), ()])
def test_health_without_curl(tools: tuple[str, ...], tmp_path: Path, health, supervised, bin_dir: Path):
    """Whatever can ask over HTTP is used; with nothing, an open port counts."""
    folder = make_replica(tmp_path / "r", "chat-0", port=health.server_port)
    supervised(folder)
    path = only(bin_dir, *COMMANDS, *(t for t in tools if t in ("wget", "bash")))
    if "busybox wget" in tools:
        tool(bin_dir, "wget", f'exec {shutil.which("busybox")} wget "$@"')
    if "python3" in tools:
        tool(bin_dir, "python3", f'exec {sys.executable} "$@"')
    for name in ("curl", "wget", "bash", "python3"):
        if name not in tools and any(Path(d, name).exists() for d in ("/usr/local/bin", "/usr/sbin", "/sbin")):
            pytest.skip(f"{name} is where the script looks for tools by itself")
    nobody = {"http_proxy": "http://127.0.0.1:9"}  # the host's proxy is not for its own engines
    node, _ = run(ProbeRequest(replica_dir=str(tmp_path / "r")), path=path, env=nobody)
    assert node.replicas[0].phase is Phase.READY
    if tools:
        health.status = 503
        node, _ = run(ProbeRequest(replica_dir=str(tmp_path / "r")), path=path, env=nobody)
        assert node.replicas[0].phase is Phase.UNHEALTHY  # it was seen ready just now
        assert "503" in node.replicas[0].detail


def test_systemd_units(tmp_path: Path, health, bin_dir: Path):
    """One `systemctl show` tells the state of every unit."""
    root = tmp_path / "r"
    for name in ("run-0", "loop-0", "dead-0", "gone-0", "oom-0", "queued-0"):
        make_replica(root, name, port=health.server_port, supervisor="systemd")
    fields = (
        "LoadState",
        "ActiveState",
        "SubState",
        "MainPID",
        "NRestarts",
        "Result",
        "ExecMainCode",
        "ExecMainStatus",
    )
    states = {
        "run-0": "loaded active running 1 2 success 0 0",
        "loop-0": "loaded activating auto-restart 0 1 exit-code 1 1",
        "dead-0": "loaded failed failed 0 3 signal 2 9",
        "gone-0": "not-found inactive dead 0 0 success 0 0",
        "oom-0": "loaded failed failed 0 0 oom-kill 2 9",
        "queued-0": "loaded inactive dead 0 0 success 0 0",
    }
    blocks = {
        name: "\n".join(f"{f}={v}" for f, v in zip(fields, values.split(), strict=True))
        for name, values in states.items()
    }
    blocks["queued-0"] += "\nJob=4711"
    blocks["run-0"] += "\nUnitFileState=disabled"
    blocks["loop-0"] += "\nUnitFileState=enabled"
    text = "\n\n".join(f"Id=llmgwctl-v1@{name}.service\n{block}\nControlGroup=" for name, block in blocks.items())
    (bin_dir / "answer").write_text(text + "\n")
    tool(bin_dir, "systemctl", f"[ $# -gt 6 ] && echo asked >> {bin_dir}/calls && exec cat {bin_dir}/answer")
    node, _ = run(ProbeRequest(replica_dir=str(root)), path=before_path(bin_dir))
    seen = {r.model: (r.phase, r.detail, r.restarts) for r in node.replicas}
    assert seen == {
        "run": (Phase.READY, "", 2),
        "loop": (Phase.STARTING, "exited with status 1; it is restarted", 1),
        "dead": (Phase.FAILED, "killed by signal 9", 3),
        "gone": (Phase.FAILED, "its systemd unit is gone", 0),
        "oom": (Phase.FAILED, "killed because memory ran out", 0),
        "queued": (Phase.STARTING, "", 0),
    }
    assert (bin_dir / "calls").read_text().split() == ["asked"]
    assert [w for w in node.warnings if "is disabled" in w] == [
        "run/0: its unit is disabled, so that it would not return after a reboot "
        "(to mend it: --replace run/0, or systemctl enable llmgwctl-v1@run-0.service)."
    ]


def test_odd_folders(tmp_path: Path):
    """A folder that isn't whole, or holds nonsense, is told and is no replica."""
    root = tmp_path / "r"
    (root / "half-0").mkdir(parents=True)
    (root / "not ours").mkdir()
    (make_replica(root, "broken-0", port=1) / "replica.json").write_text("{ nonsense")
    node, _ = run(ProbeRequest(replica_dir=str(root)))
    assert node.replicas == ()
    assert any("half-0 has no replica.json" in w for w in node.warnings)
    assert any("broken-0/replica.json can't be read" in w for w in node.warnings)


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
def test_other_users_folder(tmp_path: Path):
    """A folder that another user keeps closed is told."""
    root = tmp_path / "r"
    make_replica(root, "chat-0", port=1).chmod(0o700)
    for folder in (root, *root.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(folder.stat().st_mode | 0o005)
        if folder == Path("/tmp"):
            break
    drop = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "/bin/sh", "-s")
    node, _ = run(ProbeRequest(replica_dir=str(root)), shell=drop, env={"HOME": "/nonexistent", "USER": "nobody"})
    assert node.replicas == ()
    assert any("chat-0 can't be read: it belongs to another user" in w for w in node.warnings)


def test_pretended_gpus(tmp_path: Path, health, supervised, bin_dir: Path):
    """Pretended GPUs come after the real ones and are taken by what the replicas' folders say."""
    folder = make_replica(tmp_path / "r", "chat-0", port=health.server_port, gpus=("SIM-h1-1",))
    supervised(folder)
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=0, apps=""))
    host = Host("h1", "127.0.0.1", simulate=Simulate(gpus=(SimulatedGpus("demo", 1024, 2),)))
    node, _ = run(ProbeRequest(replica_dir=str(tmp_path / "r")), host=host, path=before_path(bin_dir))
    assert [(g.index, g.uuid, g.product, g.pretended, g.taken_by) for g in node.gpus[2:]] == [
        (2, "SIM-h1-0", "Simulated demo", True, None),
        (3, "SIM-h1-1", "Simulated demo", True, "chat/0"),
    ]


def test_declared_class(bin_dir: Path):
    """A class that the host declares replaces the one that was found."""
    tool(bin_dir, "nvidia-smi", GOOD_SMI.format(used=0, apps=""))
    node, _ = run(ProbeRequest(), host=Host("h1", "127.0.0.1", gpu_class="big"), path=before_path(bin_dir))
    assert {g.gpu_class for g in node.gpus} == {"big"}


def test_noise_around_the_answer():
    """Text before, after and carriage returns change nothing."""
    request = ProbeRequest()
    _, answer = run(request)
    noisy = b"Welcome!\nGPU 0: not a GPU\n" + answer.replace(b"\n", b"\r\n") + b"logout\nuid=99\n"
    quiet, loud = (read_answer(a, TOKEN, request, HOST) for a in (answer, noisy))
    assert quiet == loud


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "printed nothing"),
        (b"This account is currently not available.\n", "may not log in"),
        (b"sh: 1: /bin/sh: not found\n", "no command sh"),
        (b"export: Command not found.\n", "csh/tcsh"),
        (b"fish: Unsupported use of '='.\n", "login shell is fish"),
        (b"*** Authorised use only ***\nLast login: today\n", "the host said: *** Authorised use only ***"),
        (b"\xff\xfe\x00garbage", "the host said"),
    ],
)
def test_no_answer(answer: bytes, said: str):
    """What isn't an answer is an error in plain words that quotes the host."""
    with pytest.raises(ProbeError) as caught:
        read_answer(answer, TOKEN, ProbeRequest(), HOST)
    assert said in caught.value.message
    assert "h1" in caught.value.message


def test_every_cut_is_noticed():
    """Wherever an answer is cut, it isn't taken for a smaller host."""
    _, answer = run(ProbeRequest())
    end = answer.rindex(b" E finish 0")
    for length in range(0, end, 97):
        with pytest.raises(ProbeError):
            read_answer(answer[:length], TOKEN, ProbeRequest(), HOST)


def test_clock_that_is_off():
    """A clock that differs by more than two seconds for certain is told."""
    _, answer = run(ProbeRequest())
    ahead = read_answer(
        answer, TOKEN, ProbeRequest(), HOST, sent_at=time.time() - 3600.5, received_at=time.time() - 3600
    )
    assert any("s ahead" in w for w in ahead.warnings)
    assert ahead.clock_skew_s == pytest.approx(3600, abs=70)


def test_hostile_words_are_only_words(tmp_path: Path):
    """Paths and commands of a request are data: nothing in them is run."""
    evil = f"/x$(touch {tmp_path}/ran)`touch {tmp_path}/ran`'\"; touch {tmp_path}/ran #"
    run(ProbeRequest(replica_dir=evil, paths=(evil,), commands={"vllm": evil}))
    assert not (tmp_path / "ran").exists()
    with pytest.raises(ValueError, match="letters and digits"):
        build_script(ProbeRequest(), "a b")


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "evil"},
        {"id": "evil/²"},
        {"id": "evil/" + "9" * 5000},
        {"id": ["a/0"]},
        {"id": "/0"},
        {"member": float("inf")},
        {"member": -1},
        {"member": "0"},
        {"port": 1e99},
        {"port": "http"},
        {"gpus": 3},
    ],
)
def test_what_somebody_wrote_into_a_replica_is_no_replica(changes: dict, tmp_path: Path):
    """A host's owner can write anything; it costs that folder alone, and a warning."""
    root = tmp_path / "r"
    make_replica(root, "good-0", port=1)
    folder = make_replica(root, "evil-0", port=1)
    data = json.loads((folder / "replica.json").read_text())
    (folder / "replica.json").write_text(json.dumps(data | changes))
    node, _ = run(ProbeRequest(replica_dir=str(root)))
    assert [r.id for r in node.replicas] == ["good/0"]
    assert any("evil-0/replica.json can't be read" in w for w in node.warnings)
    assert node.replicas_hidden
