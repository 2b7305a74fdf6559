"""How the simulated engine starts, fails and ends."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import pytest

from tests.sim.conftest import until

SLOW = {"messages": [{"role": "user", "content": "x"}], "stream": True, "max_tokens": 8}


def children_of(sim) -> list[str]:
    return Path(f"/proc/{sim.process.pid}/task/{sim.process.pid}/children").read_text().split()


def streaming(sim):
    """Begin a stream and read its first event, so that it is surely in flight."""
    connection = sim.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(SLOW))
    answer = connection.getresponse()
    assert answer.readline().startswith(b"data: ")
    return connection, answer


def test_while_loading_it_can_refuse_connections(start):
    """Like vLLM: the port is bound, and nobody listens until the model is loaded."""
    sim = start("--load-time-s", "600", ready=False)
    sim.wait_for("loading")
    assert sim.port == 0
    sim.term()
    assert sim.end() == 0
    assert any("stopped while loading" in line for line in sim.lines)


def test_while_loading_it_can_say_503(start):
    """Like llama-server: it listens at once, and says on every path that it loads."""
    sim = start("--load-time-s", "600", "--loading", "503", ready=False)
    sim.wait_for("loading")
    for path in ("/health", "/v1/models", "/metrics"):
        status, body = sim.json("GET", path)
        assert (status, body["error"]["message"], body["simulated"]) == (503, "Loading model", True)


def test_after_503_it_becomes_ready(start):
    """Loading ends by itself."""
    sim = start("--load-time-s", "0.2", "--loading", "503")
    assert sim.ask("GET", "/health")[0] == 200


def test_a_failure_to_start_has_its_message_last(start):
    """The log's last line and the exit status are those that were asked for."""
    sim = start("--fail-after-s", "0", "--fail-message", "CUDA out of memory", "--exit-status", "3", ready=False)
    assert sim.end() == 3
    assert sim.lines[-1].endswith("CUDA out of memory")


@pytest.mark.parametrize("status", [0, 7])
def test_a_crash_cuts_what_is_in_flight(start, status):
    """Engines have been seen to crash with status 0: a gone process is a failure whatever it says."""
    sim = start("--crash-after-s", "0.3", "--exit-status", str(status))
    assert sim.end() == status
    assert sim.lines[-1].endswith("crashed, as it was told to")


def test_term_lets_a_stream_end_and_accepts_nobody_else(start):
    """A client in flight gets all of its answer."""
    sim = start("--tokens-per-s", "10")
    connection, answer = streaming(sim)
    sim.term()
    sim.wait_for("stopping")

    def refused() -> bool:
        with socket.socket() as probe:
            return probe.connect_ex((sim.host, sim.port)) != 0

    until(refused)
    assert answer.read().endswith(b"data: [DONE]\n\n")
    connection.close()
    assert sim.end() == 0


def test_term_waits_only_so_long(start):
    """A stream that does not end is cut at the bound."""
    sim = start("--tokens-per-s", "0.001", "--drain-s", "0.2")
    connection = sim.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(SLOW))
    answer = connection.getresponse()
    sim.term()
    assert sim.end() == 0
    assert any("cut off" in line for line in sim.lines)
    answer.close()
    connection.close()


def test_term_can_wait_for_ever_and_a_second_one_does_not(start):
    """Like llama-server: only the second TERM ends it while a request is open."""
    sim = start("--tokens-per-s", "0.001", "--term-waits-for-requests")
    connection = sim.connect()
    connection.request("POST", "/v1/chat/completions", json.dumps(SLOW))
    answer = connection.getresponse()
    sim.term()
    sim.wait_for("stopping")
    assert sim.process.poll() is None
    sim.term()
    assert sim.end() == 1
    answer.close()
    connection.close()


def test_term_during_load_can_be_forgotten(start):
    """Like vLLM: it becomes ready although it was told to end, and ends at the next TERM."""
    sim = start("--load-time-s", "1.0", "--ignore-term-during-load", ready=False)
    sim.wait_for("loading")
    sim.term()
    sim.wait_for("simulated engine: ready")
    assert sim.ask("GET", "/health")[0] == 200
    sim.term()
    assert sim.end() == 0


def test_a_taken_port_is_an_error_at_once(start):
    """Two engines never share a port."""
    first = start()
    second = start("--port", str(first.port), ready=False)
    assert second.end() == 1
    assert any("Address already in use" in line for line in second.lines)


def test_a_headless_member_lives_and_serves_nothing(start):
    """A member beyond the head is a process and nothing else."""
    sim = start("--headless")
    assert sim.port == 0
    assert sim.process.poll() is None
    sim.term()
    assert sim.end() == 0


def test_workers_outlive_a_killed_parent(start):
    """Like vLLM's: killing the leader alone leaves its children, so a stop has to end the whole group."""
    sim = start("--workers", "2")
    children = children_of(sim)
    assert len(children) == 2
    sim.process.kill()
    sim.process.wait()
    try:
        assert all(os.path.exists(f"/proc/{pid}") for pid in children)
    finally:
        for pid in children:
            os.kill(int(pid), 9)


def test_workers_go_with_a_parent_that_is_told_to_end(start):
    """A clean end leaves nothing behind."""
    sim = start("--workers", "1")
    (child,) = children_of(sim)
    sim.term()
    assert sim.end() == 0
    assert not os.path.exists(f"/proc/{child}")
