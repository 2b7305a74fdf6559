"""What the lab asks of the machine it runs on: commands, locks, processes, mounts."""

import fcntl
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

POLL_S = 0.05


class LabUnavailableError(Exception):
    """The machine can't hold the lab; the text says what is missing."""


def call(command: Sequence[str | Path], *, check: bool = True, timeout_s: float = 120, **options) -> str:
    """Run a command of this machine and return its standard output; a failure carries its standard error."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words, check=False, capture_output=True, text=True, timeout=timeout_s, stdin=subprocess.DEVNULL, **options
    )
    if check and done.returncode != 0:
        raise RuntimeError(
            f"{' '.join(words)}: exit status {done.returncode}: {done.stderr.strip() or done.stdout.strip()}"
        )
    return done.stdout


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a lock that other test runs on this machine respect; a dead holder's lock is free."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def wait_until(what: str, condition: Callable[[], object], *, timeout_s: float = 60) -> None:
    """Poll until the condition holds; TimeoutError says what didn't come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout_s:.0f} s")
        time.sleep(POLL_S)


def start_time(pid: int) -> str | None:
    """Return field 22 of a process's stat, which tells it from a later one of its number; None when there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = text.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[19]


def children(pid: int) -> list[int]:
    """List the living children of a process."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == pid and fields[0] not in "ZX":
                    found.append(int(folder.name))
    return sorted(found)


def kill(pid: int, started: str | None) -> None:
    """End a process at once, if it is still the one that started then, and wait until it is gone."""
    if started is None or start_time(pid) != started:
        return
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    wait_until(f"the end of process {pid}", lambda: start_time(pid) != started)


def mounts_under(folder: Path) -> list[str]:
    """List the mount points in and under a folder, the last mounted first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return [point for point in reversed(points) if point == str(folder) or point.startswith(f"{folder}/")]


def unmount_under(folder: Path) -> None:
    """Unmount everything in and under a folder; what is still held by a dying process goes when that does."""
    for point in mounts_under(folder):
        if subprocess.run(["umount", point], check=False, capture_output=True).returncode != 0:
            call(["umount", "--lazy", point], check=False)
