"""One SSH connection: the socket, the key exchange, the host's key, the login."""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time

import paramiko

from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.ssh_dial import DroppedError, ProxyEndedError, Wire, dial, said
from llmgwctl.hosts.ssh_keys import KeyRing
from llmgwctl.hosts.ssh_login import authenticate
from llmgwctl.hosts.ssh_protocol import ClientProtocol
from llmgwctl.hosts.ssh_trust import Trust
from llmgwctl.hosts.transport import TransportError, Trouble, host_words

MAX_SESSIONS = 5
"""Sessions at once on a connection: sshd's MaxSessions is 10, and it may still count as many that have just ended."""

MAX_HANDSHAKES = 8
"""Simultaneous logins at one server, or through one jump host; sshd drops some beyond 10 (MaxStartups)."""

KEEPALIVE_S = 20
MAX_TRIES = 4


class Link:
    """A connection that is logged in."""

    def __init__(self, hop: Hop, protocol: ClientProtocol, wire: Wire) -> None:
        self.hop = hop
        self.protocol = protocol
        self.sessions = threading.BoundedSemaphore(MAX_SESSIONS)
        self.handshakes = threading.BoundedSemaphore(MAX_HANDSHAKES)
        self._wire = wire

    @property
    def alive(self) -> bool:
        """Return whether the connection still stands, as far as is known."""
        return self.protocol.is_active()

    def close(self) -> None:
        """End the connection without waiting for the other side."""
        self._wire.shut()
        self.protocol.close()


def open_link(hop: Hop, via: Link | None, ring: KeyRing, trust: Trust, turn: threading.Semaphore) -> Link:
    """Connect and log in within the hop's time-out; a dropped handshake is tried again, a refusal is not.

    `turn` limits how many logins one server sees at once; waiting for it, or for a turn at the jump host, does not
    count.
    """
    with turn:
        deadline = time.monotonic() + hop.connect_timeout_s
        for attempt in range(1, MAX_TRIES + 1):
            # Not within the jump host's turn: dead hosts behind it would hold up the living.
            try:
                wire = dial(hop, via, deadline)
                with via.handshakes if via else contextlib.nullcontext():
                    deadline = max(deadline, time.monotonic() + hop.connect_timeout_s / 2)
                    return _log_in(hop, wire, ring, trust, deadline)
            except DroppedError as drop:
                pause = random.uniform(0.1, 0.4) * 2**attempt
                if drop.for_good or attempt == MAX_TRIES or time.monotonic() + pause >= deadline:
                    raise _given_up(hop, drop, attempt) from None
                time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _given_up(hop: Hop, drop: DroppedError, tries: int) -> TransportError:
    if isinstance(drop, ProxyEndedError):
        tried = f" ({tries} tries)" if tries > 1 else ""
        return TransportError(Trouble.PROXY, f"{hop.where} can't be reached: its ProxyCommand {drop}{tried}.")
    tried = f", {tries} tries" if tries > 1 else ""
    return TransportError(
        Trouble.RESET,
        f"{hop.where} closes the connection before the login ({drop}{tried}). Its sshd may be overloaded "
        "(MaxStartups) or penalise this address, or no SSH server listens there.",
    )


def _log_in(hop: Hop, wire: Wire, ring: KeyRing, trust: Trust, deadline: float) -> Link:
    """Return the connection once it is logged in; the wire is shut where that fails."""
    with contextlib.ExitStack() as undo:
        undo.callback(wire.shut)
        first = _first_words(hop, wire, deadline)
        protocol = ClientProtocol(wire.carrier)
        undo.callback(protocol.close)
        undo.callback(wire.shut)  # before the protocol's end, which else waits for a read
        protocol.banner_timeout = protocol.handshake_timeout = protocol.auth_timeout = hop.connect_timeout_s + 60
        _prefer(protocol, trust.key_types(hop))
        _exchange_keys(hop, protocol, first, deadline)
        trust.check(hop, protocol.get_remote_server_key().asbytes())
        authenticate(hop, protocol, ring, deadline)
        undo.pop_all()
    protocol.set_keepalive(KEEPALIVE_S)
    return Link(hop, protocol, wire)


def _first_words(hop: Hop, wire: Wire, deadline: float) -> bytes:
    """Look at the first bytes without taking them: they tell a silent, a full and a wrong server apart."""
    if not isinstance(wire.carrier, socket.socket):
        return b""
    try:
        wire.carrier.settimeout(max(0.05, deadline - time.monotonic()))
        first = wire.carrier.recv(64, socket.MSG_PEEK)
    except TimeoutError:
        raise _silent(hop, wire) from None
    except OSError as problem:
        raise wire.drop(said(problem)) from None
    if not first:
        raise wire.drop("without a word")
    if first.startswith((b"Exceeded MaxStartups", b"Not allowed at this time")):
        raise DroppedError(host_words(first.split(b"\n")[0]))
    return first


def _silent(hop: Hop, wire: Wire) -> TransportError:
    within = f"within {hop.connect_timeout_s:g} s"
    if hop.proxy_command:
        words = wire.proxy_words()
        return TransportError(
            Trouble.TIMEOUT,
            f"{hop.where}: its ProxyCommand brings no word of an SSH server {within}"
            + (f"; it says: {words}." if words else "."),
        )
    return TransportError(
        Trouble.TIMEOUT,
        f"{hop.where} accepts the connection but says nothing {within}; "
        "its sshd hangs, or something else listens there.",
    )


def _prefer(protocol: paramiko.Transport, key_types: tuple[str, ...]) -> None:
    """Ask for the host's known kinds of key first, for cheap ciphers, and for Python's slow DH last."""
    options = protocol.get_security_options()
    known = {
        name for kind in key_types for name in (("rsa-sha2-512", "rsa-sha2-256") if kind == "ssh-rsa" else (kind,))
    }
    options.key_types = tuple(sorted(options.key_types, key=lambda name: name not in known))
    options.kex = tuple(sorted(options.kex, key=lambda name: name.startswith("diffie-hellman")))
    # AES-GCM needs no separate MAC, whose check in Python is a good part of a connection's cost.
    options.ciphers = tuple(sorted(options.ciphers, key=lambda name: "gcm" not in name))


def _exchange_keys(hop: Hop, protocol: ClientProtocol, first: bytes, deadline: float) -> None:
    done = threading.Event()
    protocol.start_client(event=done)
    if not done.wait(max(0.05, deadline - time.monotonic())):
        raise TransportError(
            Trouble.TIMEOUT, f"{hop.where} does not finish the key exchange within {hop.connect_timeout_s:g} s."
        )
    if protocol.is_active():
        return
    problem = protocol.get_exception()
    words = said(problem)
    if first and not first.startswith(b"SSH-"):
        shown = host_words(first.split(b"\n")[0])
        raise TransportError(Trouble.BANNER, f"{hop.where} is no SSH server: it says {shown!r}.")
    if isinstance(problem, paramiko.ssh_exception.IncompatiblePeer):
        raise TransportError(Trouble.PROTOCOL, f"{hop.where} has no algorithm in common with us: {words}.")
    if "protocol banner" in words:
        raise DroppedError("before its banner")
    if isinstance(problem, EOFError | OSError) or problem is None:
        told = f": {protocol.farewell}" if protocol.farewell else ""
        raise DroppedError(f"during the key exchange{told}")
    raise TransportError(Trouble.PROTOCOL, f"{hop.where}: the key exchange failed: {words}.")
