"""What one run of the lab has on this machine, all of it under one number, and how all of it is taken away again."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

from .system import call, kill, locked, start_time, unmount_under, wait_until

RUNS = Path("/run/llmgwctl-lab")
MOST_RUNS = 200


class Run:
    """One run: folder RUNS/lgN, bridge lgN with 10.77.N.0/24, links lgNh*, taps lgNt*, control groups lgN-*.

    The folder's `owner` file names the process that the run belongs to, so a later run knows a crashed one.
    """

    def __init__(self, number: int):
        self.number = number
        self.bridge = f"lg{number}"
        self.folder = RUNS / self.bridge
        self.files = self.folder / "files"

    @classmethod
    def claim(cls) -> "Run":
        """Remove what crashed runs left, then take a free number."""
        with locked(RUNS / "lock"):
            for folder in RUNS.glob("lg*/"):
                run = cls(int(folder.name[2:]))
                if not run.has_owner():
                    run.remove()
            taken = {entry.name for entry in Path("/sys/class/net").iterdir()} | {
                entry.name for entry in RUNS.iterdir()
            }
            number = next(n for n in range(1, MOST_RUNS) if f"lg{n}" not in taken)
            run = cls(number)
            run.folder.mkdir()
            (run.folder / "owner").write_text(f"{os.getpid()} {start_time(os.getpid())}")
            (run.folder / "processes").mkdir()
            run.files.mkdir()
        return run

    def set_up(self) -> None:
        """Make the bridge and the place for the hosts' files: memory, so that nothing waits for a disk."""
        call(["mount", "-t", "tmpfs", "-o", "size=4g,mode=0755", f"llmgwctl-{self.bridge}", self.files])
        call(["ip", "link", "add", self.bridge, "type", "bridge"])
        call(["ip", "address", "add", f"10.77.{self.number}.1/24", "dev", self.bridge])
        call(["ip", "link", "set", self.bridge, "up"])

    def has_owner(self) -> bool:
        """Tell whether the process that this run belongs to still lives."""
        try:
            pid, started = (self.folder / "owner").read_text().split()
        except (OSError, ValueError):
            return False
        return start_time(int(pid)) == started

    def note_process(self, name: str, pid: int) -> None:
        """Write down a process, so that a later run can end it should this one crash."""
        (self.folder / "processes" / name).write_text(f"{pid} {start_time(pid)}")

    def cgroups(self, host: str) -> list[Path]:
        """Make a host's own control group in each hierarchy that systemd uses, so that hosts' units don't share one."""
        found = []
        for line in Path("/proc/self/mountinfo").read_text().splitlines():
            fields, _, tail = line.partition(" - ")
            kind, _, options = tail.split(" ", 2)
            if kind == "cgroup2" or (kind == "cgroup" and "name=systemd" in options):
                group = Path(fields.split()[4]) / f"{self.bridge}-{host}"
                group.mkdir(exist_ok=True)
                found.append(group)
        return found

    def remove(self) -> None:
        """End every process of the run, then take away its mounts, links, control groups and files."""
        self.kill_all()
        unmount_under(self.folder)
        for link in sorted(Path("/sys/class/net").glob(f"{self.bridge}*")):
            if link.name == self.bridge or link.name.removeprefix(self.bridge)[0] in "ht":
                call(["ip", "link", "delete", link.name], check=False)
        for group in self.groups():
            remove_group(group)
        shutil.rmtree(self.folder)

    def kill_all(self) -> None:
        """End the run's processes: those written down and those in its control groups."""
        for group in self.groups():
            # Groups vanish while their processes end; os.walk, unlike a glob, doesn't mind.
            for folder, _, _ in os.walk(group):
                with suppress(OSError):
                    for pid in Path(folder, "cgroup.procs").read_text().split():
                        kill(int(pid), start_time(int(pid)))
        for note in (self.folder / "processes").glob("*"):
            with suppress(ValueError):  # a crash between making and filling the note
                pid, started = note.read_text().split()
                kill(int(pid), started)

    def groups(self) -> list[Path]:
        """List the control groups of the run's hosts."""
        roots = [
            line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines() if " - cgroup" in line
        ]
        return [group for root in roots for group in Path(root).glob(f"{self.bridge}-*/")]


def remove_group(group: Path) -> None:
    """Remove a control group and those in it, once their processes are really gone."""

    def removed() -> bool:
        for folder, _, _ in os.walk(group, topdown=False):
            with suppress(OSError):
                os.rmdir(folder)
        return not group.exists()

    wait_until(f"the end of control group {group}", removed)
