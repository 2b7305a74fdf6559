"""One host of the lab: its life (boot, power, reboot), its faults, and looks inside it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import gpus as gpu_files
from .gpus import Gpu
from .system import call, children, kill, mounts_under, start_time, wait_until

if TYPE_CHECKING:
    from .lab import Lab

PAYLOAD = Path(__file__).with_name("payload")
BIN_FOLDERS = ("usr/local/sbin", "usr/local/bin", "usr/sbin", "usr/bin")
SYSTEMD_COMMANDS = ("systemctl", "systemd-run", "loginctl", "journalctl", "busctl")
# Where anything that llmgwctl puts on a host can be.
SEARCHED = ("etc", "home", "opt", "root", "run", "srv", "tmp", "usr/local", "usr/lib/systemd", "var")
HOST_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Process:
    """A process of a host, by the host's own numbers."""

    pid: int
    parent: int
    session: int
    uid: int
    command: str
    arguments: tuple[str, ...]


@dataclass(frozen=True)
class Listener:
    address: str
    port: int


class Host:
    """A running or switched-off host; made by Lab.start_host and Lab.start_plain_host."""

    def __init__(self, lab: "Lab", name: str, number: int, layers: Sequence[Path], *, plain: bool):
        self.lab = lab
        self.name = name
        self.plain = plain
        self.layers = tuple(layers)
        self.address = f"10.77.{lab.run.number}.{number + 10}"
        self.link = f"{lab.run.bridge}h{number}"
        self.tap = f"{lab.run.bridge}t{number}"
        self.mac = f"02:4c:47:00:{lab.run.number:02x}:{number:02x}"
        self.folder = lab.run.files / "hosts" / name
        self.root = self.folder / "root"
        self.console = self.folder / "console"
        self.ssh_key = lab.ssh_key
        self.host_key = ""
        self.gpus: tuple[Gpu, ...] = ()
        self._machine: subprocess.Popen | None = None
        self._network: subprocess.Popen | None = None
        self._wire: subprocess.Popen | None = None

    # Life

    def prepare(self, gpus: Sequence[Gpu], without: Sequence[str]) -> None:
        """Make the host's own layer over the shared tree."""
        for part in ("upper", "work", "root"):
            (self.folder / part).mkdir(parents=True)
        lower = ":".join(str(layer) for layer in reversed(self.layers))
        options = f"lowerdir={lower},upperdir={self.folder / 'upper'},workdir={self.folder / 'work'}"
        call(["mount", "-t", "overlay", "-o", options, f"{self.lab.run.bridge}-{self.name}", self.root])
        etc = self.root / "etc"
        (etc / "hostname").write_text(f"{self.name}\n")
        (etc / "hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {self.name}\n{self.lab.controller} controller\n")
        (etc / "machine-id").write_text("")
        key = etc / "ssh/ssh_host_ed25519_key"
        call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", self.name, "-f", key])
        self.host_key = " ".join(key.with_suffix(".pub").read_text().split()[:2])
        shutil.copy(f"{self.ssh_key}.pub", etc / "ssh/lab_authorized_keys")
        if gpus:
            self.set_gpus(gpus)
        for tool in (*without, *(SYSTEMD_COMMANDS if self.plain else ())):
            self.remove_tool(tool)

    def boot(self, *, wait: bool = True) -> None:
        """Switch the host on; its files are those that it had when it went off."""
        self.power_off()
        self._network = self._start("network", ["unshare", "--net", "--", "sleep", "infinity"])
        own = Path("/proc/self/ns/net").readlink()
        theirs = Path(f"/proc/{self._network.pid}/ns/net")
        wait_until("a network namespace", lambda: theirs.readlink() != own)
        # The same hardware address at each boot, as a real card: neighbours remember it for up to a minute.
        peer = ["peer", "name", "host0", "address", self.mac, "netns", str(self._network.pid)]
        call(["ip", "link", "add", self.link, "type", "veth", *peer])
        call(["ip", "link", "set", self.link, "master", self.lab.run.bridge, "up"])
        enter = ["nsenter", f"--net={theirs}", "ip"]
        call([*enter, "link", "set", "lo", "up"])
        call([*enter, "address", "add", f"{self.address}/24", "dev", "host0"])
        call([*enter, "link", "set", "host0", "up"])
        nspawn = [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--resolv-conf=off", "--timezone=off"),
            *(f"--directory={self.root}", f"--machine={self.name}", f"--network-namespace-path={theirs}"),
        ]
        sshd = "mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e"
        nspawn += ["--as-pid2", "/bin/sh", "-c", sshd] if self.plain else ["--boot"]
        # Moving itself first: all that nspawn starts is then in the host's own control group.
        groups = [str(group / "cgroup.procs") for group in self.lab.run.cgroups(self.name)]
        move = 'while [ "$1" != -- ]; do echo $$ >"$1"; shift; done; shift; exec "$@"'
        self._machine = self._start("machine", ["sh", "-c", move, "sh", *groups, "--", *nspawn])
        if wait:
            self.wait_up()

    def wait_up(self) -> None:
        """Wait until sshd answers and, with systemd, the boot is over."""

        def up() -> bool:
            if self._machine is None or self._machine.poll() is not None:
                raise RuntimeError(
                    f"{self.name} went off while booting: {self.console.read_text(errors='replace')[-2000:]}"
                )
            if not self._answers():
                return False
            if self.plain:
                return True
            state = self.inside("systemctl is-system-running", check=False).strip()
            return state in ("running", "degraded")

        wait_until(f"{self.name} is up", up)

    def power_off(self) -> None:
        """Switch the host off as a power cut does: nothing in it gets to say goodbye."""
        self._end_wire()
        if self._machine is not None:
            call(["ip", "link", "set", self.link, "down"], check=False)
            with suppress(RuntimeError):
                leader = self.leader
                kill(leader, start_time(leader))
            self._reap("machine", self._machine)
            self._machine = None
        self._unplug()

    def reboot(self, *, wait: bool = True) -> None:
        """Restart the host in good order, as `systemctl reboot` does; a plain host is cut off and started again."""
        if not self.plain:
            assert self._machine is not None
            self.inside("systemctl reboot", check=False)
            self._machine.wait(timeout=120)
        self.boot(wait=wait)

    @property
    def is_on(self) -> bool:
        """Whether the host runs."""
        return self._machine is not None and self._machine.poll() is None

    @property
    def leader(self) -> int:
        """The host's PID 1, by this machine's number."""
        found = children(self._machine.pid) if self._machine is not None else []
        if not found:
            raise RuntimeError(f"{self.name} is off")
        return found[0]

    # Ways in

    def ssh_command(self, user: str = "root", *, connect_timeout_s: int = 10) -> list[str]:
        """Return the ssh command line up to the destination, for a command to follow."""
        options = {
            "UserKnownHostsFile": self.lab.known_hosts_file,
            "StrictHostKeyChecking": "yes",
            "BatchMode": "yes",
            "ConnectTimeout": connect_timeout_s,
            "LogLevel": "ERROR",
        }
        words = [word for name, value in options.items() for word in ("-o", f"{name}={value}")]
        return ["ssh", "-F", "none", "-i", str(self.ssh_key), *words, f"{user}@{self.address}"]

    def run(
        self, command: str, *, user: str = "root", check: bool = True, stdin: str = "", timeout_s: float = 120
    ) -> subprocess.CompletedProcess[str]:
        """Run a shell command over SSH."""
        done = subprocess.run(
            [*self.ssh_command(user), command],
            check=False,
            capture_output=True,
            text=True,
            input=stdin,
            timeout=timeout_s,
        )
        if check and done.returncode != 0:
            raise RuntimeError(
                f"{user}@{self.name}: {command}: exit status {done.returncode}: {done.stderr}{done.stdout}"
            )
        return done

    def inside(self, command: str, *, check: bool = True) -> str:
        """Run a shell command as root past the network and sshd, so it works while those are broken."""
        enter = ["nsenter", f"--target={self.leader}", "--all", "--root", "--wd"]
        environment = {"PATH": HOST_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"}
        return call([*enter, "/bin/sh", "-c", command], check=check, env=environment)

    # Faults

    def cut(self, *, silently: bool = True) -> None:
        """Pull the network cable: packets vanish, or with silently=False are refused as unreachable."""
        if silently:
            # Else this machine learns on the bridge that nobody has the address, which it can't behind a router.
            mac = "02:00:00:00:00:01"
            bridge = self.lab.run.bridge
            call(["ip", "neighbour", "replace", self.address, "lladdr", mac, "dev", bridge, "nud", "permanent"])
        call(["ip", "link", "set", self.link, "down"])

    def heal(self) -> None:
        """Plug the cable in again and make the wire quick."""
        self._end_wire()
        call(["ip", "link", "set", self.link, "master", self.lab.run.bridge, "up"])
        call(["ip", "neighbour", "delete", self.address, "dev", self.lab.run.bridge], check=False)

    def slow(self, delay_ms: float, loss: float = 0.0) -> None:
        """Delay each packet both ways, and lose a share (0 to 1) of them, until heal()."""
        self._end_wire()
        assert self._network is not None
        enter = ["nsenter", f"--net=/proc/{self._network.pid}/ns/net"]
        wire = [sys.executable, str(PAYLOAD / "wire.py")]
        call([*enter, *wire, "plain", "host0"])
        call(["ip", "link", "set", self.link, "nomaster"])
        self._wire = self._start("wire", [*wire, "run", self.link, self.tap, str(delay_ms), str(loss)])
        wait_until("the wire's tap", lambda: Path(f"/sys/class/net/{self.tap}").exists())
        call(["ip", "link", "set", self.tap, "master", self.lab.run.bridge, "up"])

    def fill_disk(self, path: str) -> None:
        """Make the file system at a folder full; what is in the folder stays."""
        self.inside(
            f"set -e; mkdir -p {path}; old=$(mktemp -d); mount --bind --make-private {path} $old\n"
            f"mount -t tmpfs -o size=1g,mode=$(stat -c %a {path}) full {path}; chown --reference=$old {path}\n"
            f"cp -a $old/. {path}/; umount $old; rmdir $old\n"
            f"used=$(df -Pk {path} | awk 'NR == 2 {{print $3}}'); mount -o remount,size=$((used + 64))k {path}\n"
            f"dd if=/dev/zero of={path}/.filler bs=4k 2>/dev/null || true"
        )

    def unfill_disk(self, path: str) -> None:
        """Give a filled folder room again; what was written to it lasts until the next boot."""
        self.inside(f"rm -f {path}/.filler; mount -o remount,size=256m {path}")

    def freeze_sshd(self) -> None:
        """Stop sshd: connections are accepted by the kernel and then nothing is said."""
        self._signal_sshd(signal.SIGSTOP)

    def thaw_sshd(self) -> None:
        """Let sshd go on."""
        self._signal_sshd(signal.SIGCONT)

    def remove_tool(self, name: str) -> None:
        """Take a command away, in every folder of the PATH."""
        for folder in BIN_FOLDERS:
            (self.root / folder / name).unlink(missing_ok=True)

    def restore_tool(self, name: str) -> None:
        """Give a command of the shared tree back."""
        for layer in self.layers:
            for folder in BIN_FOLDERS:
                source = layer / folder / name
                if source.exists() or source.is_symlink():
                    call(["cp", "-a", source, self.root / folder / name])

    def set_gpus(self, gpus: Sequence[Gpu], *, fault: str | None = None, delay_s: float = 0.0) -> None:
        """Say what nvidia-smi and lspci show from now on.

        `fault` fails the whole command: driver_not_loaded, library_mismatch, nvml_unknown_error, gpu_lost or hang.
        """
        self.gpus = gpu_files.numbered(self.name, gpus)
        for name, text in (
            ("fake-gpus.json", gpu_files.config_text(self.gpus, fault=fault, delay_s=delay_s)),
            ("fake-lspci", gpu_files.lspci_text(self.gpus)),
        ):
            fresh = self.root / "etc" / f"{name}.new"
            fresh.write_text(text)
            fresh.rename(self.root / "etc" / name)
        for source, name in (("nvidia_smi.py", "nvidia-smi"), ("lspci", "lspci")):
            target = self.root / "usr/local/bin" / name
            shutil.copy(PAYLOAD / source, target)
            target.chmod(0o755)

    def set_gpu(self, index: int, **changes) -> None:
        """Change fields of one GPU, such as its health."""
        self.set_gpus([replace(gpu, **changes) if gpu.index == index else gpu for gpu in self.gpus])

    # Looks inside

    def processes(self) -> list[Process]:
        """List every process of the host, by this machine's /proc: it works whatever the host lacks."""
        space = Path(f"/proc/{self.leader}/ns/pid").readlink()
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with suppress(OSError):
                    if (folder / "ns/pid").readlink() == space:
                        found.append(read_process(folder))
        return sorted(found, key=lambda process: process.pid)

    def listening(self) -> set[Listener]:
        """List the TCP ports that something on the host listens on."""
        found = set()
        for line in call(["nsenter", f"--target={self.leader}", "--net", "ss", "-Hltn"]).splitlines():
            address, _, port = line.split()[3].rpartition(":")
            found.add(Listener(address.partition("%")[0].strip("[]"), int(port)))
        return found

    def files_of_ours(self) -> list[str]:
        """List the topmost files and folders on the host whose name has llmgwctl in it."""
        root = Path(f"/proc/{self.leader}/root") if self.is_on else self.root
        found: list[str] = []
        for start in SEARCHED:
            for folder, folders, files in os.walk(root / start):
                ours = [name for name in (*folders, *files) if "llmgwctl" in name]
                found += [f"/{Path(folder, name).relative_to(root)}" for name in ours]
                folders[:] = [name for name in folders if name not in ours]
        return sorted(found)

    # Helpers

    def _start(self, what: str, command: Sequence[str]) -> subprocess.Popen:
        with self.console.open("ab") as output:
            process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )
        self.lab.run.note_process(f"{self.name}.{what}", process.pid)
        return process

    def _reap(self, what: str, process: subprocess.Popen) -> None:
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout=5 if what == "machine" else 0)
        if process.poll() is None:
            process.kill()
            process.wait()
        (self.lab.run.folder / "processes" / f"{self.name}.{what}").unlink(missing_ok=True)

    def _unplug(self) -> None:
        if self._network is not None:
            self._reap("network", self._network)
            self._network = None
            # A namespace goes when the last socket in it does; its link should not wait for that.
            call(["ip", "link", "delete", self.link], check=False)

    def _end_wire(self) -> None:
        if self._wire is not None:
            self._reap("wire", self._wire)
            self._wire = None

    def _answers(self) -> bool:
        try:
            with socket.create_connection((self.address, 22), timeout=1) as connection:
                return connection.recv(4) == b"SSH-"
        except OSError:
            return False

    def _signal_sshd(self, number: signal.Signals) -> None:
        pids = " ".join(str(process.pid) for process in self.processes() if process.command == "sshd")
        self.inside(f"kill -{number.value} {pids}")

    def mounts(self) -> list[str]:
        """List this machine's mounts that belong to the host."""
        return mounts_under(self.folder)


def read_process(folder: Path) -> Process:
    """Read one process from /proc of this machine into the numbers of its own namespace."""
    status = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
    # A program that wrote a title over its arguments leaves the rest of their room empty.
    words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    parent = 0
    with suppress(OSError, KeyError):
        text = Path(f"/proc/{status['PPid'].strip()}/status").read_text()
        numbers = next(line for line in text.splitlines() if line.startswith("NSpid:")).split()[1:]
        parent = int(numbers[-1]) if len(numbers) == len(status["NSpid"].split()) else 0
    return Process(
        pid=int(status["NSpid"].split()[-1]),
        parent=parent,
        session=int(status["NSsid"].split()[-1]),
        uid=int(status["Uid"].split()[0]),
        command=status["Name"].strip(),
        arguments=tuple(words),
    )
