"""What a probe asks for, and how it fails."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from llmgwctl.errors import LlmgwctlError


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """What to look for beside what every host is asked.

    `replica_dir` is the folder of our replicas' folders (default: by user). The disks of `paths` are reported, or of
    their nearest existing parent. `commands` maps an engine's name to the command it is said to have.
    A tool of a GPU's maker has `tool_timeout_s`: without persistence mode the driver starts anew for each call.
    """

    replica_dir: str | None = None
    paths: tuple[str, ...] = ()
    commands: Mapping[str, str] = field(default_factory=dict)
    tool_timeout_s: int = 30


class ProbeError(LlmgwctlError):
    """A host's answer cannot be read; the message says why, in plain words."""
