"""The files that say which host has which key, in OpenSSH's format."""

from __future__ import annotations

import base64
import binascii
import fcntl
import fnmatch
import hashlib
import hmac
import os
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

SSH_PORT = 22


class Standing(Enum):
    """What the files say about a key that a host showed."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    CHANGED = "changed"
    REVOKED = "revoked"
    AUTHORITY = "authority"


@dataclass(frozen=True, slots=True)
class KnownKey:
    """One line of a known_hosts file; `key` is base64 as written."""

    file: str
    line: int
    marker: str
    names: str
    key_type: str
    key: str

    @property
    def fingerprint(self) -> str:
        """Return the key's fingerprint as ssh prints it."""
        try:
            return fingerprint(base64.b64decode(self.key))
        except binascii.Error:
            return "(unreadable key)"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known, and the line that says so."""

    standing: Standing
    because: KnownKey | None = None


class KnownHosts:
    """The lines of several files; a plain name is found without a walk through the others."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._plain: dict[str, list[KnownKey]] = {}
        self._hashed: list[tuple[bytes, bytes, KnownKey]] = []
        self._patterns: list[KnownKey] = []
        self._found: dict[str, tuple[KnownKey, ...]] = {}
        self._lock = threading.Lock()
        for path in paths:
            for entry in _read(path):
                self._index(entry)

    def key_types(self, name: str, port: int) -> tuple[str, ...]:
        """Return the types of the keys that the host is known by; these should be asked for first."""
        return tuple(dict.fromkeys(e.key_type for e in self._entries(name, port) if not e.marker))

    def check(self, name: str, port: int, key: bytes) -> Verdict:
        """Return what the files say about the host's key.

        A key of another type than the known ones counts as changed: who can't show the known key may show any other.
        """
        text = base64.b64encode(key).decode("ascii")
        entries = self._entries(name, port)
        plain = [e for e in entries if not e.marker]
        revoked = next((e for e in entries if e.marker == "@revoked" and e.key == text), None)
        if revoked:
            return Verdict(Standing.REVOKED, revoked)
        known = next((e for e in plain if e.key == text), None)
        if known:
            return Verdict(Standing.KNOWN, known)
        if plain:
            key_type = type_of(key)
            return Verdict(Standing.CHANGED, next((e for e in plain if e.key_type == key_type), plain[0]))
        authority = next((e for e in entries if e.marker == "@cert-authority"), None)
        if authority:
            return Verdict(Standing.AUTHORITY, authority)
        return Verdict(Standing.UNKNOWN)

    def add(self, path: Path, name: str, port: int, key: bytes) -> Verdict:
        """Append an unknown host's key to the file; another process may add to it at the same time.

        Returns KNOWN, or CHANGED where someone has just recorded another key for the host.
        """
        with self._lock:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                # What others wrote since we read the files; ours is decided on all of it.
                fresh = KnownHosts([path])
                verdict = fresh.check(name, port, key)
                if verdict.standing is Standing.UNKNOWN:
                    line = f"{_named(name, port)} {type_of(key)} {base64.b64encode(key).decode('ascii')}\n"
                    size = os.lseek(handle, 0, os.SEEK_END)
                    unfinished = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
                    os.write(handle, (("\n" if unfinished else "") + line).encode("ascii"))
                    os.fsync(handle)
                    number = sum(1 for _ in path.open("rb"))
                    verdict = Verdict(Standing.KNOWN, KnownKey(str(path), number, "", *line.split()))
            finally:
                os.close(handle)
            if verdict.because:
                named = _named(name, port)
                self._found[named] = (*self._matching(named), verdict.because)
            return verdict

    def _entries(self, name: str, port: int) -> tuple[KnownKey, ...]:
        with self._lock:
            found = self._matching(_named(name, port))
            # As OpenSSH: a key recorded without the port is good for every port of the host.
            return found or (self._matching(name.lower()) if port != SSH_PORT else ())

    def _matching(self, name: str) -> tuple[KnownKey, ...]:
        found = self._found.get(name)
        if found is None:
            entries = list(self._plain.get(name, ()))
            entries += self._take_hashed(name)
            entries += [e for e in self._patterns if _pattern_matches(e.names, name)]
            found = self._found[name] = tuple(entries)
        return found

    def _take_hashed(self, name: str) -> list[KnownKey]:
        """Find a name's hashed lines, and look at them no more: each is one name's, and each look costs a hash."""
        text = name.encode()
        matches = [h for h in self._hashed if hmac.digest(h[0], text, "sha1") == h[1]]
        if matches:
            self._hashed = [h for h in self._hashed if h not in matches]
        return [entry for _, _, entry in matches]

    def _index(self, entry: KnownKey) -> None:
        if entry.names.startswith("|1|"):
            hashed = _unpack_hash(entry.names)
            if hashed:
                self._hashed.append((*hashed, entry))
        elif any(c in entry.names for c in "*?!"):
            self._patterns.append(entry)
        else:
            for name in entry.names.lower().split(","):
                self._plain.setdefault(name, []).append(entry)


def fingerprint(key: bytes) -> str:
    """Return `SHA256:…`, as ssh-keygen -l prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(key).digest()).decode("ascii").rstrip("=")


def type_of(key: bytes) -> str:
    """Return the type that a public key's first field names."""
    size = int.from_bytes(key[:4], "big")
    return key[4 : 4 + size].decode("ascii", "replace")


def _read(path: Path) -> Iterable[KnownKey]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    for number, line in enumerate(text.split("\n"), start=1):
        fields = line.split()
        if not fields or fields[0].startswith("#"):
            continue
        marker = fields.pop(0) if fields[0].startswith("@") else ""
        if len(fields) >= 3:
            yield KnownKey(str(path), number, marker, fields[0], fields[1], fields[2])


def _named(name: str, port: int) -> str:
    return name.lower() if port == SSH_PORT else f"[{name.lower()}]:{port}"


def _unpack_hash(names: str) -> tuple[bytes, bytes] | None:
    """Return salt and HMAC-SHA1 of `|1|salt|hash`; None where it is neither."""
    try:
        _, _, salt, digest = names.split("|")
        return base64.b64decode(salt), base64.b64decode(digest)
    except (ValueError, binascii.Error):
        return None


def _pattern_matches(patterns: str, name: str) -> bool:
    # A matching `!pattern` rules the whole line out.
    matched = False
    for pattern in patterns.lower().split(","):
        # Brackets are literal here ([host]:port), unlike in fnmatch.
        if fnmatch.fnmatchcase(name, pattern.lstrip("!").replace("[", "[[]")):
            if pattern.startswith("!"):
                return False
            matched = True
    return matched
