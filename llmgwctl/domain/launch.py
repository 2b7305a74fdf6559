"""The exact command of one member of a replica: what is approved is what is run."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from llmgwctl.domain.catalog import Env, SecretRef


@dataclass(frozen=True, slots=True)
class Readiness:
    """How to see that an engine serves.

    `health_path` answers 200 once the engine is up; `models_path` lists `served_name` (llama-server is healthy
    without any model, so health alone proves nothing). A member that runs no HTTP server of its own
    (rank > 0) has an empty `health_path`, and counts as ready while its process lives.
    """

    health_path: str
    models_path: str = ""
    served_name: str = ""
    timeout_s: float = 5.0


@dataclass(frozen=True, slots=True)
class StopPolicy:
    """How an engine is asked to end before it is killed.

    `grace_s` is waited after TERM; `second_term` sends TERM again after that, and waits `second_grace_s`
    (llama-server leaves at once on the second one); then the whole group is killed.
    """

    grace_s: float = 20.0
    second_term: bool = False
    second_grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """How to start one member.

    `argv[0]` is a path or a name found by PATH on the host. `env` is everything the engine gets beside PATH, HOME,
    LANG and `device_env`; values that are secret are references. `device_env` names the variable that selects GPUs
    (empty: none): it is set when the engine starts, from the UUIDs in `gpus`, because indices change over reboots.
    `files` are assets of ours, copied beside the start script. `folder` is the member's folder below the
    replica directory, and its unit's instance name. `ports` counts the ports it may use, from `port` on; `root` is the
    host's replica directory.
    """

    folder: str
    engine: str
    argv: tuple[str, ...]
    env: Env
    gpus: tuple[str, ...]
    device_env: str
    files: tuple[str, ...]
    address: str
    port: int
    readiness: Readiness
    stop: StopPolicy
    startup_timeout_s: float
    ports: int = 1
    root: str = ""

    @property
    def digest(self) -> str:
        """Return a SHA-256 over what makes a running process another one when it changes.

        Time-outs and readiness are left out: they change nothing in a process that already runs.
        """
        env = [[k, [v.kind, *v.source] if isinstance(v, SecretRef) else v] for k, v in self.env]
        text = json.dumps(
            [self.engine, self.argv, env, sorted(self.gpus), self.device_env, self.address, self.port],
            separators=(",", ":"),
            ensure_ascii=True,
        )
        return hashlib.sha256(text.encode()).hexdigest()


def unfit_for_root(path: str) -> str:
    """Say why a path can't be a replica directory; empty where it can.

    It goes into a systemd unit, and into lists with a path a line; systemd has no way to quote these characters in all
    of a unit's lines.
    """
    if not path.startswith("/"):
        return "is not an absolute path"
    if any(ord(c) < 32 or ord(c) == 127 for c in path):
        return "has a control character, such as a line break or a tab"
    for character, name in (('"', "double quote"), ("\\", "backslash")):
        if character in path:
            return f"has a {name}"
    return ""
