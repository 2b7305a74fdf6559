"""Which words a user may not put into `args`: what an adapter writes itself, and what an engine no longer knows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from llmgwctl.engines.base import Problem
from llmgwctl.engines.secrecy import hides_value

MAX_ARG_BYTES = 131_071
"""Linux takes no longer word in a command line (MAX_ARG_STRLEN, with its closing NUL)."""

_NUMBER = re.compile(r"-\d+(\.\d*)?([eE][+-]?\d+)?$|-\.\d+$")
_FLAG_AND_MORE = re.compile(r"--?[A-Za-z][\w.-]*\s")


@dataclass(frozen=True, slots=True)
class Rule:
    """Flags that are refused, and what to do instead. A `*` in a name stands for anything."""

    flags: tuple[str, ...]
    instead: str


@dataclass(frozen=True, slots=True)
class Grammar:
    """How an engine reads its flags.

    `owned` are written by the adapter or would break what it promises, `gone` were removed or renamed. With
    `abbreviations` a flag may be cut short as long as it stays unique, which is how Python's argparse reads.
    """

    engine: str
    owned: tuple[Rule, ...]
    gone: tuple[Rule, ...] = ()
    abbreviations: bool = False


def check_args(args: Sequence[str], grammar: Grammar) -> tuple[Problem, ...]:
    """Return one problem per word that may not stand in `args`, in their order."""
    return tuple(p for index, word in enumerate(args) for p in _check_word(args, index, word, grammar))


def flag_key(word: str) -> str:
    """Return the flag that a word names, as the engines compare them: no value, dashes only; empty for a value."""
    if not word.startswith("-") or len(word) < 2 or _NUMBER.match(word):
        return ""
    return word.partition("=")[0].replace("_", "-")


def names_flag(args: Iterable[str], *flags: str) -> bool:
    """Whether one of these flags is among the words, with or without an attached value."""
    return any(flag_key(word) in flags for word in args)


def flag_value(args: Sequence[str], *flags: str) -> str | None:
    """Return the last value given to one of these flags, attached or as the next word; None where there is none."""
    found = None
    for index, word in enumerate(args):
        if flag_key(word) in flags:
            _, attached, value = word.partition("=")
            found = value if attached else args[index + 1] if index + 1 < len(args) else found
    return found


def _check_word(args: Sequence[str], index: int, word: str, grammar: Grammar) -> Iterable[Problem]:
    if "\0" in word:
        yield Problem("args", "an argument holds a NUL character", "No program can be given one: remove it.", index)
        return
    if len(word.encode("utf-8", "surrogatepass")) > MAX_ARG_BYTES:
        yield Problem("args", "an argument is longer than 128 KiB", "Linux refuses it: put it into a file.", index)
        return
    if word == "--":
        yield Problem("args", "`--` is not allowed", "It would turn what follows into the model's name.", index)
        return
    key = flag_key(word)
    if not key:
        if _is_stray(args, index):
            yield Problem(
                "args",
                f"{_shown(word)} belongs to no flag",
                "Every value follows its flag, as an entry of its own; the model is named by the model's `source`.",
                index,
            )
        return
    if _FLAG_AND_MORE.match(word) and not _may_be_value(args, index):
        flag, value = word.split(maxsplit=1)
        hidden = hides_value(flag)
        yield Problem(
            "args",
            f"{_shown(f'{flag} …' if hidden else word)} is a flag and its value in one entry",
            "Write two entries, the flag and its value."
            if hidden
            else f"Write two entries: {flag!r}, {value.strip()!r}.",
            index,
        )
        return
    found = _refusal(key, grammar)
    if found:
        yield Problem("args", found[0], found[1], index)


def _refusal(key: str, grammar: Grammar) -> tuple[str, str] | None:
    """Return summary and detail where a flag is refused; an exact match says more than a prefix."""
    for rule in grammar.gone:
        if key in rule.flags:
            return f"{grammar.engine} no longer knows {key}", rule.instead
    bases = (key, key.partition(".")[0], "--" + key.removeprefix("--no-") if key.startswith("--no-") else key)
    for rule in grammar.owned:
        if any(_same(base, flag) for base in bases for flag in rule.flags):
            return f"{key} is not for args", rule.instead
    if grammar.abbreviations:
        base = bases[1]
        for rule in grammar.owned:
            long = next((f for f in rule.flags if f.rstrip("*").startswith(base)), None)
            if long:
                return f"{key} is read as short for {long}, which is not for args", rule.instead
    return None


def _same(key: str, flag: str) -> bool:
    if "*" in flag:
        start, _, end = flag.partition("*")
        return key.startswith(start) and key.endswith(end) and len(key) >= len(start) + len(end)
    if key == flag:
        return True
    if flag.startswith("--"):
        return False
    rest = key.removeprefix(flag)
    return rest != key and (rest.isdigit() or (len(flag) == 2 and flag in _TAKES_ATTACHED))


_TAKES_ATTACHED = frozenset({"-n", "-r"})
"""One-letter flags of argparse engines: whatever follows the letter is their value."""


def _is_stray(args: Sequence[str], index: int) -> bool:
    """Whether a word that is no flag can't be a flag's value: the first one, or one after `--flag=value`."""
    return index == 0 or (bool(flag_key(args[index - 1])) and "=" in args[index - 1])


def _may_be_value(args: Sequence[str], index: int) -> bool:
    return index > 0 and bool(flag_key(args[index - 1])) and "=" not in args[index - 1]


def _shown(word: str) -> str:
    return repr(word if len(word) <= 60 else word[:57] + "…")
