"""Small readers of values: text, amounts, durations, environment; problems are collected, not raised."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from decimal import Decimal

from llmgwctl.config.nodes import Node
from llmgwctl.config.wording import did_you_mean, quoted
from llmgwctl.diagnostics import Diagnostic, Severity, SourceRange, error, warning
from llmgwctl.domain.catalog import Env, EnvValue, SecretRef
from llmgwctl.engines.secrecy import looks_secret, secret_words

_SUGGESTIONS = 100
_UNIT_S = {
    "us": Decimal("0.000001"),
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(us|ms|s|m|h|d)")


@dataclass(slots=True)
class Report:
    """Collects what is wrong; `entry` is put before each summary (`Model x, profile y: `)."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    entry: str = ""

    def error(self, summary: str, detail: str, at: SourceRange | None) -> None:
        """Add an error."""
        self.diagnostics.append(error(self._about(summary), detail, at))

    def warning(self, summary: str, detail: str, at: SourceRange | None) -> None:
        """Add a warning."""
        self.diagnostics.append(warning(self._about(summary), detail, at))

    def about(self, entry: str) -> Report:
        """Return a report of the same list about an entry."""
        return Report(self.diagnostics, entry)

    @property
    def failed(self) -> bool:
        """Whether there is an error."""
        return any(d.severity is Severity.ERROR for d in self.diagnostics)

    def sorted(self) -> tuple[Diagnostic, ...]:
        """Return the diagnostics by place; the same words at one place are said once."""
        nowhere = SourceRange("", 0, 0)
        once = dict.fromkeys(self.diagnostics)
        return tuple(sorted(once, key=lambda d: (d.at or nowhere, d.severity.value, d.summary)))

    def did_you_mean(self, word: str, options: Iterable[str]) -> str:
        """Return `Did you mean …?`, or nothing where none is near or much is wrong: comparing takes its time."""
        return did_you_mean(word, options) if len(self.diagnostics) < _SUGGESTIONS else ""

    def _about(self, summary: str) -> str:
        return f"{self.entry}: {summary}" if self.entry else summary


def text_of(node: Node | None, what: str, report: Report, default: str = "") -> str:
    """Return a text; one that begins or ends with a blank is an error, since nobody could see or type it."""
    if node is None:
        return default
    text: str = node.value
    if text != text.strip():
        report.error(f"{what} `{quoted(text)}` begins or ends with a blank.", "Remove the blank.", node.at)
    return text


def optional_text(node: Node | None, what: str, report: Report) -> str | None:
    """Return a text, or None where there is none."""
    return None if node is None else text_of(node, what, report)


def texts_of(node: Node | None, what: str, report: Report) -> tuple[str, ...]:
    """Return the texts of a list, in the order written."""
    return tuple(text_of(element, what, report) for element in node.elements()) if node else ()


def words_of(node: Node | None) -> tuple[str, ...]:
    """Return the words of a command line; numbers and true/false count as they were written."""
    return tuple(element.text for element in node.elements()) if node else ()


def pairs_of(node: Node | None) -> tuple[tuple[str, str], ...]:
    """Return a mapping of texts, sorted by key; numbers and true/false count as they were written."""
    return tuple(sorted((key, child.text) for key, child in node.items())) if node else ()


def whole(node: Node | None, default: int) -> int:
    """Return a whole number."""
    return default if node is None else int(node.value)


def optional_whole(node: Node | None) -> int | None:
    """Return a whole number, or None where there is none."""
    return None if node is None else int(node.value)


def flag(node: Node | None, default: bool) -> bool:
    """Return true or false."""
    return default if node is None else bool(node.value)


def millicores(node: Node | None, default: int = 0) -> int:
    """Return cores in thousandths, exactly; the rest below one is dropped, so that parts never add up to more."""
    return _scaled(node, Decimal(1000), default)


def mebibytes(node: Node | None, default: int = 0) -> int:
    """Return GiB in MiB, exactly; the rest below one is dropped, so that parts never add up to more."""
    return _scaled(node, Decimal(1024), default)


def duration(node: Node | None, what: str, longest_s: int, report: Report) -> Decimal | None:
    """Return a duration (`250ms`, `1.5s`, `1h30m`) in seconds; None where there is none, or an absurd one."""
    if node is None:
        return None
    if not isinstance(node.value, str):
        return Decimal(0)  # the schema takes only numbers that are nothing or less
    total = sum((Decimal(number) * _UNIT_S[unit] for number, unit in _PART.findall(node.value)), Decimal(0))
    if total > longest_s:
        report.error(f"{what} is {quoted(node.text)}.", f"Write at most `{longest_s // 3600}h`.", node.at)
        return None
    return -total if node.value.startswith("-") else total


def env_of(node: Node | None, report: Report) -> Env:
    """Return environment variables sorted by name; a secret that is written out is warned of."""
    if node is None:
        return ()
    return tuple(sorted((name, _env_value(name, child, report)) for name, child in node.items()))


def warn_of_secret_words(node: Node | None, refused: Collection[int | None], report: Report) -> None:
    """Warn of words of a command line that look like a secret; those at the indices `refused` have an error."""
    for index, flag in secret_words(words_of(node)):
        if node is None or index in refused or index - 1 in refused:
            continue
        what = f"the value of `{quoted(flag)}`" if flag else "a word of it"
        variable = "HF_TOKEN" if "hf" in flag or not flag else "NAME"
        report.warning(
            f"{what} looks like a secret that is written out: it is seen in `ps` on the host, and in the plan.",
            f"Take it out, and give it by a variable that the engine reads: `env: {{{variable}: {{from_env: "
            f"{variable}}}}}`. Change the secret if this file was ever shared.",
            node.elements()[index].at,
        )


def unique(nodes: Iterable[tuple[str, Node]]) -> tuple[dict[str, Node], list[tuple[str, Node, Node]]]:
    """Return the first node of each name, and the repetitions as (name, repetition, first)."""
    first: dict[str, Node] = {}
    again = []
    for name, node in nodes:
        if name in first:
            again.append((name, node, first[name]))
        else:
            first[name] = node
    return first, again


def _scaled(node: Node | None, factor: Decimal, default: int) -> int:
    if node is None:
        return default
    amount = Decimal(str(node.value)) * factor
    return max(1, int(amount)) if amount > 0 else 0


def _env_value(name: str, node: Node, report: Report) -> EnvValue:
    if isinstance(node.value, dict):
        ((kind, source),) = node.items()
        return SecretRef(kind, tuple(e.text for e in source.elements()) if kind == "from_command" else (source.text,))
    if looks_secret(name, node.text):
        report.warning(
            f"The variable {name} looks like a secret that is written out.",
            f"Write `{name}: {{from_env: {name}}}` (or from_file, from_command), and change the secret if this "
            "file was ever shared.",
            node.at,
        )
    return node.text
