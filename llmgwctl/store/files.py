"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path


def resolved(path: Path) -> Path:
    """Return where a path leads; a link that leads nowhere gives what it names."""
    return Path(os.path.realpath(path))


def write_output(path: Path, text: str, *, mode: int) -> None:
    """Write what a user asked for where they asked: links are followed, pipes and devices are written to.

    A regular file is written whole or not at all. Raises OSError.
    """
    content = text.encode("utf-8", "backslashreplace")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        _write_whole(resolved(path), content, mode, None, None)
        return
    for stream in (sys.stdout, sys.stderr):  # /dev/stdout: what was printed before, and comes after, is there as well
        with contextlib.suppress(OSError, ValueError, AttributeError):
            if os.path.samestat(status, os.fstat(stream.fileno())):
                stream.flush()
                _write_all(os.dup(stream.fileno()), content)
                return
    if stat.S_ISREG(status.st_mode):
        _write_whole(resolved(path), content, mode, None, None)
    else:
        _write_all(os.open(path, os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC), content)


def write_atomically(
    path: Path, text: str, *, mode: int = 0o600, owner: tuple[int, int] | None = None, backup: Path | None = None
) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old text or the new one.

    The former file is kept as `backup`. `owner` (user and group) is given where we may. A link would be replaced
    itself: resolve it before. Raises OSError; then the old file is as it was.
    """
    _write_whole(path, text.encode(), mode, owner, backup)


def _write_whole(path: Path, content: bytes, mode: int, owner: tuple[int, int] | None, backup: Path | None) -> None:
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        if backup is not None and path.exists():
            _keep(path, backup)
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def _write_all(handle: int, content: bytes) -> None:
    with os.fdopen(handle, "wb", buffering=0) as file:
        while content:
            content = content[file.write(content) or 0 :]


def _keep(path: Path, backup: Path) -> None:
    """Give the former file a second name: no moment without it, and no copy of its bytes where that can be."""
    spare = backup.with_name(f".{backup.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        spare.unlink()
    try:
        os.link(path, spare)
    except OSError:  # another file system (a link leads there), or one without hard links
        _copy(path, spare)
    spare.replace(backup)


def _copy(path: Path, spare: Path) -> None:
    try:
        with (
            path.open("rb") as source,
            os.fdopen(os.open(spare, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to,
        ):
            shutil.copyfileobj(source, to)
            to.flush()
            os.fsync(to.fileno())
    except BaseException:
        spare.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Make a rename last; some file systems can't, which is no failure."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
