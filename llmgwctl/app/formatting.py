"""The use case `fmt`: the files of a configuration in their normal form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from llmgwctl.config.documents import content_of, decode, nothing_in, yaml_files
from llmgwctl.config.fmt import format_text
from llmgwctl.diagnostics import Diagnostic
from llmgwctl.errors import ConfigError, LlmgwctlError
from llmgwctl.store.files import write_atomically


@dataclass(frozen=True, slots=True)
class Formatted:
    """One file: its bytes as they are, and its text in its normal form."""

    path: Path
    content: bytes
    normal: str

    @property
    def changes(self) -> bool:
        """Whether the file is not in its normal form; a byte order mark and other line ends count."""
        return self.normal.encode() != self.content

    @property
    def text(self) -> str:
        """What is in the file now, with a byte order mark where it has one."""
        return self.content.decode()


def format_directory(directory: str) -> list[Formatted]:
    """Return every file of a configuration with its normal form; writes nothing.

    Raises ConfigError with what is wrong in all files at once.
    """
    paths = yaml_files(directory)
    if not paths:
        raise ConfigError([nothing_in(directory)])
    files: list[Formatted] = []
    problems: list[Diagnostic] = []
    for path in paths:
        try:
            content = content_of(path)
            files.append(Formatted(path, content, format_text(decode(content, path.name), path.name)))
        except ConfigError as problem:
            problems += problem.diagnostics
    if problems:
        raise ConfigError(problems)
    return files


def rewrite(file: Formatted) -> None:
    """Put the normal form in the file's place: whole or not at all; links, mode and owner stay."""
    if content_of(file.path) != file.content:
        raise LlmgwctlError(f"{file.path} was changed by someone else just now: it is left as it is.", "Try again.")
    try:
        target = file.path.resolve()
        status = target.stat()
        write_atomically(target, file.normal, mode=status.st_mode & 0o7777, owner=(status.st_uid, status.st_gid))
    except OSError as problem:
        raise LlmgwctlError(f"{file.path} can't be written: {problem.strerror or problem}") from None
