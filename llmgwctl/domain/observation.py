"""All that was seen at one time."""

from __future__ import annotations

from dataclasses import dataclass

from llmgwctl.domain.inventory import Node


@dataclass(frozen=True, slots=True)
class Observation:
    """All nodes, sorted by name, and when they were looked at (RFC 3339, UTC)."""

    taken_at: str
    nodes: tuple[Node, ...] = ()
