"""One HTTP request over anything that behaves like a connected socket."""

from __future__ import annotations

import http.client
import io
import time
from typing import Any, Protocol

from llmgwctl.hosts.transport import HttpReply, HttpRequest

BODY_LIMIT_BYTES = 16 * 1024 * 1024


class SocketLike(Protocol):
    """The part of a socket that an SSH channel has too."""

    def recv(self, nbytes: int, /) -> bytes:
        """Return up to `nbytes`, nothing at the end."""
        ...

    def sendall(self, data: bytes, /) -> object:
        """Send all of it."""
        ...

    def settimeout(self, timeout: float | None, /) -> None:
        """Limit each of the following operations, in seconds."""
        ...

    def close(self) -> object:
        """Close it."""
        ...


def exchange(connection: SocketLike, authority: str, request: HttpRequest, *, timeout_s: float) -> HttpReply:
    """Send the request and return the whole answer; `authority` is the Host header.

    The deadline is for all of it, however slowly the answer drips. Raises TimeoutError, OSError or
    http.client.HTTPException; closes the connection.
    """
    wire = _Wire(connection, time.monotonic() + timeout_s)
    client = http.client.HTTPConnection(authority)
    client.sock = wire
    try:
        headers = {"Host": authority, "Connection": "close", **request.headers}
        client.request(request.method, request.path, body=request.body or None, headers=headers)
        response = client.getresponse()
        body = response.read(BODY_LIMIT_BYTES + 1)
        if len(body) > BODY_LIMIT_BYTES:
            raise http.client.HTTPException(f"the answer is larger than {BODY_LIMIT_BYTES} bytes")
        return HttpReply(response.status, {k.lower(): v for k, v in response.getheaders()}, body)
    finally:
        connection.close()


def authority_of(address: str, port: int) -> str:
    """Return `address:port`, with brackets around an IPv6 address."""
    return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"


class _Wire:
    """What http.client asks of a socket, each operation under what is left of one deadline."""

    def __init__(self, connection: SocketLike, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline

    def sendall(self, data: bytes) -> None:
        self._arm()
        self._connection.sendall(data)

    def receive(self, size: int) -> bytes:
        self._arm()
        return self._connection.recv(size)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(_Reader(self))

    def close(self) -> None:
        """Do nothing: http.client closes its socket while the answer is still being read from a file made of it."""

    def _arm(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)


class _Reader(io.RawIOBase):
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._wire.receive(len(buffer))
        buffer[: len(data)] = data
        return len(data)
