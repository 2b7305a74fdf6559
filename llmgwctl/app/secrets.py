"""Secret values: read on this machine when they are needed, kept in memory, never shown."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

from llmgwctl.domain.catalog import SecretRef
from llmgwctl.domain.launch import LaunchSpec
from llmgwctl.errors import LlmgwctlError
from llmgwctl.render.plan_json import SENSITIVE

_COMMAND_TIMEOUT_S = 60
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
        """Return a text with every value that was read blotted out."""
        with self._lock:
            values = sorted((v for v in self._values.values() if len(v) >= _SHORTEST_REDACTED), key=len, reverse=True)
        for value in values:
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
                return path.read_text(encoding="utf-8").removesuffix("\n")
            except (OSError, UnicodeDecodeError) as problem:
                reason = problem.strerror if isinstance(problem, OSError) else "it is not UTF-8"
                raise SecretError(f"The secret file {path} can't be read: {reason}.") from None
        return self._run(ref.source)

    def _run(self, argv: tuple[str, ...]) -> str:
        try:
            done = subprocess.run(
                argv,
                cwd=self._base,
                capture_output=True,
                stdin=subprocess.DEVNULL,
                timeout=_COMMAND_TIMEOUT_S,
                check=False,
            )
            if done.returncode == 0:
                return done.stdout.decode("utf-8").removesuffix("\n")
            reason = f"it exited with status {done.returncode}"
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError) as problem:
            # Its output is never quoted: it may hold the secret.
            reason = problem.strerror or "it failed" if isinstance(problem, OSError) else type(problem).__name__
        raise SecretError(f"The command of a secret failed ({argv[0]}): {reason}.")


def digest(value: str, lineage: str) -> str:
    """Return a value's digest, salted with the lineage."""
    return hmac.new(lineage.encode(), value.encode(), hashlib.sha256).hexdigest()


def recorded_digests(launch: LaunchSpec, values: Mapping[str, str], lineage: str) -> tuple[tuple[str, str], ...]:
    """Return the digests to record of a launch's secrets, by variable."""
    fixed = (name for name, ref in launch.env if isinstance(ref, SecretRef) and ref.kind != "from_command")
    return tuple((name, digest(values[name], lineage)) for name in sorted(fixed))
