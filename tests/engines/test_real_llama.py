"""The command line of llama.cpp, given to a real server with a real model."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

from llmgwctl.domain.desired import EngineInstall
from llmgwctl.engines import registry
from tests.engines.cases import model, profile, site


def get(url: str) -> tuple[int, bytes]:
    try:
        with urllib.request.urlopen(url, timeout=60) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as refused:
        return refused.code, b""
    except OSError:
        return 0, b""


@pytest.mark.real_engine
@pytest.mark.parametrize(("args", "slots"), [((), 1), (("-np", "2"), 2)])
def test_each_slot_has_the_models_context_and_every_name_is_served(llama, args, slots):
    """llama.cpp divides `-c` by the slots; what is asked for per request is what it reports."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    wanted = model(str(llama.model), name="smol", aliases=("s1", "team/s2"), context_length=1024)
    install = EngineInstall((sys.executable, str(llama.server)))
    where = site(address="127.0.0.1", gpus=0, port=port, install=install)
    spec = registry.get("llamacpp").launch(wanted, profile("llamacpp", gpus_per_node=0, args=args), (where,), 0)
    packages = ":".join(str(p.parent) for p in llama.tree.glob("**/xllamacpp") if p.is_dir())
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": packages, **{k: str(v) for k, v in spec.env}}
    process = subprocess.Popen(spec.argv, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        end = time.monotonic() + 120
        while get(f"http://127.0.0.1:{port}{spec.readiness.health_path}")[0] != 200:
            assert process.poll() is None, f"it ended with {process.returncode}"
            assert time.monotonic() < end, "it never became ready"
            time.sleep(0.1)
        entry = json.loads(get(f"http://127.0.0.1:{port}{spec.readiness.models_path}")[1])["data"][0]
        assert {entry["id"], *entry["aliases"]} == {"smol", "s1", "team/s2"}
        assert entry["meta"]["n_ctx"] == 1024
        assert str(1024 * slots) in spec.argv
        assert b"llamacpp:requests_processing" in get(f"http://127.0.0.1:{port}/metrics")[1]
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
