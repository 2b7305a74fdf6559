"""The program as a user runs it, in a configuration directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any


class Program:
    """Runs llmgwctl on one configuration directory. `output` collects all it ever printed."""

    def __init__(self, directory: Path, env: dict[str, str] | None = None) -> None:
        self.directory = directory
        self.env = {**os.environ, "LLMGWCTL_DEBUG": "1", **(env or {})}
        self.output = ""

    def write(self, document: dict[str, Any], name: str = "fleet.yaml") -> None:
        """Write a configuration file; JSON is YAML."""
        (self.directory / name).write_text(json.dumps(document, indent=1))

    def start(self, *arguments: str) -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "llmgwctl", "-C", str(self.directory), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.env,
        )

    def run(self, *arguments: str, code: int | None = 0, timeout_s: float = 180) -> subprocess.CompletedProcess:
        """Run a command; `code` is the exit code that it must have (None: any)."""
        process = self.start(*arguments)
        out, err = process.communicate(timeout=timeout_s)
        self.output += out + err
        assert code is None or process.returncode == code, f"{arguments}: {process.returncode}\n{out}\n{err}"
        return subprocess.CompletedProcess(arguments, process.returncode, out, err)

    def json(self, *arguments: str, code: int | None = 0) -> dict[str, Any]:
        return json.loads(self.run(*arguments, "--json", code=code).stdout)

    def changes(self, **options: Any) -> list[tuple[str, str, str]]:
        """Return what a plan would change: action, replica, reason."""
        plan = self.json("plan", **options)
        return [(a["action"], a["replica"], a["reason"]["code"]) for a in plan["actions"] if a["action"] != "keep"]

    def status(self) -> dict[str, dict[str, Any]]:
        return {r["replica"]: r for r in self.json("status")["replicas"]}


def chat(endpoint: str, model: str, **body: Any) -> dict[str, Any]:
    """Ask a model something, and return its whole answer."""
    question = {"model": model, "messages": [{"role": "user", "content": "Say hello."}], "max_tokens": 16, **body}
    request = urllib.request.Request(
        f"{endpoint}/v1/chat/completions", json.dumps(question).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return json.load(answer)
