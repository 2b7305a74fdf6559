"""Files written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path


def write_atomically(
    path: Path, text: str, *, mode: int = 0o600, owner: tuple[int, int] | None = None, backup: Path | None = None
) -> None:
    """Write a file so that a reader, or a crash at any moment, sees the old text or the new one.

    The former file is kept as `backup`. `owner` (user and group) is given where we may. Raises OSError; then the old
    file is as it was.
    """
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    temporary = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            if owner is not None:
                with contextlib.suppress(PermissionError):
                    os.fchown(file.fileno(), *owner)
            os.fchmod(file.fileno(), mode)
            file.write(text)
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


def _keep(path: Path, backup: Path) -> None:
    """Give the former file a second name: no moment without it, and no copy of its bytes."""
    link = backup.with_name(f".{backup.name}.{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        link.unlink()
    os.link(path, link)
    link.replace(backup)


def sync_folder(folder: Path) -> None:
    """Make a rename last; some file systems can't, which is no failure."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
