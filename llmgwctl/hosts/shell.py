"""A host reached by running sh on it: over SSH, or on this machine."""

from __future__ import annotations

import contextlib
import json
import secrets
import threading
import time
from collections.abc import Callable
from importlib import resources

from llmgwctl.domain.desired import Host
from llmgwctl.domain.inventory import Node
from llmgwctl.domain.launch import LaunchSpec, unfit_for_root
from llmgwctl.errors import LlmgwctlError
from llmgwctl.hosts import scripts
from llmgwctl.hosts.answers import after_mark, answer_of, marked, new_mark, said_instead
from llmgwctl.hosts.probe import ProbeRequest, build_script, read_answer
from llmgwctl.hosts.session import (
    LOG_TAIL_BYTES,
    GatherRequest,
    Life,
    MemberStatus,
    StartError,
    StartOrder,
    StartRefusedError,
    StopError,
)
from llmgwctl.hosts.transport import Completed, HttpReply, HttpRequest, PortClosedError, Transport, TransportError

GPU_WAIT_S = 60
_SUPERVISORS = ("systemd", "systemd-user", "setsid")


class ShellSession:
    """Does everything by scripts over a transport; one connection for the whole command."""

    def __init__(self, host: Host, connect: Callable[[Host], Transport], *, command_timeout_s: float) -> None:
        self.host = host
        self._connect = connect
        self._timeout_s = command_timeout_s
        self._transport: Transport | None = None
        self._lock = threading.Lock()
        self._supervisor = ""

    def gather(self, request: GatherRequest) -> Node:
        """Look at the host: one round trip."""
        token = secrets.token_hex(8)
        probe = ProbeRequest(replica_dir=request.replica_dir, paths=request.paths, commands=request.commands)
        script = build_script(probe, token)
        transport = self._reach()
        sent_at = time.time()
        answer = transport.run(script, timeout_s=self._timeout_s)
        node = read_answer(
            answer.stdout,
            token,
            probe,
            self.host,
            errors=answer.stderr,
            exit_status=answer.exit_status,
            sent_at=sent_at,
            received_at=time.time(),
        )
        self._supervisor = node.supervisor
        return node

    def start(self, order: StartOrder) -> str:
        """Write the member's folder and start its process; returns the host's boot id."""
        unfit = unfit_for_root(order.launch.root)
        if unfit:
            raise StartRefusedError(
                f"{order.replica} can't be started on {self.host.name}: the replica directory "
                f"{order.launch.root!r} {unfit}",
                "Set another settings.replica_dir.",
            )
        assets = {name: _asset(name) for name in order.launch.files}
        tool_timeout_s = max(1, min(30, int(self._timeout_s / 2)))
        script = scripts.start_script(order, self._supervised_by(), assets, tool_timeout_s)
        done = self._run(script, self._timeout_s)
        if done.exit_status != 0:
            kind = StartRefusedError if done.exit_status in scripts.REFUSALS else StartError
            raise kind(f"{order.replica} can't be started on {self.host.name}: {_said(done)}")
        return done.stdout.decode("ascii", "replace").strip()

    def status(self, launch: LaunchSpec) -> MemberStatus:
        """Say whether the member's process lives."""
        done = self._run(scripts.status_script(launch), self._timeout_s)
        if done.exit_status != 0:
            raise LlmgwctlError(f"{self.host.name}: {_said(done)}")
        return read_status(done.stdout.decode("utf-8", "replace"))

    def serving(self, launch: LaunchSpec) -> str:
        """Return an empty text once the engine serves, else what it is still doing."""
        readiness = launch.readiness
        if not readiness.health_path:
            return ""
        try:
            health = self._get(launch, readiness.health_path)
            if health.status != 200:
                return f"{readiness.health_path} answers {health.status}"
            if readiness.models_path:
                return _lacks_model(self._get(launch, readiness.models_path).body, readiness.served_name)
        except PortClosedError:
            return "its port is closed"
        except TransportError as problem:
            return problem.message
        return ""

    def mark_ready(self, launch: LaunchSpec) -> None:
        """Record on the host that the member was seen ready."""
        done = self._run(scripts.mark_ready_script(launch), self._timeout_s)
        if done.exit_status != 0:
            raise LlmgwctlError(f"{self.host.name}: {_said(done)}")

    def stop(self, launch: LaunchSpec, lineage: str) -> None:
        """End the member and remove its folder, if it is of our state."""
        patience = launch.stop.grace_s + launch.stop.second_grace_s + GPU_WAIT_S * 2 + self._timeout_s
        done = self._run(scripts.stop_script(launch, lineage, GPU_WAIT_S), patience)
        if done.exit_status != 0:
            raise StopError(f"{launch.folder} on {self.host.name} is not stopped: {_said(done)}")

    def log_tail(self, root: str, folder: str, lines: int, most_bytes: int = LOG_TAIL_BYTES) -> str:
        """Return the last lines of the engine's log, and no more bytes than that."""
        script = scripts.log_script(root, folder, lines, follow=False, most_bytes=most_bytes)
        done = self._run(script, self._timeout_s)
        return done.stdout.decode("utf-8", "replace") if done.exit_status == 0 else ""

    def follow_log(
        self, root: str, folder: str, lines: int, on_data: Callable[[bytes], None], stop: threading.Event
    ) -> None:
        """Hand on the log as it grows, until `stop` is set."""
        mark = new_mark()
        script = marked(scripts.log_script(root, folder, lines, follow=True), mark)
        self._reach().stream(script, after_mark(on_data, mark), stop=stop)

    def close(self) -> None:
        """Let go of the connection."""
        if self._transport is not None:
            with contextlib.suppress(LlmgwctlError, OSError):
                self._transport.close()
            self._transport = None

    def _reach(self) -> Transport:
        with self._lock:
            if self._transport is None:
                self._transport = self._connect(self.host)
            return self._transport

    def _run(self, script: str, timeout_s: float) -> Completed:
        """Run a script of ours; its answer is free of what the login shell prints."""
        mark = new_mark()
        done = self._reach().run(marked(script, mark), timeout_s=timeout_s)
        answer = answer_of(done, mark)
        if answer is None:
            raise LlmgwctlError(f"{self.host.name}: no script can be run there: {said_instead(done)}")
        return answer

    def _supervised_by(self) -> str:
        """Return the host's supervisor; asked for where this command gathered from a snapshot."""
        if self._supervisor not in _SUPERVISORS:
            self.gather(GatherRequest())
        return self._supervisor

    def _get(self, launch: LaunchSpec, path: str) -> HttpReply:
        request = HttpRequest(method="GET", path=path)
        return self._reach().http(launch.address, launch.port, request, timeout_s=launch.readiness.timeout_s)


def read_status(text: str) -> MemberStatus:
    """Read what the status script printed."""
    if "=" in text:
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        return _systemd_status(values)
    life, _, rest = text.strip().partition(" ")
    restarts, _, status = rest.partition(" ")
    return MemberStatus(
        Life(life) if life in {v.value for v in Life} else Life.ABSENT,
        _ended(status.strip()),
        int(restarts) if restarts.isdigit() else 0,
    )


def _systemd_status(values: dict[str, str]) -> MemberStatus:
    restarts = int(values.get("NRestarts", "0") or 0)
    code, status = values.get("ExecMainCode", ""), values.get("ExecMainStatus", "")
    # ExecMainCode: 1 exited, 2 killed, 3 dumped (CLD_* of waitid(2)).
    detail = (
        f"killed by signal {status}" if code in ("2", "3") else f"exited with status {status}" if code == "1" else ""
    )
    if values.get("Result") == "oom-kill":
        detail = "killed because memory ran out"
    active, sub = values.get("ActiveState", ""), values.get("SubState", "")
    if active in ("active", "activating", "reloading") and sub != "auto-restart":
        return MemberStatus(Life.ALIVE, detail if restarts else "", restarts)
    if active == "inactive" and values.get("Job", "0") not in ("", "0"):
        return MemberStatus(Life.ALIVE, "", restarts)  # it waits for what comes before it, as for the network
    return MemberStatus(Life.ENDED, detail or f"unit is {active or 'absent'}", restarts)


def _ended(status: str) -> str:
    if not status.isdigit():
        return ""
    number = int(status)
    return f"killed by signal {number - 128}" if number > 128 else f"exited with status {number}"


def _lacks_model(body: bytes, name: str) -> str:
    """Return what is wrong with a model list; llama-server is healthy without any model, so it has to be asked."""
    try:
        listed = json.loads(body)["data"]
        names = {str(m["id"]) for m in listed} | {str(a) for m in listed for a in m.get("aliases") or ()}
    except (ValueError, KeyError, TypeError):
        return "its model list can't be read"
    return "" if name in names else f"it serves {', '.join(sorted(names)) or 'nothing'}, not {name}"


def _asset(name: str) -> str:
    return resources.files("llmgwctl.hosts.payload").joinpath(name).read_text(encoding="utf-8")


def _said(done: Completed) -> str:
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.exit_status} without a word"
