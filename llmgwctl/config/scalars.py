"""YAML 1.2's core schema: what a scalar written without quotes means."""

from __future__ import annotations

import re

Scalar = str | int | float | bool | None

_NULLS = frozenset({"", "~", "null", "Null", "NULL"})
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_DECIMAL = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_SPECIAL = re.compile(r"([-+]?)(?:\.inf|\.Inf|\.INF)|\.nan|\.NaN|\.NAN")
_MAY_BE_NUMBER = frozenset("-+.0123456789")
_MAY_BE_WORD = frozenset("~nNtTfF")
LONGEST_NUMBER = 100
"""Longer runs of digits are text: no setting takes such a number, and turning them into one is slow."""


def core_scalar(text: str) -> Scalar:
    """Return what `text` means when written without quotes.

    Only the core schema's forms are special: `no`, `on`, `1_000`, `0b1`, `12:30:45` and dates are text.
    """
    first = text[:1]
    if first in _MAY_BE_NUMBER and first:
        return _number(text)
    if not first or first in _MAY_BE_WORD:
        if text in _NULLS:
            return None
        return _BOOLEANS.get(text, text)
    return text


def _number(text: str) -> Scalar:
    if len(text) > LONGEST_NUMBER:
        return text
    if _DECIMAL.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text.startswith("0o"):
        return int(text[2:], 8) if re.fullmatch(r"[0-7]+", text[2:]) else text
    if text.startswith("0x"):
        return int(text[2:], 16) if re.fullmatch(r"[0-9a-fA-F]+", text[2:]) else text
    if special := _SPECIAL.fullmatch(text):
        if text.endswith(("nan", "NaN", "NAN")):
            return float("nan")
        return float("-inf") if special[1] == "-" else float("inf")
    return text
