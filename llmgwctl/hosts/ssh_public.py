"""The public half of a key file: in the file itself, in the private key, or beside it."""

from __future__ import annotations

import base64
import binascii
import contextlib
from dataclasses import dataclass
from pathlib import Path

import paramiko

PRIVATE_BEGIN = b"-----BEGIN "
_OPENSSH_BEGIN = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_OPENSSH_END = b"-----END OPENSSH PRIVATE KEY-----"
_OPENSSH_MAGIC = b"openssh-key-v1\0"
_LARGEST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Public:
    """A public key, empty where none is found, and its certificate; `alone` where the file itself holds only that."""

    key: bytes = b""
    certificate: paramiko.pkey.PublicBlob | None = None
    alone: bool = False


def public_of(file: str) -> Public:
    """Return the public half of the key that IdentityFile names, without opening its private one."""
    text = _read(file)
    written = _line_of(text)
    beside = _line_of(_read(f"{file}.pub"))
    found = written or beside
    key = bytes(found.key_blob) if found else _of_private(text)
    return Public(key, _line_of(_read(f"{file}-cert.pub")), alone=written is not None)


def _read(file: str) -> bytes:
    with contextlib.suppress(OSError), Path(file).open("rb") as opened:
        return opened.read(_LARGEST_BYTES)
    return b""


def _line_of(text: bytes) -> paramiko.pkey.PublicBlob | None:
    """Return the first line's key or certificate; None where the text is something else."""
    if text.startswith(PRIVATE_BEGIN):
        return None
    lines = [line for line in text.decode("utf-8", "replace").splitlines() if line.strip() and line[0] != "#"]
    with contextlib.suppress(ValueError, IndexError, paramiko.SSHException):
        return paramiko.pkey.PublicBlob.from_string(lines[0])
    return None


def _of_private(text: bytes) -> bytes:
    """Return the public key that OpenSSH's format holds in the clear, though the private one is encrypted."""
    _, found, rest = text.partition(_OPENSSH_BEGIN)
    body, ended, _ = rest.partition(_OPENSSH_END)
    if not found or not ended:
        return b""
    try:
        fields = paramiko.Message(base64.b64decode(body).removeprefix(_OPENSSH_MAGIC))
    except binascii.Error:
        return b""
    for _ in ("cipher", "kdf", "its options"):
        fields.get_binary()
    return fields.get_binary() if fields.get_int() == 1 else b""
