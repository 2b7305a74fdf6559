"""The machine we run on as a host: a shell in a session of its own instead of a connection."""

from __future__ import annotations

import contextlib
import http.client
import os
import selectors
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator

from llmgwctl.domain.desired import Host
from llmgwctl.hosts import envelope
from llmgwctl.hosts.http_exchange import authority_of, exchange
from llmgwctl.hosts.transport import (
    OUTPUT_LIMIT_BYTES,
    Completed,
    HttpReply,
    HttpRequest,
    PortClosedError,
    TransportError,
    Trouble,
)

CHUNK_BYTES = 65536
POLL_S = 0.25


class LocalTransport:
    """Runs scripts here, as root by sudo where the host says so."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._argv = ["sudo", "-n", "/bin/sh", "-s"] if host.sudo else ["/bin/sh", "-s"]

    def run(self, script: str, *, timeout_s: float) -> Completed:
        """Run the script with /bin/sh and wait for its end; at the deadline all its processes are killed."""
        deadline = time.monotonic() + timeout_s
        with self._shell() as process, _Pipes(process, envelope.whole(script)) as pipes:
            while pipes.open:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise self._late(timeout_s)
                pipes.move(left)
                if pipes.size > OUTPUT_LIMIT_BYTES:
                    raise TransportError(
                        Trouble.PROTOCOL,
                        f"{self._host.name}: a script printed more than {OUTPUT_LIMIT_BYTES >> 20} MiB.",
                    )
            try:
                status = process.wait(max(0.05, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise self._late(timeout_s) from None
            errors = bytes(pipes.errors)
            if self._host.sudo and status == 1 and errors.startswith(b"sudo:"):
                words = errors.decode("utf-8", "replace").splitlines()[0]
                raise TransportError(
                    Trouble.AUTH, f"{self._host.name}: {words}. `sudo: true` needs NOPASSWD in sudoers."
                )
            return Completed(_status(status), bytes(pipes.output), errors)

    def stream(self, script: str, on_data: Callable[[bytes], None], *, stop: threading.Event) -> int:
        """Hand on the script's output until it ends or `stop` is set."""
        with self._shell() as process, _Pipes(process, envelope.whole(script)) as pipes:
            while pipes.open and not stop.is_set():
                pipes.move(POLL_S)
                if pipes.output:
                    on_data(bytes(pipes.output))
                    pipes.output.clear()
                pipes.errors.clear()
            return 0 if stop.is_set() else _status(process.wait())

    def http(self, address: str, port: int, request: HttpRequest, *, timeout_s: float) -> HttpReply:
        """Send a request to a port of this machine."""
        place = authority_of(address, port)
        deadline = time.monotonic() + timeout_s
        try:
            connection = socket.create_connection((address, port), timeout=timeout_s)
            return exchange(connection, place, request, timeout_s=max(0.05, deadline - time.monotonic()))
        except ConnectionRefusedError:
            raise PortClosedError(f"{self._host.name}: nothing listens on {place}.") from None
        except TimeoutError:
            raise TransportError(
                Trouble.TIMEOUT, f"{self._host.name}: {place} does not answer within {timeout_s:g} s."
            ) from None
        except (OSError, http.client.HTTPException) as problem:
            words = str(problem) or type(problem).__name__
            raise TransportError(
                Trouble.PROTOCOL, f"{self._host.name}: {place} gives no HTTP answer: {words}."
            ) from None

    def close(self) -> None:
        """Let go of nothing: there is no connection."""

    @contextlib.contextmanager
    def _shell(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start the shell in a session of its own, and kill what is left of it when the caller fails or stops early.

        What a script that ended by itself leaves behind (an engine that it started) is not touched.
        """
        pipe = subprocess.PIPE
        try:
            process = subprocess.Popen(self._argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        except OSError as problem:
            raise TransportError(
                Trouble.CONFIG, f"{self._host.name}: {self._argv[0]} can't be started here: {problem.strerror}."
            ) from None
        try:
            yield process
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(process.pid, signal.SIGKILL)
                # Something in state D ignores even SIGKILL: it is left, not waited for.
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(1)

    def _late(self, timeout_s: float) -> TransportError:
        return TransportError(
            Trouble.COMMAND_TIMEOUT,
            f"{self._host.name}: the script has not ended within {timeout_s:g} s; it was killed.",
        )


class _Pipes:
    """Feeds a process and collects what it prints, without a thread for each pipe."""

    def __init__(self, process: subprocess.Popen[bytes], text: bytes) -> None:
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self.output = bytearray()
        self.errors = bytearray()
        self.size = 0
        self._text = memoryview(text)
        self._input = process.stdin
        self._files = (process.stdin, process.stdout, process.stderr)
        self._selector = selectors.DefaultSelector()
        os.set_blocking(process.stdin.fileno(), False)
        self._selector.register(process.stdin, selectors.EVENT_WRITE, None)
        self._selector.register(process.stdout, selectors.EVENT_READ, self.output)
        self._selector.register(process.stderr, selectors.EVENT_READ, self.errors)

    @property
    def open(self) -> bool:
        return bool(self._selector.get_map())

    def move(self, timeout_s: float) -> None:
        """Wait for a pipe that is ready, and move what it takes or gives."""
        for key, _ in self._selector.select(timeout_s):
            if key.data is None:
                self._feed()
                continue
            data = os.read(key.fd, CHUNK_BYTES)
            if data:
                key.data.extend(data)
                self.size += len(data)
            else:
                self._selector.unregister(key.fileobj)

    def _feed(self) -> None:
        try:
            self._text = self._text[os.write(self._input.fileno(), self._text) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._text = self._text[:0]
        if not self._text:
            self._selector.unregister(self._input)
            with contextlib.suppress(BrokenPipeError):
                self._input.close()

    def __enter__(self) -> _Pipes:
        return self

    def __exit__(self, *_: object) -> None:
        self._selector.close()
        for file in self._files:
            with contextlib.suppress(OSError):
                file.close()


def _status(code: int) -> int:
    """Return a status as a shell tells it: 128 + N for signal N."""
    return code if code >= 0 else 128 - code
