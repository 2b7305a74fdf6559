"""Reads what a host says about itself: who we are there, its processors, its memory, its disks, its clock."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgwctl.domain.inventory import Disk
from llmgwctl.hosts.probe.accelerators import PciDevice, pci_number
from llmgwctl.hosts.probe.frames import Section
from llmgwctl.hosts.probe.processes import read_listening_ports
from llmgwctl.hosts.probe.storage import read_df
from llmgwctl.hosts.probe.system import cpu_count, limit_bytes, meminfo_of, quota_millicores

_KIB_IN_MIB = 1024
_BYTES_IN_MIB = 1024 * 1024


@dataclass(slots=True)
class Base:
    """The section `base`."""

    cells: dict[str, str] = field(default_factory=dict)
    tools: dict[str, str] = field(default_factory=dict)
    engines: dict[str, str] = field(default_factory=dict)
    accelerators: list[str] = field(default_factory=list)
    devices: list[str] = field(default_factory=list)

    @property
    def supervisor(self) -> str:
        """What keeps engines running: systemd as root, the user's own where it outlives the login, else setsid."""
        if "systemd" not in self.cells:
            return "setsid"
        if self.cells.get("uid") == "0":
            return "systemd"
        return "systemd-user" if "linger" in self.cells and "user_manager" in self.cells else "setsid"

    @property
    def supervisor_warning(self) -> str:
        """Say why systemd, which runs there, can't keep this user's engines; empty where it does."""
        if "systemd" not in self.cells or self.supervisor != "setsid":
            return ""
        user, uid = self.cells.get("user") or "USER", self.cells.get("uid", "UID")
        if "linger" not in self.cells:
            why, remedy = f"{user} may not linger", f"loginctl enable-linger {user}"
        else:
            why, remedy = f"{user}'s own systemd does not run", f"systemctl start user@{uid}.service"
        return f"Engines started there don't return after a reboot, because {why}: `{remedy}` as root changes that."


def read_base(section: Section) -> Base:
    """Read the section `base`."""
    base = Base()
    for line in section.lines():
        word, _, rest = line.partition(" ")
        if word == "tool":
            name, _, path = rest.partition(" ")
            if path:
                base.tools[name] = path
        elif word == "engine":
            name, _, path = rest.partition(" ")
            base.engines[name] = path
        elif word == "accelerator":
            base.accelerators.append(rest)
        elif word == "device":
            base.devices.append(rest)
        else:
            name, _, text = line.partition("=")
            base.cells[name] = text
    return base


@dataclass(frozen=True, slots=True)
class Files:
    """The section `files`: one-line files by path, /etc/os-release and /proc/meminfo by name."""

    single: Mapping[str, str]
    os_release: Mapping[str, str]
    meminfo: Mapping[str, str]


def read_files(section: Section) -> Files:
    """Read `PATH:LINE` lines."""
    single: dict[str, str] = {}
    release: dict[str, str] = {}
    memory: dict[str, str] = {}
    for line in section.text.splitlines():
        path, _, rest = line.partition(":")
        if path == "/proc/meminfo":
            name, _, amount = rest.partition(":")
            memory[name] = amount
        elif path == "/etc/os-release":
            name, _, text = rest.partition("=")
            release[name] = text.strip("\"'")
        elif path:
            single[path] = rest
    return Files(single, release, memory)


def os_name(files: Files) -> str:
    """Name the system for people."""
    release = files.os_release
    name = release.get("PRETTY_NAME") or f"{release.get('NAME', '')} {release.get('VERSION_ID', '')}".strip()
    return name or f"Linux {files.single.get('/proc/sys/kernel/osrelease', '')}".strip()


def millicores(files: Files) -> int | None:
    """Return the least of: processors that are on-line, the control groups' sets, and their quotas."""
    limits = []
    quota: dict[str, str] = {}
    for path, text in files.single.items():
        name = path.rpartition("/")[2]
        if name in ("online", "cpuset.cpus.effective", "cpuset.cpus") and (count := cpu_count(text)):
            limits.append(count * 1000)
        elif name == "cpu.max" and (limit := quota_millicores(text)):
            limits.append(limit)
        elif name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"):
            quota[path] = text
    for path, text in quota.items():
        if path.endswith("cpu.cfs_quota_us"):
            period = quota.get(path.replace("quota_us", "period_us"), "")
            if limit := quota_millicores(f"{text} {period}"):
                limits.append(limit)
    return min(limits, default=None)


def memory(files: Files) -> tuple[int | None, int | None, str]:
    """Return (usable MiB, available MiB, a warning): the least of the host's memory and every control group's limit."""
    host = meminfo_of(files.meminfo)
    warning = ""
    total = None if host.ordinary_kb is None else host.ordinary_kb // _KIB_IN_MIB
    available = None if host.available_kb is None else host.available_kb // _KIB_IN_MIB
    if files.meminfo and (total is None or (available is not None and available < 0)):
        total = available = None
        warning = "The host reports 0 total memory (a container's lxcfs may be wrong); its memory is not known."
    if total and host.hugetlb_kb * 2 > (host.total_kb or 0):
        warning = f"{host.hugetlb_kb // _KIB_IN_MIB} MiB are reserved as huge pages, which engines can't use."
    for path, text in files.single.items():
        folder, _, name = path.rpartition("/")
        if name not in ("memory.max", "memory.limit_in_bytes"):
            continue
        limit = limit_bytes(text)
        if limit is None:
            continue
        limit_mib = limit // _BYTES_IN_MIB
        used = files.single.get(
            f"{folder}/{'memory.current' if name == 'memory.max' else 'memory.usage_in_bytes'}", "0"
        )
        left = max(0, limit - (int(used) if used.isdigit() else 0)) // _BYTES_IN_MIB
        total = limit_mib if total is None else min(total, limit_mib)
        available = left if available is None else min(available, left)
    return total, available, warning


def ephemeral_ports(files: Files) -> tuple[int, int]:
    """Return the kernel's own range of ports; Linux's default where it isn't told."""
    words = files.single.get("/proc/sys/net/ipv4/ip_local_port_range", "").split()
    return (int(words[0]), int(words[1])) if len(words) == 2 and all(map(str.isdigit, words)) else (32768, 60999)


def ports(section: Section | None) -> tuple[int, ...]:
    """Return the TCP ports that are listened on."""
    return read_listening_ports(section.text) if section else ()


def disks(section: Section | None, paths: tuple[str, ...]) -> tuple[tuple[Disk, ...], tuple[str, ...]]:
    """Return the disk of each path, and a warning for each that did not answer."""
    if section is None:
        return (), ()
    hanging = {int(w[3]) for w in map(str.split, section.lines()) if len(w) == 4 and w[0] == "row" and w[2] == "hangs"}
    by_place: dict[int, str] = {}
    if section.status == 124:
        for line in section.lines():
            _, place, rest = (*line.split(" ", 2), "", "")[:3]
            if place.isdigit():
                by_place[int(place)] = rest
    else:
        rows = [line for line in section.lines() if not line.startswith("Filesystem")]
        by_place = dict(enumerate(rows))
    found = []
    for number, path in enumerate(paths):
        row = read_df(by_place.get(number, ""))
        if row:
            found.append(Disk(path, row[0].size_kib // _KIB_IN_MIB, row[0].available_kib // _KIB_IN_MIB))
    return tuple(found), tuple(f"The disk of {paths[i]} does not answer." for i in sorted(hanging) if i < len(paths))


def pci_devices(section: Section | None) -> tuple[PciDevice, ...]:
    """Return the graphics, accelerator and bridge devices on the bus."""
    cells: dict[str, dict[str, str]] = {}
    for line in section.lines() if section else []:
        # The address itself has colons: /sys/bus/pci/devices/0000:17:00.0/vendor:0x10de
        path, _, text = line.rpartition(":")
        folder, _, name = path.rpartition("/")
        cells.setdefault(folder.rpartition("/")[2], {})[name] = text.strip()
    return tuple(
        PciDevice(
            address,
            c.get("vendor", "")[2:],
            c.get("device", "")[2:],
            c.get("class", "")[2:6],
            pci_number(c.get("numa_node")),
        )
        for address, c in sorted(cells.items())
    )


def clock_skew(first: str, last: str, sent_at: float | None, received_at: float | None) -> tuple[float | None, float]:
    """Return (seconds that the host's clock is ahead, seconds that are certain).

    The host's clock was read between sending and receiving, to whole seconds: that bounds the difference on both sides.
    """
    if not first.isdigit() or sent_at is None or received_at is None:
        return None, 0.0
    final = int(last) if last.isdigit() else int(first)
    most, least = int(first) + 1 - sent_at, final - received_at
    if least > most:  # the clock was set while we asked
        least, most = most, least
    certain = 0.0 if least <= 0 <= most else min(abs(least), abs(most))
    return round((least + most) / 2, 1), certain
