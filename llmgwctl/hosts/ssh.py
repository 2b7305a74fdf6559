"""Hosts over SSH: one connection each, jump hosts shared, keys and known hosts read once."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko

from llmgwctl.domain.desired import Host, SshSettings
from llmgwctl.hosts import envelope
from llmgwctl.hosts.http_exchange import authority_of, exchange
from llmgwctl.hosts.ssh_config import Hop, Routes
from llmgwctl.hosts.ssh_dial import said
from llmgwctl.hosts.ssh_keys import KeyRing
from llmgwctl.hosts.ssh_link import MAX_HANDSHAKES, Link, open_link
from llmgwctl.hosts.ssh_trust import Trust
from llmgwctl.hosts.transport import (
    OUTPUT_LIMIT_BYTES,
    Completed,
    HttpReply,
    HttpRequest,
    PortClosedError,
    TransportError,
    Trouble,
    host_words,
)

CHUNK_BYTES = 65536
POLL_S = 0.25
LAST_WORDS_S = 2.0
START_TIMEOUT_S = 15.0


class SshConnector:
    """Makes the transports of a command; `base_dir` is the configuration's folder. Close it at the end."""

    def __init__(self, settings: SshSettings, base_dir: Path) -> None:
        self._routes = Routes(settings)
        self._ring = KeyRing()
        self._trust = Trust(settings, base_dir)
        self._turns: dict[tuple[Hop | None, str, int], threading.Semaphore] = {}
        self._jumps: dict[tuple[Hop, ...], Link] = {}
        self._jump_locks: dict[tuple[Hop, ...], threading.Lock] = {}
        self._lock = threading.Lock()

    def connect(self, host: Host) -> SshTransport:
        """Return the host's transport; it connects when it is first used."""
        return SshTransport(host, self)

    def open(self, host: Host) -> Link:
        """Connect to the host now, through its jump hosts."""
        hops = self._routes.to(host)
        return self._open(hops[-1], self._jump(hops[:-1]) if len(hops) > 1 else None)

    def close(self) -> None:
        """Let go of the jump hosts and the agent."""
        with self._lock:
            links = list(self._jumps.values())
            self._jumps.clear()
        # The nearest jump host last: the others are reached through it.
        for link in reversed(links):
            link.close()
        self._ring.close()

    def _open(self, hop: Hop, via: Link | None) -> Link:
        with self._lock:
            server = (via.hop if via else None, hop.address, hop.port)
            turn = self._turns.setdefault(server, threading.Semaphore(MAX_HANDSHAKES))
        return open_link(hop, via, self._ring, self._trust, turn)

    def _jump(self, hops: tuple[Hop, ...]) -> Link:
        with self._lock:
            lock = self._jump_locks.setdefault(hops, threading.Lock())
        with lock:
            link = self._jumps.get(hops)
            if link is None or not link.alive:
                try:
                    link = self._open(hops[-1], self._jump(hops[:-1]) if len(hops) > 1 else None)
                except TransportError as problem:
                    raise TransportError(problem.trouble, f"The jump host can't be used: {problem.message}") from None
                self._jumps[hops] = link
            return link


class SshTransport:
    """One host over SSH. A connection that died between two uses is made anew, once."""

    def __init__(self, host: Host, connector: SshConnector) -> None:
        self._host = host
        self._connector = connector
        self._shell = envelope.SUDO_SHELL if host.sudo else envelope.SHELL
        self._link: Link | None = None
        self._closed = False
        self._lock = threading.Lock()

    def run(self, script: str, *, timeout_s: float) -> Completed:
        """Run the script with the host's /bin/sh and wait for its end."""
        with self._started(envelope.whole(script), timeout_s, end=True) as (link, channel, deadline):
            return self._finish(link, channel, deadline, timeout_s)

    def stream(self, script: str, on_data: Callable[[bytes], None], *, stop: threading.Event) -> int:
        """Hand on the script's output until it ends or `stop` is set."""
        with self._started(envelope.watched(script), START_TIMEOUT_S, end=False) as (link, channel, _):
            while not stop.is_set():
                data = _receive(channel, POLL_S)
                if data == b"":
                    return self._status(link, channel, LAST_WORDS_S)
                if data:
                    on_data(data)
                while channel.recv_stderr_ready():
                    channel.recv_stderr(CHUNK_BYTES)
            # The script's watcher sees the end of its input and ends it.
            with contextlib.suppress(EOFError, OSError, paramiko.SSHException):
                channel.shutdown_write()
            patience = time.monotonic() + LAST_WORDS_S
            while time.monotonic() < patience and _receive(channel, POLL_S) != b"":
                pass
            return 0

    def http(self, address: str, port: int, request: HttpRequest, *, timeout_s: float) -> HttpReply:
        """Send a request to a port as seen from the host, through the connection."""
        deadline = time.monotonic() + timeout_s
        place = authority_of(address, port)
        link = self._reach()
        try:
            channel = self._forward(link, (address, port), deadline)
            if channel is None:
                link.close()
                link = self._reach()
                channel = self._forward(link, (address, port), deadline)
            if channel is None:
                raise _cut(link)
            return exchange(channel, place, request, timeout_s=max(0.05, deadline - time.monotonic()))
        except TimeoutError:
            raise TransportError(
                Trouble.TIMEOUT, f"{link.hop.where}: {place} does not answer within {timeout_s:g} s."
            ) from None
        except (OSError, EOFError, paramiko.SSHException, http.client.HTTPException) as problem:
            raise TransportError(
                Trouble.PROTOCOL, f"{link.hop.where}: {place} gives no HTTP answer: {said(problem)}."
            ) from None

    def close(self) -> None:
        """Let go of the connection; never waits for one that is being made."""
        self._closed = True
        link, self._link = self._link, None
        if link is not None:
            link.close()

    def _reach(self) -> Link:
        with self._lock:
            link = self._link
            if link is None or not link.alive:
                link = self._link = self._connector.open(self._host)
        if self._closed:
            link.close()
            raise _cut(link)
        return link

    @contextlib.contextmanager
    def _started(self, text: bytes, timeout_s: float, *, end: bool) -> Iterator[tuple[Link, paramiko.Channel, float]]:
        """Start the shell and give it the text, and the end of its input if `end`.

        Connects again where the connection turns out to be dead. Only what was never sent is sent again: a script must
        not run twice. Making the connection does not count towards the deadline that is handed on.
        """
        link = self._reach()
        deadline = time.monotonic() + timeout_s
        for last in (False, True):
            if not link.sessions.acquire(timeout=max(0.05, deadline - time.monotonic())):
                raise _late(link, timeout_s)
            try:
                channel = self._session(link, deadline, timeout_s, last=last)
                if channel is not None:
                    with contextlib.closing(channel):
                        _send(link, channel, text, deadline, timeout_s, end=end)
                        yield link, channel, deadline
                    return
            finally:
                link.sessions.release()
            link.close()
            link = self._reach()

    def _session(self, link: Link, deadline: float, timeout_s: float, *, last: bool) -> paramiko.Channel | None:
        """Open a session and ask for the shell; None where the connection is dead and may be made anew."""
        try:
            channel = link.protocol.open_session(timeout=max(0.05, deadline - time.monotonic()))
            # Not exec_command(): that waits for an answer without a deadline, and costs a round trip.
            order = paramiko.Message()
            order.add_byte(paramiko.common.cMSG_CHANNEL_REQUEST)
            order.add_int(channel.remote_chanid)
            order.add_string("exec")
            order.add_boolean(False)
            order.add_string(self._shell)
            link.protocol._send_user_message(order)  # type: ignore[attr-defined]
            return channel
        except (EOFError, OSError, paramiko.SSHException) as problem:
            if not link.alive:
                if last:
                    raise _cut(link) from None
                return None
            if time.monotonic() >= deadline:
                raise _late(link, timeout_s) from None
            raise TransportError(Trouble.CLOSED, f"{link.hop.where} opens no session: {said(problem)}.") from None

    def _finish(self, link: Link, channel: paramiko.Channel, deadline: float, timeout_s: float) -> Completed:
        out, err, size = [], [], 0
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise _late(link, timeout_s)
            data = _receive(channel, min(POLL_S, left))
            # Both streams share one window: error output that nobody reads would stop the other.
            while channel.recv_stderr_ready():
                err.append(channel.recv_stderr(CHUNK_BYTES))
                size += len(err[-1])
            if data == b"":
                break
            if data:
                out.append(data)
                size += len(data)
            if size > OUTPUT_LIMIT_BYTES:
                raise TransportError(
                    Trouble.PROTOCOL, f"{link.hop.where}: a script printed more than {OUTPUT_LIMIT_BYTES >> 20} MiB."
                )
        status = self._status(link, channel, max(0.05, deadline - time.monotonic()))
        while channel.recv_stderr_ready():
            err.append(channel.recv_stderr(CHUNK_BYTES))
        errors = b"".join(err)
        if self._host.sudo and status == 1 and errors.startswith(b"sudo:"):
            words = host_words(errors.strip().split(b"\n")[0]).rstrip(".")
            raise TransportError(
                Trouble.AUTH, f"{link.hop.where}: {words}. `sudo: true` needs NOPASSWD for {link.hop.user} in sudoers."
            )
        return Completed(status, b"".join(out), errors)

    def _status(self, link: Link, channel: paramiko.Channel, timeout_s: float) -> int:
        if not channel.status_event.wait(timeout_s):
            raise _late(link, timeout_s)
        if channel.exit_status >= 0:
            return channel.exit_status
        if not link.alive:
            raise _cut(link)
        raise TransportError(
            Trouble.CLOSED,
            f"{link.hop.where} ended the script without an exit status: it was killed there, "
            "or the account may run no commands.",
        )

    def _forward(self, link: Link, place: tuple[str, int], deadline: float) -> paramiko.Channel | None:
        """Open a way to a port of the host; None where the connection is dead."""
        left = max(0.05, deadline - time.monotonic())
        try:
            return link.protocol.open_channel("direct-tcpip", place, ("127.0.0.1", 0), timeout=left)
        except (EOFError, OSError, paramiko.SSHException) as refusal:
            if not link.alive:
                return None
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            if isinstance(refusal, paramiko.ChannelException) and refusal.code == 1:
                raise TransportError(
                    Trouble.PROTOCOL,
                    f"{link.hop.where} allows no forwarding: set `AllowTcpForwarding yes` in its sshd_config.",
                ) from None
            # paramiko keeps one reason per connection: of two refusals at once, one comes without.
            raise PortClosedError(f"{link.hop.where}: nothing listens on {authority_of(*place)}.") from None


def _send(link: Link, channel: paramiko.Channel, text: bytes, deadline: float, timeout_s: float, *, end: bool) -> None:
    try:
        channel.settimeout(max(0.05, deadline - time.monotonic()))
        channel.sendall(text)
        if end:
            channel.shutdown_write()
    except TimeoutError:
        raise _late(link, timeout_s) from None
    except (EOFError, OSError, paramiko.SSHException):
        # A login shell that starts nothing has ended by now; what it said, and how it ended, is still to be read.
        if not link.alive:
            raise _cut(link) from None


def _receive(channel: paramiko.Channel, timeout_s: float) -> bytes | None:
    """Return some output, nothing at its end, None when none came in time."""
    channel.settimeout(timeout_s)
    try:
        return channel.recv(CHUNK_BYTES)
    except TimeoutError:
        return None


def _late(link: Link, timeout_s: float) -> TransportError:
    return TransportError(
        Trouble.COMMAND_TIMEOUT, f"{link.hop.where}: the script has not ended within {timeout_s:g} s; it may still run."
    )


def _cut(link: Link) -> TransportError:
    told = f" (the server: {link.protocol.farewell})" if link.protocol.farewell else ""
    return TransportError(Trouble.CLOSED, f"{link.hop.where}: the connection broke while it was in use{told}.")
