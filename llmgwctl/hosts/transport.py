"""How a script or an HTTP request gets onto a host: the protocol, its answers and its failures."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from llmgwctl.errors import LlmgwctlError, UnreachableError

OUTPUT_LIMIT_BYTES = 64 * 1024 * 1024
"""Most that is kept of one script's output, standard error included; more is a failure, never a silent cut."""


@dataclass(frozen=True, slots=True)
class Completed:
    """A script's end; `exit_status` is 128 + N where signal N killed it."""

    exit_status: int
    stdout: bytes
    stderr: bytes


@dataclass(frozen=True, slots=True)
class HttpRequest:
    method: str
    path: str
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer; the names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class Trouble(Enum):
    """Why a host could not be used."""

    DNS = "dns"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    RESET = "reset"
    HOST_KEY_UNKNOWN = "host_key_unknown"
    HOST_KEY_CHANGED = "host_key_changed"
    AUTH = "auth"
    NO_KEY = "no_key"
    BANNER = "banner"
    PROTOCOL = "protocol"
    CLOSED = "closed"
    COMMAND_TIMEOUT = "command_timeout"
    JUMP = "jump"
    PROXY = "proxy"
    CONFIG = "config"


class TransportError(UnreachableError):
    """A host cannot be reached, refuses us or does not answer; the message says where and what to do.

    It is one line without control characters, whatever parts of it a host, a proxy or a file has sent.
    """

    def __init__(self, trouble: Trouble, message: str) -> None:
        super().__init__(one_line(message))
        self.trouble = trouble

    @property
    def code(self) -> str:
        """Return the trouble as a word for programs."""
        return self.trouble.value


class PortClosedError(LlmgwctlError):
    """Nothing listens on that port of the host (yet): an engine that still loads, or one that ended."""


def host_words(words: str | bytes, longest: int = 200) -> str:
    """Return what a host or a command said, on one line, cut to a readable length, unable to steer a terminal."""
    # Cut before too, so that a flood costs nothing.
    text = words.decode("utf-8", "replace") if isinstance(words, bytes) else words
    text = one_line(text[: longest * 20])
    return text if len(text) <= longest else text[: longest - 1] + "…"


def last_words(*streams: str | bytes, longest: int = 200) -> str:
    """Return the end of what was printed on each stream, on one line: greetings come first, reasons last."""
    texts = (s.decode("utf-8", "replace") if isinstance(s, bytes) else s for s in streams)
    told = (one_line(text[-longest * 20 :]) for text in texts)
    ends = (words if len(words) <= longest else "…" + words[1 - longest :] for words in told if words)
    return "; ".join(dict.fromkeys(ends))


def one_line(text: str) -> str:
    """Return a text on one line: colours are left out, every other control character is a question mark."""
    text = " ".join(_ESCAPE_CODE.sub("", text).split())
    return text if text.isprintable() else "".join(c if c.isprintable() else "?" for c in text)


_ESCAPE_CODE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


class Transport(Protocol):
    """One host's connection, used by several threads at once; it connects when it is first needed."""

    def run(self, script: str, *, timeout_s: float) -> Completed:
        """Run the script with the host's /bin/sh, as root where the host says `sudo`.

        The script goes to the shell's standard input, so nothing of it is in a process list. Raises TransportError
        when the host cannot be reached or the script has not ended within `timeout_s`.
        """
        ...

    def stream(self, script: str, on_data: Callable[[bytes], None], *, stop: threading.Event) -> int:
        """Hand on the script's standard output as it comes, until it ends or `stop` is set; returns its exit status.

        A script that was stopped is ended on the host, and its status is 0.
        """
        ...

    def http(self, address: str, port: int, request: HttpRequest, *, timeout_s: float) -> HttpReply:
        """Send a request to a port as seen from the host.

        Raises PortClosedError when nothing listens there, TransportError when no answer came.
        """
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...
