"""Every collected sample is read as its index says, and every expected fact is compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from llmgwctl.hosts.probe.reading import Reading, read

FOLDER = Path(__file__).parents[2] / ".." / "shared" / "data" / "inventory"
INDEX = FOLDER / "index.yaml"
PROSE = {"user_message", "note"}
WORDS_APART = 0.5
"""Prose says the same when half of the expected words that carry meaning, and every number in it, are there."""


def entries():
    return yaml.safe_load(INDEX.read_text(encoding="utf-8"))["files"] if INDEX.exists() else []


@pytest.mark.skipif(not INDEX.exists(), reason="the collected samples are not here")
@pytest.mark.parametrize("entry", entries(), ids=lambda e: Path(e["file"]).name)
def test_sample(entry):
    """A reader says of a sample exactly what its index entry expects."""
    text = (FOLDER / entry["file"]).read_text(encoding="utf-8")
    reading = read(entry["kind"], text, exit_code(entry))
    assert isinstance(reading, Reading)
    wrong = {}
    for key, wanted in entry["expect"].items():
        assert key in reading, f"the reader tells nothing about {key}"
        if not agrees(key, wanted, reading[key]):
            wrong[key] = {"expected": wanted, "read": reading[key]}
    assert not wrong


def exit_code(entry) -> int | None:
    match = re.match(r"\d+", str(entry.get("exit_code", "")))
    return int(match[0]) if match else None


def agrees(key, wanted, got) -> bool:
    if key in PROSE:
        return same_substance(wanted, got)
    if isinstance(wanted, dict) and isinstance(got, dict):
        wanted = expanded(wanted)
        return all(k in got and agrees(k, v, got[k]) for k, v in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        if wanted and isinstance(wanted[0], dict) and key == "listening":
            return all(any(agrees("", w, g) for g in got) for w in wanted)
        return len(wanted) == len(got) and all(agrees(key, w, g) for w, g in zip(wanted, got, strict=True))
    if isinstance(wanted, str) and isinstance(got, str):
        return without_remark(wanted) == without_remark(got)
    return wanted == got and isinstance(wanted, bool) == isinstance(got, bool)


def without_remark(text: str) -> str:
    """Drop what the index explains in brackets behind a value: `NVIDIA GeForce ... (truncated …)`."""
    return re.sub(r"(\.\.\.|\d+gb) \((?:truncated|by device id).*\)$", r"\1", text).strip()


def expanded(facts: dict) -> dict:
    """Spell out `GPU0-3: 0`."""
    found = {}
    for key, item in facts.items():
        match = re.fullmatch(r"GPU(\d+)-(\d+)", str(key))
        if match:
            found.update({f"GPU{n}": item for n in range(int(match[1]), int(match[2]) + 1)})
        else:
            found[key] = item
    return found


def same_substance(wanted: str, got: str) -> bool:
    def words(text: str) -> set[str]:
        return {w for w in re.findall(r"[\w:./-]+", text.lower()) if len(w) > 3}

    numbers = set(re.findall(r"[0-9A-Fa-f:.]*\d[0-9A-Fa-f:.]*\d|\b\d\b", wanted.rstrip(".")))
    return len(words(wanted) & words(got)) >= WORDS_APART * len(words(wanted)) and all(
        n.strip(".:") in got for n in numbers
    )
