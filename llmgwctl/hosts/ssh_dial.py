"""What carries an SSH connection to a host's port: a socket, a proxy command, or a channel of a jump host."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
import time
from typing import Protocol

import paramiko

from llmgwctl.hosts.http_exchange import authority_of
from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.transport import TransportError, Trouble, host_words

DEAD_PEER_MS = 60_000
PROXY_END_S = 0.5
PROXY_WORDS_BYTES = 4096
_CANNOT_RUN = (126, 127)
"""What a shell exits with where a command can't be run or isn't there."""


class DroppedError(Exception):
    """The server closed the connection before the login: it may have too many at once.

    Another try is useless where it is `for_good`.
    """

    for_good = False


class ProxyEndedError(DroppedError):
    """The proxy command failed before the server said a word."""

    def __init__(self, status: int, words: str) -> None:
        how = f"ended with exit status {status}" if status >= 0 else f"was killed by signal {-status}"
        super().__init__(f"{how}: {words}" if words else f"{how} without a word")
        self.for_good = status in _CANNOT_RUN


class Jump(Protocol):
    """A connection that is logged in at the jump host."""

    hop: Hop

    @property
    def protocol(self) -> paramiko.Transport:
        """Return what carries its channels."""
        ...


class Wire:
    """What carries a connection: a socket, a channel of a jump host, or a proxy command."""

    def __init__(self, carrier: socket.socket | paramiko.Channel, proxy: _Proxy | None = None) -> None:
        self.carrier = carrier
        self._proxy = proxy

    def drop(self, words: str) -> DroppedError:
        """Return why the connection ended before the server said a word."""
        status = self._proxy.status() if self._proxy else None
        return ProxyEndedError(status, self.proxy_words()) if status else DroppedError(words)

    def proxy_words(self) -> str:
        """Return the last line of the proxy command's error output."""
        return self._proxy.words() if self._proxy else ""

    def shut(self) -> None:
        """Close it so that a thread that reads from it wakes up at once."""
        if isinstance(self.carrier, socket.socket):
            with contextlib.suppress(OSError):
                self.carrier.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.carrier.close()
        if self._proxy is not None:
            self._proxy.kill()


class _Proxy:
    """A proxy command; what it says is read all the time, or it would wait for a reader, and its end is kept."""

    def __init__(self, command: str, carrier: socket.socket) -> None:
        self._process = subprocess.Popen(
            ["/bin/sh", "-c", f"exec {command}"],
            stdin=carrier.fileno(),
            stdout=carrier.fileno(),
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._last = b""
        self._reader = threading.Thread(target=self._read, name="proxy", daemon=True)
        self._reader.start()

    def status(self) -> int | None:
        """Return its exit status, negative where a signal killed it; None where it still runs."""
        try:
            return self._process.wait(PROXY_END_S)
        except subprocess.TimeoutExpired:
            return None

    def words(self) -> str:
        if self._process.poll() is not None:
            self._reader.join(PROXY_END_S)  # what it started may hold the pipe open
        lines = [line for line in self._last.splitlines() if line.strip()]
        return host_words(lines[-1]).rstrip(".") if lines else ""

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _read(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        with pipe:
            while data := os.read(pipe.fileno(), PROXY_WORDS_BYTES):
                self._last = (self._last + data)[-PROXY_WORDS_BYTES:]


def dial(hop: Hop, via: Jump | None, deadline: float) -> Wire:
    """Reach the hop's port: directly, by its proxy command, or through the jump host.

    Raises DroppedError where another try may succeed, else TransportError.
    """
    if via is not None:
        return _dial_through(hop, via, deadline)
    if hop.proxy_command:
        ours, theirs = socket.socketpair()
        with theirs:
            return Wire(ours, _Proxy(hop.proxy_command, theirs))
    return Wire(_dial_directly(hop, deadline))


def _dial_directly(hop: Hop, deadline: float) -> socket.socket:
    try:
        found = socket.getaddrinfo(hop.address, hop.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as problem:
        raise TransportError(
            Trouble.DNS, f"{hop.where}: the name {hop.address!r} is not known to DNS or /etc/hosts ({said(problem)})."
        ) from None
    failure: OSError = TimeoutError()
    for position, (family, kind, number, _, place) in enumerate(found):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        carrier = socket.socket(family, kind, number)
        try:
            # An address that swallows packets must leave time for the others.
            carrier.settimeout(left / (len(found) - position))
            carrier.connect(place)
        except OSError as problem:
            carrier.close()
            failure = problem
            continue
        # Without this each exchange waits 40 ms for a delayed acknowledgement; paramiko never sets it.
        carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        carrier.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            carrier.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_PEER_MS)
        return carrier
    raise _not_connected(hop, failure)


def _dial_through(hop: Hop, via: Jump, deadline: float) -> Wire:
    try:
        left = max(0.1, deadline - time.monotonic())
        return Wire(via.protocol.open_channel("direct-tcpip", (hop.address, hop.port), ("127.0.0.1", 0), timeout=left))
    except paramiko.ChannelException as refusal:
        why = (
            "does not allow forwarding (AllowTcpForwarding, PermitOpen)"
            if refusal.code == 1
            else f"can't connect to {authority_of(hop.address, hop.port)} ({host_words(refusal.text)})"
        )
        raise TransportError(Trouble.JUMP, f"{hop.where}: the jump host {via.hop.where} {why}.") from None
    except (paramiko.SSHException, EOFError, OSError) as problem:
        raise TransportError(
            Trouble.JUMP, f"{hop.where}: the jump host {via.hop.where} opens no way to it ({said(problem)})."
        ) from None


def _not_connected(hop: Hop, problem: OSError) -> TransportError | DroppedError:
    if isinstance(problem, TimeoutError):
        return TransportError(
            Trouble.TIMEOUT,
            f"{hop.where} does not answer within {hop.connect_timeout_s:g} s: down, or behind a firewall.",
        )
    if isinstance(problem, ConnectionRefusedError):
        return TransportError(
            Trouble.REFUSED, f"{hop.where} refuses the connection: no sshd listens on port {hop.port} there."
        )
    if isinstance(problem, ConnectionResetError):
        return DroppedError(said(problem))
    return TransportError(Trouble.UNREACHABLE, f"{hop.where} can't be reached: {said(problem)}.")


def said(problem: BaseException | None) -> str:
    """Return an exception's words, without numbers and without nothing; a part of them may be the host's."""
    if isinstance(problem, OSError) and problem.strerror:
        return problem.strerror
    return host_words(str(problem)).rstrip(".") or (type(problem).__name__ if problem else "it ended without a word")
