"""The one place where the time is asked for."""

from __future__ import annotations

from datetime import UTC, datetime

_FORM = "%Y-%m-%dT%H:%M:%SZ"


def now() -> str:
    """Return the time as RFC 3339 text, UTC, whole seconds."""
    return datetime.now(UTC).strftime(_FORM)


def seconds_since(text: str) -> float | None:
    """Return how long ago a time of ours was; None where the text is none."""
    try:
        then = datetime.strptime(text, _FORM).replace(tzinfo=UTC)
    except ValueError:
        return None
    return max(0.0, (datetime.now(UTC) - then).total_seconds())
