"""The exact launch of each engine in each shape; the texts beside this file are what runs on hosts.

`LLMGWCTL_GOLDEN=write` writes them anew; read the difference before you commit it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from llmgwctl.engines import registry
from tests.engines.cases import EMBEDDINGS, TOOLS, model, profile, shown, site, sites

GOLDEN = Path(__file__).parent / "golden"
ALIASES = ("assistant", "gpt-4o")
CPU = {"gpus_per_node": 0, "memory_mib": 8192}

CASES = {
    "vllm-one-gpu": (model(aliases=ALIASES, context_length=32768), profile("vllm"), sites(1, 1), 0),
    "vllm-tp4-hub": (
        model("org/chat", capabilities=TOOLS),
        profile("vllm", tp=4, gpus_per_node=4, args=("--tool-call-parser", "hermes", "--max-num-seqs", "64")),
        sites(1, 4),
        0,
    ),
    "vllm-2x8-head": (model(), profile("vllm", tp=8, pp=2, gpus_per_node=8, nodes=2), sites(2, 8), 0),
    "vllm-2x8-second": (model(), profile("vllm", tp=8, pp=2, gpus_per_node=8, nodes=2), sites(2, 8), 1),
    "vllm-embeddings": (model(capabilities=EMBEDDINGS), profile("vllm"), sites(1, 1), 0),
    "vllm-amd": (model(), profile("vllm"), (site(vendor="amd"),), 0),
    "sglang-one-gpu": (model(aliases=ALIASES, context_length=32768), profile("sglang"), sites(1, 1), 0),
    "sglang-tp4": (model(), profile("sglang", tp=4, gpus_per_node=4, args=("--attn-dp-size", "2")), sites(1, 4), 0),
    "sglang-2x8-head": (model(), profile("sglang", tp=16, gpus_per_node=8, nodes=2), sites(2, 8), 0),
    "sglang-2x8-second": (model(), profile("sglang", tp=16, gpus_per_node=8, nodes=2), sites(2, 8), 1),
    "sglang-embeddings": (model(capabilities=EMBEDDINGS), profile("sglang"), sites(1, 1), 0),
    "llamacpp-cpu": (
        model("/models/chat.gguf", aliases=ALIASES, context_length=4096),
        profile("llamacpp", millicores=2500, **CPU),
        sites(1, 0),
        0,
    ),
    "llamacpp-cpu-slots": (
        model("/models/chat.gguf", context_length=4096),
        profile("llamacpp", args=("-np", "4", "-t", "6"), **CPU),
        sites(1, 0),
        0,
    ),
    "llamacpp-gpu-hub": (model("org/chat-GGUF:Q4_K_M"), profile("llamacpp", tp=2, gpus_per_node=2), sites(1, 2), 0),
    "llamacpp-embeddings": (
        model("/models/embed.gguf", capabilities=EMBEDDINGS, context_length=512),
        profile("llamacpp", **CPU),
        sites(1, 0),
        0,
    ),
    "sim-one-gpu": (
        model(aliases=ALIASES, context_length=4096),
        profile("sim", args=("--tokens-per-s", "50")),
        sites(1, 1),
        0,
    ),
    "sim-2x8-second": (model(capabilities=EMBEDDINGS), profile("sim", gpus_per_node=8, nodes=2), sites(2, 8), 1),
}


@pytest.mark.parametrize("name", CASES)
def test_launch_is_as_written(name):
    """A launch changes only when its text here changes; every case passes its own engine's check."""
    wanted, way, places, rank = CASES[name]
    engine = registry.get(way.engine)
    assert engine.check(wanted, way) == ()
    text = shown(engine.launch(wanted, way, places, rank))
    file = GOLDEN / f"{name}.txt"
    if os.environ.get("LLMGWCTL_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


def test_no_text_is_left_over():
    """Each golden text belongs to a case."""
    assert {f.stem for f in GOLDEN.glob("*.txt")} == set(CASES)
