"""Takes an answer apart at its marks; whatever is outside of them is noise."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmgwctl.hosts.probe.failures import read_failure
from llmgwctl.hosts.probe.request import ProbeError
from llmgwctl.hosts.transport import last_words

_NEEDED = frozenset({"base", "replicas", "finish"})
"""Without them an answer is none: a host must not look as if its replicas were gone."""


@dataclass(frozen=True, slots=True)
class Section:
    """What one question was answered, and the exit status of what answered."""

    text: str
    status: int = 0

    def lines(self) -> list[str]:
        """Return the lines that aren't empty."""
        return [line for line in self.text.splitlines() if line]


def sections(answer: bytes, token: str, host: str, errors: bytes = b"", status: int = 0) -> dict[str, Section]:
    """Return the sections by name; `errors` and `status` are how the shell that should have answered ended.

    Raises ProbeError where a section that is needed is missing.
    """
    text = answer.decode("utf-8", "replace")
    if "\r" in text:  # a terminal in between
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    found: dict[str, Section] = {}
    pattern = re.compile(rf"{re.escape(token)} B (\S+)\n(.*?)\n?{re.escape(token)} E \1 (\d+)", re.DOTALL)
    for name, body, ended in pattern.findall(text):
        found.setdefault(name, Section(body, int(ended)))
    if found.keys() >= _NEEDED:
        return found
    raise ProbeError(_why(text, token, found, host, errors.decode("utf-8", "replace"), status))


def _why(text: str, token: str, found: dict[str, Section], host: str, errors: str, status: int) -> str:
    if found or f"{token} B " in text:
        last = list(found)[-1] if found else "its first section"
        return f"{host}: the probe's answer is cut off after {last!r}."
    # A login shell may greet on one stream and say on the other why it starts nothing.
    said = last_words(text, errors)
    if not said:
        return (
            f"{host}: the probe printed nothing (exit status {status}); is the login shell a shell that starts /bin/sh?"
        )
    failure = read_failure(f"{text}\n{errors}")
    if failure is not None:
        return f"{host}: the probe did not run (exit status {status}). {failure.message} The host said: {said}"
    return f"{host}: the probe did not run (exit status {status}); the host said: {said}"
