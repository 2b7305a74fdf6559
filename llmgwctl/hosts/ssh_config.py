"""Which way leads to a host: what the configuration says, completed from ~/.ssh/config as ssh would."""

from __future__ import annotations

import getpass
import glob
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import paramiko

from llmgwctl.domain.desired import Host, SshSettings
from llmgwctl.hosts.ssh_canonical import ClientConfig
from llmgwctl.hosts.transport import TransportError, Trouble

MAX_JUMPS = 8
MAX_INCLUDES = 16
DEFAULT_PORT = 22


@dataclass(frozen=True, slots=True)
class Hop:
    """One SSH server on the way; `label` is what the user calls it, `key_name` its name in known_hosts.

    `identity_files` are those that the configuration names (none: the usual ones). `known_hosts` is empty where
    nothing replaces the user's own file.
    """

    label: str
    address: str
    port: int
    user: str
    key_name: str
    identity_files: tuple[str, ...] = ()
    identities_only: bool = False
    identity_agent: str | None = None
    proxy_command: str | None = None
    known_hosts: tuple[str, ...] = ()
    connect_timeout_s: float = 10.0

    @property
    def where(self) -> str:
        """Return name, user, address and port for a message."""
        place = f"[{self.address}]:{self.port}" if ":" in self.address else f"{self.address}:{self.port}"
        return f"{self.label} ({self.user}@{place})"


class Routes:
    """Finds the hops to a host; reads the ssh configuration once.

    `LLMGWCTL_SSH_CONFIG` names a file to be read instead of the user's and the system's.
    """

    def __init__(self, settings: SshSettings) -> None:
        self._settings = settings
        self._lookups: dict[str, dict[str, object]] = {}
        override = os.environ.get("LLMGWCTL_SSH_CONFIG")
        self._files = (
            [Path(override)] if override else [Path("~/.ssh/config").expanduser(), Path("/etc/ssh/ssh_config")]
        )
        self._text_lines = [line for path in self._files for line in [*_lines(path, "Host *"), "Host *"]]
        self._config = self._parsed(self._text_lines)

    def to(self, host: Host) -> tuple[Hop, ...]:
        """Return the hops in the order in which they are connected; the host itself is the last.

        What the configuration says wins over ~/.ssh/config, which is looked up by the address as written.
        """
        settings = self._settings
        hop = self._hop(host.name, host.address, host.user or settings.user, host.port or settings.port)
        jump = host.jump if host.jump is not None else self._text(host.address, "proxyjump")
        return self._through(jump, hop, depth=0)

    def _through(self, jump: str | None, hop: Hop, depth: int) -> tuple[Hop, ...]:
        if not jump or jump.lower() == "none":
            return (hop,)
        if depth >= MAX_JUMPS:
            raise TransportError(Trouble.CONFIG, f"{hop.where}: more than {MAX_JUMPS} jump hosts, probably a circle.")
        names = [name.strip() for name in jump.split(",")]
        hops: list[Hop] = []
        for position, name in enumerate(names):
            user, address, port = split_jump(name)
            user = user or self._text(address, "user") or self._settings.user
            one = self._hop(address, address, user, port)
            # Only the first of a chain may have jump hosts of its own: the next is reached through it.
            own = self._text(address, "proxyjump") if position == 0 else None
            hops += self._through(own, one, depth + 1)
        return (*hops, hop)

    def _hop(self, label: str, written: str, user: str | None, port: int | None) -> Hop:
        settings = self._settings
        address = self._text(written, "hostname") or written
        timeout = settings.connect_timeout_s
        if timeout == SshSettings().connect_timeout_s:
            timeout = float(self._number(written, "connecttimeout") or timeout)
        known_hosts = self._text(written, "userknownhostsfile")
        command = self._proxy_command(written, user, port)
        return Hop(
            label=label,
            address=address,
            port=port or self._number(written, "port") or DEFAULT_PORT,
            user=user or self._text(written, "user") or getpass.getuser(),
            key_name=self._text(written, "hostkeyalias") or address,
            identity_files=tuple(os.path.expanduser(f) for f in self._list(written, "identityfile")),
            identities_only=(self._text(written, "identitiesonly") or "").lower() == "yes",
            identity_agent=self._text(written, "identityagent"),
            proxy_command=command if command and command.lower() != "none" else None,
            known_hosts=tuple(os.path.expanduser(f) for f in shlex.split(known_hosts)) if known_hosts else (),
            connect_timeout_s=timeout,
        )

    def _proxy_command(self, written: str, user: str | None, port: int | None) -> str | None:
        command = self._text(written, "proxycommand")
        if not command or not (user or port):
            return command
        # paramiko fills in %p and %r from the file, where ours are to win: so ours are put before it.
        ours = [f"Port {port}"] * bool(port) + [f"User {user}"] * bool(user)
        found = self._parsed([*ours, *self._text_lines]).lookup(written).get("proxycommand")
        return str(found) if found else None

    def _parsed(self, lines: Iterable[str]) -> paramiko.SSHConfig:
        config = ClientConfig()
        try:
            config.parse(lines)
        except (paramiko.SSHException, ValueError) as problem:
            raise self._unusable(problem) from problem
        return config

    def _lookup(self, written: str) -> dict[str, object]:
        found = self._lookups.get(written)
        if found is None:
            try:
                found = self._lookups[written] = dict(self._config.lookup(written))
            except Exception as problem:
                # paramiko raises what it happens to meet: KeyError, ImportError (Match exec), SSHException.
                raise self._unusable(problem) from problem
        return found

    def _text(self, written: str, key: str) -> str | None:
        value = self._lookup(written).get(key)
        return value if isinstance(value, str) else None

    def _list(self, written: str, key: str) -> list[str]:
        value = self._lookup(written).get(key)
        return [str(v) for v in value] if isinstance(value, list) else []

    def _number(self, written: str, key: str) -> int | None:
        value = self._text(written, key)
        if value is None:
            return None
        if not value.isdigit():
            raise self._unusable(f"{key} is {value!r}, not a number (for {written})")
        return int(value)

    def _unusable(self, problem: object) -> TransportError:
        files = " and ".join(str(f) for f in self._files if f.exists())
        return TransportError(
            Trouble.CONFIG,
            f"The ssh configuration ({files}) can't be used: {problem}. LLMGWCTL_SSH_CONFIG may name another file.",
        )


def split_jump(text: str) -> tuple[str | None, str, int | None]:
    """Split `[user@]host[:port]`, the host maybe an IPv6 address in brackets."""
    rest = text.removeprefix("ssh://").rstrip("/")
    user, at, place = rest.rpartition("@")
    if place.startswith("["):
        address, _, port = place[1:].partition("]")
        port = port.removeprefix(":")
    elif place.count(":") == 1:
        address, _, port = place.partition(":")
    else:
        address, port = place, ""
    if not address or (port and not port.isdigit()):
        raise TransportError(Trouble.CONFIG, f"{text!r} is no jump host: write [user@]host[:port].")
    return (user if at else None), address, int(port) if port else None


def _lines(path: Path, block: str, depth: int = 0) -> Iterator[str]:
    """Yield a file's lines with those that it includes in place; paramiko knows no Include."""
    for line in _text_of(path).splitlines():
        words = line.strip().replace("=", " ", 1).split(None, 1)
        word = words[0].lower() if words else ""
        if word in ("host", "match"):
            block = line
        if word != "include" or len(words) < 2:
            yield line
        elif depth < MAX_INCLUDES:
            for included in _included(words[1], path):
                yield from _lines(included, block, depth + 1)
                # The included file may end in a block of its own; go on in ours.
                yield block


def _included(patterns: str, path: Path) -> Iterable[Path]:
    folder = path.parent if path.is_relative_to("/etc/ssh") else Path("~/.ssh").expanduser()
    for pattern in shlex.split(patterns):
        absolute = os.path.join(folder, os.path.expanduser(pattern))
        yield from (Path(p) for p in sorted(glob.glob(absolute)))


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
