"""Small pieces of messages: a user's words, and what may have been meant."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Sequence


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return `Did you mean …?`, or nothing where no option is near."""
    near = difflib.get_close_matches(word, list(options), n=1, cutoff=0.6)
    if not near:
        near = [o for o in options if o.lower() == word.lower()][:1]
    return f"Did you mean `{quoted(near[0])}`?" if near else ""


def one_of(options: Sequence[str]) -> str:
    """Return `a, b or c`."""
    return options[0] if len(options) == 1 else f"{', '.join(options[:-1])} or {options[-1]}"


def quoted(text: str) -> str:
    """Return a user's text on one line, shortened, so that it can stand in a message."""
    shown = text if len(text) <= 80 else text[:79] + "…"
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in shown)
