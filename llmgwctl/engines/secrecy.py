"""Which values look like secrets: a variable's, and a word's in a command line, which all on a host can read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

_WORDS = frozenset({"TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "CREDENTIAL", "CREDENTIALS", "APIKEY"})
_KEY_NAME = re.compile(r"(?:API|ACCESS|PRIVATE|SECRET|AUTH)_KEY(?:_|$)")
_PLACE_NAME = re.compile(r"_(?:FILE|PATH|DIR|URL|ID)$")
_VALUE = re.compile(r"(?:hf_|sk-|ghp_|glpat-|xox[bp]-)[A-Za-z0-9_-]{16,}")
_MARKUP = ("<", "[", "{")
"""A token of a model's language begins so; it is no secret, though its flag is called a token too."""


def looks_secret(name: str, value: str) -> bool:
    """Return whether a variable looks as if its value were a secret."""
    if not value or value.isdigit() or value.lower() in ("true", "false"):
        return False
    return _names_secret(name) or _VALUE.match(value) is not None


def secret_words(words: Sequence[str]) -> Iterator[tuple[int, str]]:
    """Yield the index of each word that looks like a secret, and the flag that it is given to (empty: none)."""
    flag = ""
    for index, word in enumerate(words):
        if word.startswith("-"):
            flag, _, value = word.partition("=")
        else:
            value = word
        if looks_secret("" if value.startswith(_MARKUP) else _variable(flag), value):
            yield index, flag
        if value:
            flag = ""


def hides_value(flag: str) -> bool:
    """Whether the value of a flag must not be shown."""
    return _names_secret(_variable(flag))


def _variable(flag: str) -> str:
    return flag.lstrip("-").replace("-", "_")


def _names_secret(name: str) -> bool:
    shouted = name.upper()
    if _PLACE_NAME.search(shouted):
        return False
    return bool(set(shouted.split("_")) & _WORDS or _KEY_NAME.search(shouted))
