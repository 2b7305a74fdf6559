"""What a plan is asked for beside the declaration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """`secret_digests` maps a secret reference, as text, to what its value hashes to now; absent where none can tell.

    `targets` limits the changes to those models; `replace` names replicas to start anew.
    """

    fill: bool = False
    destroy: bool = False
    refresh_only: bool = False
    targets: frozenset[str] = frozenset()
    replace: frozenset[str] = frozenset()
    secret_digests: Mapping[str, str] = field(default_factory=dict)
