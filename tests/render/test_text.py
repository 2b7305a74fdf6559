"""Nothing that a host says can steer the reader's terminal."""

from __future__ import annotations

from llmgwctl.diagnostics import Diagnostic, Severity, SourceRange
from llmgwctl.render.text import Style, diagnostics_text, plain, printable, table

EVIL = "a\x1b[2J\x1b]0;PWNED\x07\r\x9b31mb"


def shows(text: str) -> str:
    """Return the control characters in a text, newlines and tabs left out."""
    return "".join(c for c in text if not c.isprintable() and c not in "\n\t")


def test_every_text_for_people_is_without_control_characters():
    """Diagnostics with their places and details, tables and plain words."""
    said = Diagnostic(Severity.WARNING, EVIL, f"{EVIL}\n{EVIL}", SourceRange(EVIL, 1, 1))
    assert shows(diagnostics_text([said], Style())) == ""
    assert shows(table(("a",), [(EVIL,)])) == ""
    assert shows(plain(EVIL) + printable(EVIL)) == ""


def test_logs_keep_their_colours_on_a_terminal():
    """Engines colour their logs; colours are harmless, and all else that is no text is written out."""
    assert printable("\x1b[36mINFO\x1b[0m ok\r\n\x1b[2J", colours=True) == "\x1b[36mINFO\x1b[0m ok\n\\x1b[2J"
    assert printable("\x1b[36mINFO\x1b[0m ok") == "INFO ok"


def test_one_long_cell_does_not_widen_a_table_for_ever():
    """Its beginning and its end stay."""
    (_, row) = table(("name",), [("x" * 500 + "/12",)]).splitlines()
    assert len(row) <= 120
    assert row.endswith("x/12")
