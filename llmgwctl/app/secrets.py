"""Secret values: read on this machine when they are needed, kept in memory, never shown."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import IO, cast

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.errors import LlmgwctlError
from llmgwctl.render.plan_json import SENSITIVE

_COMMAND_TIMEOUT_S = 60
_LINGER_S = 0.5
"""How long a command's output is read on after its end: what it left in the background may hold the pipe for ever."""
_LARGEST = 128 * 1024 - 1
"""Linux takes no larger entry of an environment (MAX_ARG_STRLEN), the variable's name included."""
_LONGEST_NAME = 1024
_SHORTEST_REDACTED = 4
"""Shorter values would blot out ordinary words; nobody should take them for secrets."""


class SecretError(LlmgwctlError):
    """A secret can't be read; the message names where it should be, never a value."""


class Secrets:
    """Reads each reference once. `base` is what relative paths begin from."""

    def __init__(self, base: Path) -> None:
        self._base = base
        self._values: dict[SecretRef, str] = {}
        self._lock = threading.Lock()

    def value(self, ref: SecretRef) -> str:
        """Return a secret's value; a single newline at its end is taken off. Raises SecretError."""
        with self._lock:
            if ref not in self._values:
                value = self._read(ref)
                if "\0" in value:
                    raise SecretError(f"The secret {ref} holds a NUL byte: no environment variable can.")
                if len(value.encode()) > _LARGEST - _LONGEST_NAME:
                    raise SecretError(f"The secret {ref} is larger than 128 KiB: no environment variable may be.")
                self._values[ref] = value
            return self._values[ref]

    def of_launch(self, launch: LaunchSpec) -> dict[str, str]:
        """Return the secret variables of a launch."""
        return {name: self.value(ref) for name, ref in launch.env if isinstance(ref, SecretRef)}

    def digests(self, refs: Iterable[SecretRef], lineage: str) -> dict[str, str]:
        """Return what can be told of secrets without naming them: a digest by reference, salted with the lineage.

        A command's output is left out: it may be another one each time. So is what can't be read here; apply will
        say so when it needs it.
        """
        digests = {}
        for ref in dict.fromkeys(refs):
            if ref.kind == "from_command":
                continue
            try:
                digests[str(ref)] = digest(self.value(ref), lineage)
            except SecretError:
                continue
        return digests

    def redact(self, text: str) -> str:
        """Return a text with every value that was read blotted out, and each line of one: a text may show a part."""
        with self._lock:
            pieces = {p.strip() for v in self._values.values() for p in (v, *v.splitlines())}
        for value in sorted((p for p in pieces if len(p) >= _SHORTEST_REDACTED), key=len, reverse=True):
            text = text.replace(value, SENSITIVE)
        return text

    def _read(self, ref: SecretRef) -> str:
        if ref.kind == "from_env":
            name = ref.source[0]
            if name not in os.environ:
                raise SecretError(f"The environment variable {name} is not set here, and a model needs it.")
            return os.environ[name]
        if ref.kind == "from_file":
            path = self._base / Path(ref.source[0]).expanduser()
            try:
                with path.open("rb") as file:  # never the whole of a device, or of a file that was meant otherwise
                    return file.read(_LARGEST + 2).decode().removesuffix("\n")
            except (OSError, UnicodeDecodeError) as problem:
                reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
                raise SecretError(f"The secret file {path} can't be read: {reason}.") from None
        return self._run(ref.source)

    def _run(self, argv: tuple[str, ...]) -> str:
        try:
            status, output = _output_of(argv, self._base)
            if status == 0:
                return output.decode().removesuffix("\n")
            reason = f"it exited with status {status}"
        except subprocess.TimeoutExpired:
            reason = f"it did not end within {_COMMAND_TIMEOUT_S} s"
        except (OSError, UnicodeDecodeError) as problem:
            # Its output is never quoted: it may hold the secret.
            reason = problem.strerror or "it failed" if isinstance(problem, OSError) else "what it prints is not UTF-8"
        raise SecretError(f"The command of a secret failed ({argv[0]}): {reason}.")


def _output_of(argv: tuple[str, ...], folder: Path) -> tuple[int, bytes]:
    """Return a command's status and output, cut where it is too large for a secret.

    What doesn't end in time is killed with its whole group. Raises TimeoutExpired, OSError.
    """
    process = subprocess.Popen(
        argv,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + _COMMAND_TIMEOUT_S
    output = b""
    try:
        with cast(IO[bytes], process.stdout) as pipe, selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while len(output) <= _LARGEST + 1:
                if process.poll() is not None:
                    deadline = min(deadline, time.monotonic() + _LINGER_S)
                if time.monotonic() > deadline:
                    break
                if selector.select(timeout=0.1):
                    piece = os.read(pipe.fileno(), 65536)
                    if not piece:
                        break
                    output += piece
        if len(output) > _LARGEST + 1:
            return 0, output[: _LARGEST + 2]
        return process.wait(timeout=max(0.0, deadline - time.monotonic())), output
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def digest(value: str, lineage: str) -> str:
    """Return a value's digest, salted with the lineage."""
    return hmac.new(lineage.encode(), value.encode(), hashlib.sha256).hexdigest()


def recorded_digests(launch: LaunchSpec, values: Mapping[str, str], lineage: str) -> tuple[tuple[str, str], ...]:
    """Return the digests to record of a launch's secrets, by variable."""
    fixed = (name for name, ref in launch.env if isinstance(ref, SecretRef) and ref.kind != "from_command")
    return tuple((name, digest(values[name], lineage)) for name in sorted(fixed))
