"""The lock on a state: a file of its own beside it, never removed, with who holds it."""

from __future__ import annotations

import contextlib
import fcntl
import getpass
import json
import os
import socket
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

from llmgwctl.errors import LockError

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 2.0


@contextmanager
def locked(
    path: Path, operation: str, *, timeout_s: float = 0.0, notice: Callable[[str], None] | None = None
) -> Iterator[str]:
    """Hold the lock for the time of the block; yields its id.

    The kernel frees it when the process dies, however it dies. The file stays: a lock file that is removed can be
    held by two, one of whom has the old inode. Raises LockError naming the holder.
    """
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise LockError(f"The lock {path} is no regular file.", "Move it away: a new one is made.")
        _acquire(handle, path, timeout_s, notice)
        identity = str(uuid4())
        _sign(handle, {"id": identity, "operation": operation, "who": who(), "pid": os.getpid(), "since": _now()})
        yield identity
        with contextlib.suppress(OSError):  # nobody is kept out by a name that is left in it
            _sign(handle, {})
    finally:
        os.close(handle)


def who() -> str:
    """Return `user@host`."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _acquire(handle: int, path: Path, timeout_s: float, notice: Callable[[str], None] | None) -> None:
    deadline = time.monotonic() + timeout_s
    wait_s = _FIRST_WAIT_S
    told = False
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise LockError(
                f"The state is locked by {_holder(handle)}.",
                f"Wait for it, or give --lock-timeout. The lock is {path}; it goes when its holder ends.",
            )
        if notice and not told:
            notice(f"Waiting for the state's lock, held by {_holder(handle)} …")
            told = True
        time.sleep(min(wait_s, left_s))
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


def _holder(handle: int) -> str:
    try:
        info = json.loads(os.pread(handle, 4096, 0))
        return f"{info['who']} (process {info['pid']}), who runs {info['operation']} since {info['since']}"
    except (ValueError, KeyError, TypeError):
        return "someone who did not say who"


def _sign(handle: int, info: dict[str, object]) -> None:
    os.ftruncate(handle, 0)
    if info:
        os.pwrite(handle, (json.dumps(info) + "\n").encode(), 0)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
