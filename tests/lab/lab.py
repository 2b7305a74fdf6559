"""The lab itself: it makes hosts, knows their keys, and leaves nothing behind."""

import os
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from .gpus import Gpu
from .host import Host
from .llama import llama_assets
from .run import Run
from .system import LabUnavailableError, call
from .tree import cache_folder, root_tree

# Command and the Debian package that has it.
NEEDED = {
    "systemd-nspawn": "systemd-container",
    "debootstrap": "debootstrap",
    "ip": "iproute2",
    "ss": "iproute2",
    "nsenter": "util-linux",
    "unshare": "util-linux",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
}


class Lab:
    """Hosts on a bridge of their own; as a context manager it removes every process, mount and link at the end.

    Entering raises LabUnavailableError where this machine can't hold a lab. The first run of all makes the root tree.
    """

    def __init__(self, cache: Path | None = None):
        self.cache = cache or cache_folder()
        self.hosts: dict[str, Host] = {}

    def __enter__(self) -> "Lab":
        check_machine()
        self.tree = root_tree(self.cache)
        self.run = Run.claim()
        try:
            self._set_up()
            self.ssh_key = self.run.files / "id_ed25519"
            call(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "lab", "-f", self.ssh_key])
            self.known_hosts_file = self.run.files / "known_hosts"
            self.known_hosts_file.touch()
        except BaseException:
            self.run.remove()
            raise
        return self

    def _set_up(self) -> None:
        try:
            self.run.set_up()
        except RuntimeError as problem:
            raise LabUnavailableError(f"the lab's network or control groups can't be made: {problem}") from None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for host in self.hosts.values():
                host.power_off()
        finally:
            self.run.remove()

    @property
    def controller(self) -> str:
        """The address under which hosts see this machine."""
        return f"10.77.{self.run.number}.1"

    @property
    def known_hosts(self) -> str:
        """The hosts' keys as a known_hosts file, each under its address and its name."""
        return "".join(f"{host.address},{host.name} {host.host_key}\n" for host in self.hosts.values())

    def start_host(
        self,
        name: str,
        gpus: Sequence[Gpu] = (),
        *,
        llama: bool = False,
        without: Sequence[str] = (),
        wait: bool = True,
    ) -> Host:
        """Boot a host with systemd: users root, `llm` (linger on, no sudo) and `ops` (sudo without password).

        With `llama` it has a real llama-server and a model; `without` names commands that it lacks. With `wait`
        off call `wait_up()` before use, so that several hosts boot at the same time.
        """
        return self._start(name, gpus, llama=llama, without=without, plain=False, wait=wait)

    def start_plain_host(
        self,
        name: str,
        gpus: Sequence[Gpu] = (),
        *,
        llama: bool = False,
        without: Sequence[str] = (),
        wait: bool = True,
    ) -> Host:
        """Start a host on which nothing but sshd runs: no systemd, nor its commands."""
        return self._start(name, gpus, llama=llama, without=without, plain=True, wait=wait)

    def _start(
        self, name: str, gpus: Sequence[Gpu], *, llama: bool, without: Sequence[str], plain: bool, wait: bool
    ) -> Host:
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?", name) or name in self.hosts:
            raise ValueError(f"{name!r} is no name for a new host of this lab")
        layers = [self.tree, *([llama_assets(self.cache).tree] if llama else [])]
        host = Host(self, name, len(self.hosts) + 1, layers, plain=plain)
        self.hosts[name] = host
        host.prepare(gpus, without)
        self.known_hosts_file.write_text(self.known_hosts)
        host.boot(wait=wait)
        return host


def check_machine() -> None:
    """Raise LabUnavailableError that says everything this machine lacks."""
    missing = []
    if os.geteuid() != 0:
        missing.append("root")
    packages = {package for command, package in NEEDED.items() if shutil.which(command) is None}
    if packages:
        missing.append(f"the packages {' '.join(sorted(packages))} (tests/setup/packages installs them)")
    if "overlay" not in Path("/proc/filesystems").read_text() and shutil.which("modprobe"):
        call(["modprobe", "overlay"], check=False)
    if "overlay" not in Path("/proc/filesystems").read_text():
        missing.append("overlay file systems in the kernel")
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    if not any("cgroup" in mount[mount.index("-") + 1] for mount in mounts):
        missing.append("control groups")
    if not any(mount[4] == "/" for mount in mounts):
        missing.append("a root that is a mount, which a chroot's is not (systemd-nspawn can't run in one)")
    if missing:
        raise LabUnavailableError(f"the lab needs {', '.join(missing)}")
