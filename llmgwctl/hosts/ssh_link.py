"""One SSH connection: the socket, the key exchange, the host's key, the login."""

from __future__ import annotations

import contextlib
import logging
import random
import socket
import threading
import time

import paramiko

from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.ssh_dial import DroppedError, Wire, dial, said
from llmgwctl.hosts.ssh_keys import Identity, KeyRing
from llmgwctl.hosts.ssh_trust import Trust
from llmgwctl.hosts.transport import TransportError, Trouble

MAX_SESSIONS = 5
"""Sessions at once on a connection: sshd's MaxSessions is 10, and it may still count as many that have just ended."""

MAX_HANDSHAKES = 8
"""Simultaneous logins at one server, or through one jump host; sshd drops some beyond 10 (MaxStartups)."""

KEEPALIVE_S = 20
MAX_TRIES = 4

# paramiko logs tracebacks, and without a handler Python prints them; what the user has to know is in our errors.
_LOG = logging.getLogger("paramiko")
_LOG.addHandler(logging.NullHandler())
if _LOG.level == logging.NOTSET:
    _LOG.setLevel(logging.CRITICAL)


class _Protocol(paramiko.Transport):
    # By default an idle connection wakes up ten times a second; deadlines and the end of a connection are our own.
    _active_check_timeout = 10.0


class Link:
    """A connection that is logged in."""

    def __init__(self, hop: Hop, protocol: paramiko.Transport, wire: Wire) -> None:
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
                if attempt == MAX_TRIES or time.monotonic() + pause >= deadline:
                    raise TransportError(
                        Trouble.RESET,
                        f"{hop.where} closes the connection before the login ({drop}, {attempt} tries). Its sshd may "
                        "be overloaded (MaxStartups) or penalise this address, or no SSH server listens there.",
                    ) from None
                time.sleep(pause)
    raise AssertionError("the last try returns or raises")


def _log_in(hop: Hop, wire: Wire, ring: KeyRing, trust: Trust, deadline: float) -> Link:
    """Return the connection once it is logged in; the wire is shut where that fails."""
    with contextlib.ExitStack() as undo:
        undo.callback(wire.shut)
        first = _first_words(hop, wire, deadline)
        protocol = _Protocol(wire.carrier)
        undo.callback(protocol.close)
        undo.callback(wire.shut)  # before the protocol's end, which else waits for a read
        protocol.banner_timeout = protocol.handshake_timeout = protocol.auth_timeout = hop.connect_timeout_s + 60
        _prefer(protocol, trust.key_types(hop))
        _exchange_keys(hop, protocol, first, deadline)
        trust.check(hop, protocol.get_remote_server_key().asbytes())
        _authenticate(hop, protocol, ring, deadline)
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
        raise TransportError(
            Trouble.TIMEOUT,
            f"{hop.where} accepts the connection but says nothing within {hop.connect_timeout_s:g} s; "
            "its sshd hangs, or something else listens there.",
        ) from None
    except OSError as problem:
        raise DroppedError(said(problem)) from None
    if not first:
        raise DroppedError("without a word")
    if first.startswith((b"Exceeded MaxStartups", b"Not allowed at this time")):
        raise DroppedError(first.split(b"\n")[0].decode("ascii", "replace").strip())
    return first


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


def _exchange_keys(hop: Hop, protocol: paramiko.Transport, first: bytes, deadline: float) -> None:
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
        seen = first.decode("ascii", "replace").split("\n")[0].strip()
        shown = "".join(c if c.isprintable() else "?" for c in seen)
        raise TransportError(Trouble.BANNER, f"{hop.where} is no SSH server: it says {shown!r}.")
    if isinstance(problem, paramiko.ssh_exception.IncompatiblePeer):
        raise TransportError(Trouble.PROTOCOL, f"{hop.where} has no algorithm in common with us: {words}.")
    if "protocol banner" in words:
        raise DroppedError("before its banner")
    if isinstance(problem, EOFError | OSError) or problem is None:
        raise DroppedError("during the key exchange")
    raise TransportError(Trouble.PROTOCOL, f"{hop.where}: the key exchange failed: {words}.")


def _authenticate(hop: Hop, protocol: paramiko.Transport, ring: KeyRing, deadline: float) -> None:
    identities, problems = ring.identities(hop)
    if not identities:
        why = "; ".join(problems) or "the agent has none, and ~/.ssh has none of id_ed25519, id_ecdsa, id_rsa"
        raise TransportError(
            Trouble.NO_KEY,
            f"{hop.where}: there is no key to log in with: {why}. "
            "Passwords are never asked for; use ssh-add, or IdentityFile in ~/.ssh/config.",
        )
    tried: list[Identity] = []
    for identity in identities:
        if not protocol.is_active():
            break
        tried.append(identity)
        if _accepted(hop, protocol, identity, deadline):
            ring.remember(hop, identity)
            return
    refusal = protocol.get_exception()
    if isinstance(refusal, EOFError) or (refusal is None and not protocol.is_active()):
        raise DroppedError("during the login")
    offered = getattr(refusal, "allowed_types", None)
    if offered and "publickey" not in offered:
        hint = f"It accepts no keys, only: {', '.join(offered)}."
    elif isinstance(refusal, paramiko.ssh_exception.PartialAuthentication):
        hint = f"It accepts the key but also wants: {', '.join(offered or ())}."
    elif not protocol.is_active():
        hint = "It ended the login: too many keys? IdentitiesOnly and IdentityFile in ~/.ssh/config choose one."
    else:
        hint = f"Is the key in {hop.user}'s ~/.ssh/authorized_keys on it?"
    extra = f" Not tried: {'; '.join(problems)}." if problems else ""
    raise TransportError(
        Trouble.AUTH, f"{hop.where} refuses the login. Tried: {'; '.join(map(str, tried))}.{extra} {hint}"
    )


def _accepted(hop: Hop, protocol: paramiko.Transport, identity: Identity, deadline: float) -> bool:
    done = threading.Event()
    try:
        protocol.auth_publickey(hop.user, identity.key, event=done)
    except paramiko.SSHException:
        return False
    if not done.wait(max(0.05, deadline - time.monotonic())):
        raise TransportError(
            Trouble.TIMEOUT, f"{hop.where} does not answer the login within {hop.connect_timeout_s:g} s."
        )
    return protocol.is_authenticated()
