"""Secrets are read with bounds, and no part of one is shown."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from llmgwctl.app import secrets
from llmgwctl.app.secrets import SecretError, Secrets
from llmgwctl.domain.catalog import SecretRef
from llmgwctl.render.plan_json import SENSITIVE


def command(*argv: str) -> SecretRef:
    return SecretRef("from_command", argv)


def test_every_line_of_a_secret_is_redacted(tmp_path: Path):
    """A log's end may show some lines of a key; none of them may pass."""
    lines = ["-----BEGIN KEY-----", *(f"line-{n}-of-the-key" for n in range(30)), "-----END KEY-----"]
    (tmp_path / "pem").write_text("\n".join(lines) + "\n")
    known = Secrets(tmp_path)
    known.value(SecretRef("from_file", ("pem",)))
    assert known.redact("\n".join(lines[-20:])) == "\n".join([SENSITIVE] * 20)


@pytest.mark.parametrize(
    "ref",
    [command("sh", "-c", "yes"), SecretRef("from_file", ("/dev/zero",)), SecretRef("from_file", ("large",))],
)
def test_what_no_environment_may_hold_is_refused_at_once(tmp_path: Path, ref: SecretRef):
    """Endless and too large values are refused, and only a little of them is read."""
    (tmp_path / "large").write_text("x" * 200_000)
    begun = time.monotonic()
    with pytest.raises(SecretError, match=r"128 KiB|NUL"):
        Secrets(tmp_path).value(ref)
    assert time.monotonic() - begun < 10


def test_a_command_has_only_so_long(tmp_path: Path, monkeypatch):
    """It is killed, and the message names the command and no output."""
    monkeypatch.setattr(secrets, "_COMMAND_TIMEOUT_S", 0.3)
    with pytest.raises(SecretError, match=r"\(sh\): it did not end within") as problem:
        Secrets(tmp_path).value(command("sh", "-c", "echo planted; sleep 60"))
    assert "planted" not in str(problem.value)


def test_a_child_in_the_background_is_not_waited_for(tmp_path: Path):
    """It holds the pipe; the command has ended all the same."""
    begun = time.monotonic()
    assert Secrets(tmp_path).value(command("sh", "-c", "sleep 20 & printf ok")) == "ok"
    assert time.monotonic() - begun < 5


@pytest.mark.parametrize(
    ("ref", "words"),
    [
        (command("sh", "-c", "echo planted; exit 3"), "status 3"),
        (command("/no/such/command"), "No such file"),
        (command("printf", "\\377"), "UTF-8"),
        (SecretRef("from_file", ("missing",)), "missing can't be read"),
        (SecretRef("from_env", ("NOT_SET_ANYWHERE",)), "NOT_SET_ANYWHERE is not set"),
    ],
)
def test_what_is_wrong_is_said_without_the_value(tmp_path: Path, ref: SecretRef, words: str):
    """The place, never the content."""
    with pytest.raises(SecretError, match=words) as problem:
        Secrets(tmp_path).value(ref)
    assert "planted" not in str(problem.value)


def test_a_last_newline_is_taken_off(tmp_path: Path):
    """One only: files and commands end with one."""
    (tmp_path / "token").write_text("a\n\n")
    assert Secrets(tmp_path).value(SecretRef("from_file", ("token",))) == "a\n"
    assert Secrets(tmp_path).value(command("echo", "b")) == "b"
