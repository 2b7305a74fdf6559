"""The files of a configuration directory, read with the place of every key and value."""

from __future__ import annotations

import gc
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from llmgwctl.config.compose import UnreadableError, compose
from llmgwctl.config.nodes import Node
from llmgwctl.diagnostics import Diagnostic, SourceRange, error
from llmgwctl.errors import ConfigError

SIZE_LIMIT_BYTES = 20 * 1024 * 1024
"""Of one file; 10,000 replicas on 2,000 hosts take some 2 MB."""

_FORBIDDEN = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u2028\u2029\ufeff\ufffe\uffff\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Document:
    """One file; `root` is None where it holds nothing but comments."""

    file: str
    root: Node | None


@dataclass(frozen=True, slots=True)
class Documents:
    """All files of a configuration that can be read, in name order, and what could not be read, by place."""

    files: tuple[Document, ...] = ()
    problems: tuple[Diagnostic, ...] = ()


def load(directory: str) -> Documents:
    """Read the files of a directory; reading goes on after what can't be read.

    Places name files relative to the directory. Raises ConfigError where there is nothing to read.
    """
    paths = yaml_files(directory)
    if not paths:
        raise ConfigError([nothing_in(directory)])
    files: list[Document] = []
    problems: list[Diagnostic] = []
    with cycles_uncollected():
        for path in paths:
            try:
                document, duplicates = _read(decode(content_of(path), path.name), path.name)
                files.append(document)
                problems += duplicates
            except UnreadableError as problem:
                problems += problem.diagnostics
    return Documents(tuple(files), tuple(problems))


def read_text(text: str, file: str) -> Document:
    """Read one text as if it were the file of that name. Raises ConfigError."""
    with cycles_uncollected():
        document, duplicates = _read(text, file)
    if duplicates:
        raise ConfigError(duplicates)
    return document


def yaml_files(directory: str) -> list[Path]:
    """Return every `*.yaml` and `*.yml` of a directory, by name.

    Not those beneath it, and no hidden ones: editors keep their own there. Raises ConfigError where there is no such
    directory.
    """
    folder, whole = Path(directory), _whole(directory)
    try:
        names = sorted(os.listdir(folder))
    except FileNotFoundError:
        raise ConfigError(
            [error(f"The directory {whole} does not exist.", "Name another with -C DIR, or run `llmgwctl init`.")]
        ) from None
    except NotADirectoryError:
        raise ConfigError(
            [error(f"{whole} is not a directory.", "Name the directory that holds the YAML files with -C DIR.")]
        ) from None
    except OSError as problem:
        raise ConfigError([error(f"The directory {whole} can't be read: {problem.strerror}.")]) from None
    paths = [folder / name for name in names if name.endswith((".yaml", ".yml")) and not name.startswith(".")]
    return [path for path in paths if not path.is_dir()]


def nothing_in(directory: str) -> Diagnostic:
    """Return what to say of a directory without YAML files."""
    return error(
        f"There is no *.yaml or *.yml file in {_whole(directory)}.",
        "Run `llmgwctl init` there to begin with an example, or name another directory with -C DIR.",
    )


def content_of(path: Path) -> bytes:
    """Return a file's bytes. Raises ConfigError for what is no regular file, and for one that is too large."""
    begin = SourceRange(path.name, 1, 1)
    try:
        # Opened without waiting, and looked at before it is read: a pipe would never end, a huge file take minutes.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise UnreadableError(error("This is not a regular file.", "Remove or rename it.", begin))
            if status.st_size > SIZE_LIMIT_BYTES:
                raise _too_large(status.st_size, begin)
            content = file.read(SIZE_LIMIT_BYTES + 1)
    except FileNotFoundError:
        raise UnreadableError(error("This link leads nowhere.", "Mend or remove it.", begin)) from None
    except OSError as problem:
        raise UnreadableError(error(f"The file can't be read: {problem.strerror}.", at=begin)) from None
    if len(content) > SIZE_LIMIT_BYTES:
        raise _too_large(len(content), begin)
    return content


def decode(content: bytes, file: str) -> str:
    """Return a file's text. Raises ConfigError with the place of the first byte that is not UTF-8."""
    if content[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise UnreadableError(error("The file is UTF-16.", "Save it as UTF-8.", SourceRange(file, 1, 1)))
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        offset = problem.start + (3 if content.startswith(b"\xef\xbb\xbf") else 0)
        before = content[:offset]
        line_start = before.rfind(b"\n") + 1
        place = SourceRange(file, before.count(b"\n") + 1, len(before[line_start:].decode("utf-8-sig", "replace")) + 1)
        raise UnreadableError(
            error(f"Byte {content[offset]:#04x} (offset {offset}) is not UTF-8.", "Save the file as UTF-8.", place)
        ) from None


def unified_line_ends(text: str) -> str:
    """Return a text whose lines all end in a line feed; YAML takes CR LF and CR for the same."""
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text


@contextmanager
def cycles_uncollected() -> Iterator[None]:
    """Pause the collector of reference cycles.

    Reading makes hundreds of thousands of objects and no cycle; the collector would walk them again and again,
    which takes five times as long as the reading itself.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _whole(directory: str) -> str:
    """Return a directory's whole path in quotes: `.` at the end of a sentence is seen by nobody."""
    try:
        return f"`{os.path.abspath(directory)}`"
    except OSError:  # the current directory has been removed
        return f"`{directory}`"


def _too_large(size: int, at: SourceRange) -> UnreadableError:
    limit = SIZE_LIMIT_BYTES // 1024 // 1024
    return UnreadableError(
        error(
            f"The file has {size // 1024 // 1024} MiB; at most {limit} MiB are read.",
            "Split it, or give data that is no configuration another ending.",
            at,
        )
    )


def _read(text: str, file: str) -> tuple[Document, list[Diagnostic]]:
    text = unified_line_ends(text.removeprefix("\ufeff"))
    if found := _FORBIDDEN.search(text):
        line = text.count("\n", 0, found.start()) + 1
        column = found.start() - text.rfind("\n", 0, found.start())
        raise UnreadableError(
            error(
                f"The character U+{ord(found[0]):04X}, which can't be seen, is not allowed here.",
                f'Remove it, or write it as an escape in double quotes: "\\u{ord(found[0]):04x}".',
                SourceRange(file, line, column),
            )
        )
    root, diagnostics = compose(text, file)
    if root is not None and root.value is None:
        root = None
    if root is not None and type(root.value) is not dict:
        raise UnreadableError(
            error(
                "The file does not begin with a key.",
                "At the top there are only `hosts:`, `models:`, `quotas:` and `settings:`.",
                root.at,
            )
        )
    return Document(file, root), diagnostics
