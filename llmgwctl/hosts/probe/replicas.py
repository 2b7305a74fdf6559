"""Reads what a host says about our replicas: their folders, their supervisors, their processes, their health."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from llmgwctl.domain.inventory import ObservedReplica, Phase
from llmgwctl.hosts.probe.frames import Section

_ID = re.compile(r".+/[0-9]{1,9}", re.DOTALL | re.ASCII)
_MOST_MEMBERS, _LAST_PORT = 10_000, 65_535
_UNIT_NAME = "llmgwctl-v1@{}.service"
_UNIT = re.compile(r"llmgwctl-v1@([A-Za-z0-9._-]+)\.service")
_FILES = frozenset({"replica.json", "supervisor", "health", "session", "restarts", "exit", "pid"})


@dataclass(slots=True)
class Folder:
    """All that is known of one folder; `leader` is 0 where its setsid supervisor lives, 1 gone, 2 another process."""

    name: str
    files: dict[str, list[str]] = field(default_factory=dict)
    marks: set[str] = field(default_factory=set)
    unit: Mapping[str, str] | None = None
    pids: set[int] = field(default_factory=set)
    leader: int | None = None
    child: bool = False
    http: str | None = None

    def line(self, name: str) -> str:
        """Return a file's first line."""
        lines = self.files.get(name)
        return lines[0].strip() if lines else ""


@dataclass(frozen=True, slots=True)
class Replicas:
    """Our replicas on a host, the processes of each folder, and what is odd."""

    root: str
    found: tuple[ObservedReplica, ...] = ()
    pids: Mapping[int, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    hidden: bool = False


def read_replicas(sections: Mapping[str, Section], ports: Iterable[int]) -> Replicas:
    """Read the folders; `ports` are those that are listened on, for hosts where nothing can ask over HTTP."""
    section = sections["replicas"]
    folders: dict[str, Folder] = {}
    warnings: list[str] = []
    root = ""
    hidden = False
    sessions: dict[int, set[int]] = {}
    for line in section.lines():
        if line.startswith("./"):
            path, _, text = line[2:].partition(":")
            name, _, file = path.partition("/")
            if file in _FILES:
                _folder(folders, name).files.setdefault(file, []).append(text)
            continue
        word, _, rest = line.partition(" ")
        first, _, second = rest.partition(" ")
        if word == "root":
            root = rest
        elif word == "mark":
            _folder(folders, first).marks.add(second)
        elif word == "leader":
            _folder(folders, first).leader = int(second)
        elif word == "child":
            _folder(folders, first).child = True
        elif word == "http":
            _folder(folders, first).http = second
        elif word == "session" and first.isdigit() and second.isdigit():
            sessions.setdefault(int(first), set()).add(int(second))
        elif word == "closed":
            hidden = True
            warnings.append(f"{rest} can't be read: it belongs to another user.")
        elif word == "denied":
            hidden = True
            warnings.append(f"The replica folder {root}/{first} can't be read: it belongs to another user.")
        elif word == "partial":
            warnings.append(f"The folder {root}/{first} has no replica.json: a start or a stop was broken off.")
        elif word == "odd":
            warnings.append(f"{root} holds a folder that isn't a replica's.")
    for prefix in ("units", "user-units"):
        _read_units(sections, prefix, folders)
    for folder in folders.values():
        sid = folder.line("session").split(" ")[0]
        if sid.isdigit() and folder.leader != 2:
            folder.pids |= sessions.get(int(sid), set())
    found, pids = [], {}
    listening = frozenset(ports)
    for folder in sorted(folders.values(), key=lambda f: f.name):
        replica = _replica(folder, listening)
        if replica is None:
            hidden = True
            warnings.append(f"{root}/{folder.name}/replica.json can't be read.")
            continue
        if folder.unit is not None and folder.unit.get("UnitFileState") == "disabled":
            warnings.append(
                f"{replica.id}: its unit is disabled, so that it would not return after a reboot "
                f"(to mend it: --replace {replica.id}, or systemctl enable {_UNIT_NAME.format(folder.name)})."
            )
        found.append(replica)
        pids.update(dict.fromkeys(folder.pids, replica.id))
    return Replicas(root, tuple(sorted(found, key=lambda r: (r.id, r.member))), pids, tuple(warnings), hidden)


def _folder(folders: dict[str, Folder], name: str) -> Folder:
    folder = folders.get(name)
    if folder is None:
        folder = folders[name] = Folder(name)
    return folder


def _read_units(sections: Mapping[str, Section], prefix: str, folders: dict[str, Folder]) -> None:
    section = sections.get(prefix)
    if section is None:
        return
    by_group: dict[str, str] = {}
    for block in section.text.split("\n\n"):
        cells = dict(line.split("=", 1) for line in block.splitlines() if "=" in line)
        unit = _UNIT.fullmatch(cells.get("Id", ""))
        if unit and unit[1] in folders:
            folders[unit[1]].unit = cells
            if cells.get("ControlGroup"):
                by_group[cells["ControlGroup"]] = unit[1]
    pids = sections.get(f"{prefix}-pids")
    for line in pids.lines() if pids else []:
        path, _, pid = line.rpartition(":")
        for group, name in by_group.items():
            if f"{group}/" in path and pid.isdigit():
                folders[name].pids.add(int(pid))


def _replica(folder: Folder, listening: frozenset[int]) -> ObservedReplica | None:
    """Return what a folder tells; None where it is not what we write: whoever owns a host may write anything there."""
    try:
        data = json.loads("\n".join(folder.files.get("replica.json", ())))
        identity, member, port = data["id"], data.get("member", 0), data.get("port") or 0
        if not _ID.fullmatch(identity) or type(member) is not int or type(port) is not int:
            return None
        if not (0 <= member < _MOST_MEMBERS and 0 <= port <= _LAST_PORT):
            return None
        phase, detail = _phase(folder, listening, port)
        return ObservedReplica(
            id=identity,
            member=member,
            model=str(data.get("model") or identity.rpartition("/")[0]),
            profile=str(data.get("profile", "")),
            launch_digest=str(data.get("launch_digest", "")),
            gpus=tuple(str(g) for g in data.get("gpus") or ()),
            port=port,
            phase=phase,
            lineage=str(data.get("lineage", "")),
            folder=folder.name,
            engine=str(data.get("engine", "")),
            restarts=_restarts(folder),
            pid=_pid(folder),
            detail=detail,
            vanished=phase is Phase.FAILED and not folder.pids and not _gave_up(folder),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _gave_up(folder: Folder) -> bool:
    return folder.unit.get("ActiveState") == "failed" if folder.unit is not None else "failed" in folder.marks


def _restarts(folder: Folder) -> int:
    text = folder.unit.get("NRestarts", "") if folder.unit is not None else folder.line("restarts")
    return int(text) if text.isdigit() else 0


def _pid(folder: Folder) -> int | None:
    text = folder.unit.get("MainPID", "") if folder.unit is not None else folder.line("pid") if folder.child else ""
    return int(text) if text.isdigit() and text != "0" else None


def _phase(folder: Folder, listening: frozenset[int], port: int) -> tuple[Phase, str]:
    if "stopping" in folder.marks:
        return Phase.STOPPING, ""
    if folder.line("supervisor").startswith("systemd"):
        life, detail = _systemd_life(folder)
    else:
        life, detail = _setsid_life(folder)
    if life is not None:
        return life, detail
    if _answers(folder, listening, port):
        return Phase.READY, ""
    if "ready" in folder.marks:
        said = f"answers {folder.http}" if folder.http not in (None, "none", "000", "") else "does not answer"
        return Phase.UNHEALTHY, f"its health check {said}"
    return Phase.STARTING, ""


def _answers(folder: Folder, listening: frozenset[int], port: int) -> bool:
    words = folder.line("health").split(" ")
    if len(words) == 3 and words[2] == "-":
        return True  # a member without an HTTP server is up while it runs
    if folder.http in (None, "none"):
        return port in listening
    return folder.http == "200"


def _systemd_life(folder: Folder) -> tuple[Phase | None, str]:
    """Return (phase, detail); no phase where its process runs."""
    cells = folder.unit
    if cells is None:
        return Phase.UNKNOWN, "systemd did not tell its state"
    active, sub = cells.get("ActiveState", ""), cells.get("SubState", "")
    ended = _ended(cells)
    if active == "deactivating":
        return Phase.STOPPING, ended
    if sub == "auto-restart" or (active == "activating" and sub != "start"):
        return Phase.STARTING, f"{ended or 'ended'}; it is restarted"
    if active in ("active", "reloading", "activating"):
        return None, ""
    if active == "inactive" and cells.get("Job", "0") not in ("", "0"):
        return Phase.STARTING, ""  # it waits in systemd's queue, as for the network after a boot
    if cells.get("LoadState") == "not-found":
        return Phase.FAILED, "its systemd unit is gone"
    return Phase.FAILED, ended or f"its systemd unit is {active or 'absent'}"


def _ended(cells: Mapping[str, str]) -> str:
    """Say how a unit's main process ended; ExecMainCode is 1 for exited, 2 killed, 3 dumped (waitid(2))."""
    if cells.get("Result") == "oom-kill":
        return "killed because memory ran out"
    if cells.get("Result") == "start-limit-hit" and cells.get("ExecMainCode") == "0":
        return "restarted too often"
    code, status = cells.get("ExecMainCode", ""), cells.get("ExecMainStatus", "")
    if code in ("2", "3"):
        return f"killed by signal {status}"
    return f"exited with status {status}" if code == "1" else ""


def _setsid_life(folder: Folder) -> tuple[Phase | None, str]:
    status = folder.line("exit")
    ended = ""
    if status.isdigit():
        number = int(status)
        ended = f"killed by signal {number - 128}" if number > 128 else f"exited with status {number}"
    if "failed" in folder.marks:
        return Phase.FAILED, ended or "its supervisor gave up"
    if folder.leader == 0:
        return (None, "") if folder.child else (Phase.STARTING, f"{ended or 'not started yet'}; it is restarted")
    if not folder.line("session"):
        return Phase.FAILED, "it was never started"
    if folder.leader == 1 and folder.pids:
        return Phase.FAILED, "its supervisor is gone, and processes of it are left"
    return (
        Phase.FAILED,
        f"its processes are gone ({ended})" if ended else "its processes are gone (a reboot, or killed)",
    )
