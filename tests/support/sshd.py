"""A real OpenSSH server on loopback, with keys and a configuration of its own, and users for it where we are root."""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SSHD = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
IS_ROOT = os.geteuid() == 0


class Sshd:
    """One server; `config` are lines of sshd_config that go before the usual ones (the first value wins)."""

    def __init__(self, config: str = "", *, host_key_types: tuple[str, ...] = ("ed25519",), port: int = 0) -> None:
        if SSHD is None:
            raise RuntimeError("sshd is not installed")
        # sshd reads authorized_keys as the user who logs in, so pytest's private folders won't do.
        self.folder = Path(tempfile.mkdtemp(prefix="llmgwctl-sshd-"))
        self.folder.chmod(0o755)
        self.port = port or free_port()
        self.authorized_keys = self.folder / "authorized_keys"
        self.authorized_keys.touch()
        self.host_keys = [make_key(self.folder / f"host_{kind}", kind) for kind in host_key_types]
        lines = [
            config,
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            *(f"HostKey {key}" for key in self.host_keys),
            f"AuthorizedKeysFile {self.authorized_keys}",
            f"PidFile {self.folder}/pid",
            "StrictModes no",
            "UsePAM no",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "LogLevel ERROR",
        ]
        (self.folder / "sshd_config").write_text("\n".join(lines) + "\n")
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Sshd:
        if IS_ROOT:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [SSHD, "-D", "-e", "-f", str(self.folder / "sshd_config")], stdin=subprocess.DEVNULL, stderr=log
            )
        until = time.monotonic() + 20
        while time.monotonic() < until and self._process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as probe:
                probe.recv(4)
                return self
            time.sleep(0.02)
        raise RuntimeError(f"sshd did not start: {(self.folder / 'log').read_text()}")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def authorize(self, private_key: Path, options: str = "") -> None:
        """Let this key in; `options` as in authorized_keys."""
        public = private_key.with_name(private_key.name + ".pub").read_text()
        with self.authorized_keys.open("a") as file:
            file.write(f"{options} {public}".lstrip())

    def known_lines(self, name: str = "127.0.0.1") -> str:
        """Return the server's lines for a known_hosts file."""
        place = name if self.port == 22 else f"[{name}]:{self.port}"
        return "".join(f"{place} {' '.join(Path(f'{key}.pub').read_text().split()[:2])}\n" for key in self.host_keys)

    def drop_connections(self) -> None:
        """End the server's sessions, as a network that forgets them would; it goes on listening."""
        # A session is a monitor and, below it, the process that holds the socket.
        monitors = children_of(self.pid)
        for child in [grandchild for monitor in monitors for grandchild in children_of(monitor)] + monitors:
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)

    def stop(self) -> None:
        if self._process is not None:
            sessions = children_of(self._process.pid)
            self._process.terminate()
            self._process.wait(10)
            for child in sessions:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            self._process = None
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Sshd:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def make_key(path: Path, kind: str = "ed25519", passphrase: str = "") -> Path:
    command = ["ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-f", str(path)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)
    return path


@contextlib.contextmanager
def user(purpose: str, shell: str) -> Iterator[str]:
    """Make a user of this test run's own; needs root. It is removed with its home and its processes."""
    name = f"llmgw-{purpose}-{os.getpid()}"
    # A `*` is no password and no lock: sshd refuses locked accounts.
    subprocess.run(["useradd", "-m", "-p", "*", "-s", shell, name], check=True)
    try:
        yield name
    finally:
        drop_user(name)


def drop_user(name: str) -> None:
    if subprocess.run(["id", name], capture_output=True, check=False).returncode != 0:
        return
    listed = subprocess.run(["ps", "-o", "pid=", "-u", name], capture_output=True, text=True, check=False).stdout
    for pid in listed.split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(pid), signal.SIGKILL)
    subprocess.run(["userdel", "-r", "-f", name], capture_output=True, check=False)


@contextlib.contextmanager
def plain_user() -> Iterator[str]:
    """Give a user whose login shell is /bin/sh and starts nothing; ourselves where we are not root."""
    if not IS_ROOT:
        yield getpass.getuser()
        return
    with user("test", "/bin/sh") as name:
        yield name


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def children_of(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(p) for p in listed.stdout.split()]
