"""The user's keys: those in the agent and those in files, each loaded once for the whole command."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import paramiko

from llmgwctl.hosts.known_hosts import fingerprint, type_of
from llmgwctl.hosts.ssh_config import Hop
from llmgwctl.hosts.ssh_public import Public, public_of
from llmgwctl.hosts.transport import host_words

USUAL_FILES = ("~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa")
AGENT_TIMEOUT_S = 30.0
_REQUEST_IDENTITIES, _IDENTITIES_ANSWER = 11, 12


@dataclass(frozen=True, slots=True)
class Identity:
    """A key to log in with; `origin` is its file, or the agent's comment."""

    key: paramiko.PKey
    origin: str

    def __str__(self) -> str:
        blob = self.key.asbytes()
        return f"{type_of(blob)} {fingerprint(blob)} from {self.origin}"


class KeyRing:
    """Finds the keys to try for a hop, the one that was accepted last first; loads each file and agent once."""

    def __init__(self) -> None:
        self._files: dict[str, Identity | str] = {}
        self._publics: dict[str, Public] = {}
        self._agents: dict[str, _Agent | None] = {}
        self._accepted: dict[tuple[str, ...], Identity] = {}
        self._lock = threading.Lock()

    def identities(self, hop: Hop) -> tuple[list[Identity], list[str]]:
        """Return the keys to try in order, and why other ones can't be used."""
        with self._lock:
            accepted = self._accepted.get(_circle(hop))
            found: list[Identity] = [accepted] if accepted else []
            problems: list[str] = []
            held = self._held(hop)
            named = [os.path.expanduser(f) for f in hop.identity_files or USUAL_FILES if f.lower() != "none"]
            found += [i for f in named for i in _chosen(self._public(f), held)]
            if not hop.identities_only:
                found += held
            in_agent = {_held_blob(i.key) for i in held}
            for file in named:
                # A key that the agent holds may be encrypted on disk; the file then is not needed.
                if self._public(file).key not in in_agent:
                    loaded = self._load(file, needed=bool(hop.identity_files))
                    if isinstance(loaded, Identity):
                        found.append(loaded)
                    elif loaded:
                        problems.append(loaded)
            different: dict[bytes, Identity] = {}
            for identity in found:
                different.setdefault(_what_is_shown(identity.key), identity)
            return list(different.values()), problems

    def remember(self, hop: Hop, identity: Identity) -> None:
        """Try this key first for hosts of the same user and the same settings."""
        with self._lock:
            self._accepted[_circle(hop)] = identity

    def close(self) -> None:
        """Let go of the agents."""
        for agent in self._agents.values():
            if agent is not None:
                agent.close()

    def _held(self, hop: Hop) -> list[Identity]:
        path = _agent_path(hop.identity_agent)
        if not path:
            return []
        if path not in self._agents:
            self._agents[path] = None
            # An agent that has gone leaves its variable behind; ssh goes on without it, too.
            with contextlib.suppress(OSError, paramiko.SSHException):
                self._agents[path] = _Agent(path)
        agent = self._agents[path]
        keys = agent.get_keys() if agent else ()
        return [Identity(key, f"the agent ({key.comment})" if key.comment else "the agent") for key in keys]

    def _public(self, file: str) -> Public:
        if file not in self._publics:
            self._publics[file] = public_of(file)
        return self._publics[file]

    def _load(self, file: str, *, needed: bool) -> Identity | str:
        if file not in self._files:
            self._files[file] = _load(file, self._public(file), needed=needed)
        return self._files[file]


class _Agent(paramiko.agent.AgentSSH):
    """An agent at a path of its own, asked by many threads one after the other."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._turn = threading.Lock()
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(AGENT_TIMEOUT_S)
        try:
            connection.connect(path)
            self._connect(connection)
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        self._close()  # type: ignore[attr-defined]

    def _connect(self, connection: socket.socket) -> None:
        """Ask for the keys. paramiko's own way trips over a comment that is no UTF-8, and over one bad key."""
        self._conn = connection
        kind, answer = self._send_message(bytes([_REQUEST_IDENTITIES]))
        if kind != _IDENTITIES_ANSWER:
            raise paramiko.SSHException("the agent tells no keys")
        keys = []
        for _ in range(answer.get_int()):
            blob, comment = answer.get_binary(), host_words(answer.get_binary(), 80)
            with contextlib.suppress(ValueError, paramiko.SSHException):
                keys.append(paramiko.AgentKey(self, blob, comment))
        self._keys = tuple(keys)

    def _send_message(self, msg: object) -> tuple[int, paramiko.Message]:
        with self._turn:
            answer: tuple[int, paramiko.Message] = super()._send_message(msg)  # type: ignore[misc]
            return answer


def _chosen(public: Public, held: Sequence[Identity]) -> list[Identity]:
    """Return the agent's keys that a file names, with the certificate that lies beside it."""
    certificate = public.certificate
    chosen = []
    for identity in held:
        blob = _held_blob(identity.key)
        if certificate and blob == public.key:
            # A copy: the agent's own key stays one without a certificate.
            held_key: Any = identity.key
            certified: Any = paramiko.AgentKey(held_key.agent, blob, held_key.comment)
            certified.public_blob = certificate
            chosen.append(Identity(certified, identity.origin))
        if blob == public.key or (certificate and blob == certificate.key_blob):
            chosen.append(identity)
    return chosen


def _load(file: str, public: Public, *, needed: bool) -> Identity | str:
    if not Path(file).exists():
        if public.key:
            return f"{file} does not exist, and the agent does not hold the key of {file}.pub"
        return f"{file} does not exist" if needed else ""
    if public.alone:
        private = file.removesuffix(".pub")
        return f"{file} is a public key that the agent does not hold (ssh-add {private} gives it to the agent)"
    try:
        return Identity(paramiko.PKey.from_path(file), file)
    except (paramiko.PasswordRequiredException, TypeError):
        # cryptography says a missing passphrase by a TypeError.
        return f"{file} has a passphrase (ssh-add {file} gives it to the agent)"
    except (OSError, ValueError, paramiko.SSHException, paramiko.pkey.UnknownKeyType) as problem:
        return f"{file} can't be read ({type(problem).__name__})"
    except Exception as problem:
        # cryptography's UnsupportedAlgorithm and the like; the text may quote the file, so it is not repeated.
        return f"{file} can't be used ({type(problem).__name__})"


def _held_blob(key: paramiko.PKey) -> bytes:
    """Return the public half by which the agent calls its key."""
    return bytes(getattr(key, "blob", None) or key.asbytes())


def _what_is_shown(key: paramiko.PKey) -> bytes:
    """Return what the server sees: a certificate and its bare key are two things to it."""
    blob = getattr(key, "public_blob", None)
    return bytes(blob.key_blob) if blob else key.asbytes()


def _circle(hop: Hop) -> tuple[str, ...]:
    return (hop.user, hop.identity_agent or "", str(hop.identities_only), *hop.identity_files)


def _agent_path(named: str | None) -> str:
    if named is None or named == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK", "")
    if named.lower() == "none":
        return ""
    return os.environ.get(named[1:], "") if named.startswith("$") else os.path.expanduser(named)
