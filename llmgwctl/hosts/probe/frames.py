"""Takes an answer apart at its marks; whatever is outside of them is noise."""

from __future__ import annotations

import re
from dataclasses import dataclass

from llmgwctl.hosts.probe.failures import first_line, read_failure
from llmgwctl.hosts.probe.request import ProbeError

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


def sections(answer: bytes, token: str, host: str) -> dict[str, Section]:
    """Return the sections by name. Raises ProbeError where one that is needed is missing."""
    text = answer.decode("utf-8", "replace")
    if "\r" in text:  # a terminal in between
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    found: dict[str, Section] = {}
    pattern = re.compile(rf"{re.escape(token)} B (\S+)\n(.*?)\n?{re.escape(token)} E \1 (\d+)", re.DOTALL)
    for name, body, status in pattern.findall(text):
        found.setdefault(name, Section(body, int(status)))
    if found.keys() >= _NEEDED:
        return found
    raise ProbeError(_why(text, token, found, host))


def _why(text: str, token: str, found: dict[str, Section], host: str) -> str:
    if not text.strip():
        return f"{host}: the probe printed nothing; is the login shell a shell that starts /bin/sh?"
    if found or f"{token} B " in text:
        last = list(found)[-1] if found else "its first section"
        return f"{host}: the probe's answer is cut off after {last!r}."
    failure = read_failure(text)
    said = first_line(text)
    if failure is not None:
        return f"{host}: the probe did not run. {failure.message} The host said: {said}"
    return f"{host}: the probe did not run; the host said: {said}"
