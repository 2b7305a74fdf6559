"""The one POSIX-sh script that a host is asked to run: few processes, no writes beside a folder that is removed."""

from __future__ import annotations

import functools
import shlex
from importlib import resources

from llmgwctl.hosts.probe.request import ProbeRequest

DEFAULT_COMMANDS = {"llamacpp": "llama-server", "sglang": "sglang", "vllm": "vllm"}
"""What an engine is found by where nothing else is said."""
_PATIENCE = 1.75
"""How many times a tool's limit all slow tools together are waited for; they run side by side."""
_NAP_S = 0.05


def build_script(request: ProbeRequest, token: str) -> str:
    """Return the script for `/bin/sh -s`; `token` (letters and digits, random) marks what is ours in the answer."""
    if not token.isalnum():
        raise ValueError("a token is made of letters and digits")
    commands = {**DEFAULT_COMMANDS, **request.commands}
    engines = "\n".join(f"engine {shlex.quote(n)} {shlex.quote(c)}" for n, c in sorted(commands.items()))
    return (
        _template()
        .replace("%TOKEN%", token)
        .replace("%ROOT%", shlex.quote(request.replica_dir or ""))
        .replace("%PATHS%", " ".join(shlex.quote(p) for p in request.paths))
        .replace("%ENGINES%", engines)
        .replace("%FIRST%", str(request.tool_timeout_s))
        .replace("%NEXT%", str(max(1, request.tool_timeout_s * 2 // 3)))
        .replace("%NAPS%", str(int(request.tool_timeout_s * _PATIENCE / _NAP_S)))
    )


@functools.cache
def _template() -> str:
    return resources.files("llmgwctl.hosts.probe").joinpath("probe.sh").read_text(encoding="utf-8")
