"""What the simulated engine answers."""

from __future__ import annotations

import base64
import json
import shutil
import socket
import struct
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.sim.conftest import until

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello there"}]}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "note": {"type": "string"}},
                "required": ["city", "days"],
            },
        },
    }
]


def events(data: bytes) -> list[str]:
    return [line[6:] for line in data.decode().split("\n") if line.startswith("data: ")]


def test_models_lists_the_name_and_each_alias(start):
    """A readiness check finds the served name, and clients find the aliases."""
    sim = start("--alias", "a1", "--alias", "team/a2", "--context-length", "512")
    status, body = sim.json("GET", "/v1/models")
    assert status == 200
    assert [m["id"] for m in body["data"]] == ["m", "a1", "team/a2"]
    assert {m["max_model_len"] for m in body["data"]} == {512}
    assert sim.json("GET", "/v1/models/team%2Fa2")[1]["id"] == "team/a2"
    assert sim.json("GET", "/v1/models/other")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/health", None, 200),
        ("GET", "/version", None, 200),
        ("GET", "/v1/models", None, 200),
        ("POST", "/v1/chat/completions", CHAT, 200),
        ("POST", "/v1/completions", {"model": "m", "prompt": "x"}, 200),
        ("POST", "/v1/embeddings", {"model": "m", "input": "x"}, 200),
        ("POST", "/v1/chat/completions", {**CHAT, "model": "other"}, 404),
        ("POST", "/v1/chat/completions", "{not json", 400),
        ("POST", "/v1/chat/completions", b"\xff\xfe{}", 400),
        ("POST", "/v1/chat/completions", "[" * 100_000, 400),
        ("POST", "/v1/chat/completions", [1], 400),
        ("POST", "/v1/chat/completions", {"model": "m", "messages": []}, 400),
        ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 0}, 400),
        ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": True}, 400),
        ("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 10**9}, 400),
        ("POST", "/v1/chat/completions", {**CHAT, "n": 17}, 400),
        ("POST", "/v1/completions", {"model": "m"}, 400),
        ("POST", "/v1/embeddings", {"model": "m", "input": []}, 400),
        ("POST", "/v1/embeddings", {"model": "m", "input": "x", "encoding_format": "hex"}, 400),
        ("POST", "/v1/embeddings", {"model": 7, "input": "x"}, 400),
        ("GET", "/v1/chat/completions", None, 405),
        ("POST", "/health", {}, 405),
        ("DELETE", "/v1/models", None, 405),
        ("GET", "/nothing", None, 404),
    ],
)
def test_every_answer_says_that_it_is_simulated(start, method, path, body, status):
    """No answer, not even an error, can be taken for a real one."""
    got, headers, data = start().ask(method, path, body)
    assert (got, headers["x-llmgwctl-simulated"]) == (status, "true")
    assert json.loads(data)["simulated"] is True
    if status >= 400:
        assert json.loads(data)["error"]["code"] == status


def test_text_says_that_it_is_simulated_and_is_the_same_every_time(start):
    """The same question gets the same words; the first of them says what they are."""
    sim = start()
    first, second = (sim.json("POST", "/v1/chat/completions", CHAT)[1] for _ in range(2))
    text = first["choices"][0]["message"]["content"]
    assert text.startswith("[simulated] ")
    assert text == second["choices"][0]["message"]["content"]
    other = sim.json("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": "other"}]})[1]
    assert other["choices"][0]["message"]["content"] != text
    short = sim.json("POST", "/v1/chat/completions", {**CHAT, "max_tokens": 1})[1]
    assert short["choices"][0] == {
        "index": 0,
        "message": {"role": "assistant", "content": "[simulated]"},
        "logprobs": None,
        "finish_reason": "length",
    }
    assert short["usage"] == {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}


def test_a_stream_brings_the_same_words_then_usage_then_done(start):
    """Streamed and whole answers agree."""
    sim = start()
    whole = sim.json("POST", "/v1/chat/completions", CHAT)[1]
    _, headers, data = sim.ask(
        "POST", "/v1/chat/completions", {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    )
    assert headers["content-type"].startswith("text/event-stream")
    assert headers["transfer-encoding"] == "chunked"
    *chunks, done = events(data)
    assert done == "[DONE]"
    parsed = [json.loads(c) for c in chunks]
    assert all(c["simulated"] and c["object"] == "chat.completion.chunk" for c in parsed)
    assert parsed[-1]["choices"] == []
    assert parsed[-1]["usage"] == whole["usage"]
    deltas = [c["choices"][0] for c in parsed[:-1]]
    assert "".join(d["delta"].get("content") or "" for d in deltas) == whole["choices"][0]["message"]["content"]
    assert [d["finish_reason"] for d in deltas] == [None] * (len(deltas) - 1) + ["stop"]


def test_text_completions_stream_too(start):
    """The older endpoint has the same words in its own shape."""
    sim = start()
    whole = sim.json("POST", "/v1/completions", {"model": "m", "prompt": ["a", "b"], "max_tokens": 5})[1]
    assert whole["object"] == "text_completion"
    data = sim.ask("POST", "/v1/completions", {"model": "m", "prompt": ["a", "b"], "max_tokens": 5, "stream": True})[2]
    *chunks, _ = events(data)
    texts = [json.loads(c)["choices"][0]["text"] for c in chunks]
    assert len(texts) == 5
    assert "".join(texts) == whole["choices"][0]["text"]


@pytest.mark.parametrize("choice", ["auto", "required", {"type": "function", "function": {"name": "weather"}}])
def test_tools_are_called_with_arguments_that_fit(start, choice):
    """A client of tools sees a call whose arguments hold what is required."""
    sim = start()
    body = {**CHAT, "tools": TOOLS, "tool_choice": choice}
    answer = sim.json("POST", "/v1/chat/completions", body)[1]["choices"][0]
    assert answer["finish_reason"] == "tool_calls"
    call = answer["message"]["tool_calls"][0]["function"]
    assert (call["name"], json.loads(call["arguments"])) == ("weather", {"city": "simulated", "days": 1})
    *chunks, _ = events(sim.ask("POST", "/v1/chat/completions", {**body, "stream": True})[2])
    deltas = [json.loads(c)["choices"][0]["delta"] for c in chunks]
    assert [d["tool_calls"][0]["function"] for d in deltas if "tool_calls" in d] == [call]


def test_an_answered_tool_ends_the_calls(start):
    """A client that loops over tool calls comes to an end."""
    messages = [*CHAT["messages"], {"role": "tool", "tool_call_id": "call_simulated", "content": "42"}]
    answer = start().json("POST", "/v1/chat/completions", {"messages": messages, "tools": TOOLS})[1]
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_embeddings_are_unit_vectors_that_depend_on_the_text(start):
    """Both encodings hold the same vector."""
    sim = start("--embeddings")
    body = sim.json("POST", "/v1/embeddings", {"model": "m", "input": ["one", "two", "one"], "dimensions": 33})[1]
    one, two, again = (d["embedding"] for d in body["data"])
    assert one == again != two
    assert len(one) == 33
    assert sum(v * v for v in one) == pytest.approx(1.0)
    coded = sim.json("POST", "/v1/embeddings", {"input": "one", "dimensions": 33, "encoding_format": "base64"})[1]
    assert struct.unpack("<33f", base64.b64decode(coded["data"][0]["embedding"])) == pytest.approx(one, abs=1e-6)
    assert sim.json("POST", "/v1/chat/completions", CHAT)[0] == 400


def test_metrics_count_what_was_done(start):
    """Totals are those of the requests made, and a comment says that they are simulated."""
    sim = start()
    used = [sim.json("POST", "/v1/chat/completions", {**CHAT, "max_tokens": n})[1]["usage"] for n in (2, 3)]
    status, headers, data = sim.ask("GET", "/metrics")
    lines = data.decode().splitlines()
    assert (status, headers["x-llmgwctl-simulated"]) == (200, "true")
    assert lines[0].startswith("# simulated")
    assert f'sim:generation_tokens_total{{model_name="m"}} {sum(u["completion_tokens"] for u in used)}' in lines
    assert 'sim:request_success_total{model_name="m",finished_reason="length"} 2' in lines
    assert 'sim:time_to_first_token_seconds_count{model_name="m"} 2' in lines
    assert 'sim:num_requests_running{model_name="m"} 0' in lines


def test_requests_beyond_the_slots_wait_and_are_counted(start):
    """A full engine shows a queue, as real ones do."""
    sim = start("--slots", "1", "--tokens-per-s", "0.001")
    connections = [sim.connect() for _ in range(3)]
    for connection in connections:
        connection.request("POST", "/v1/chat/completions", json.dumps({**CHAT, "stream": True}))

    def figures() -> tuple[bool, bool]:
        lines = sim.ask("GET", "/metrics")[2].decode().splitlines()
        return tuple(
            f'sim:num_requests_{k}{{model_name="m"}} {n}' in lines for k, n in (("running", 1), ("waiting", 2))
        )

    until(lambda: figures() == (True, True))
    for connection in connections:
        connection.close()


def test_head_has_the_headers_of_get_and_no_body(start):
    """HEAD works for probes that use it, and the connection stays usable."""
    sim = start()
    connection = sim.connect()
    connection.request("HEAD", "/health")
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.getheader("Content-Length")) > 0
    connection.request("POST", "/v1/chat/completions", json.dumps(CHAT))
    assert connection.getresponse().status == 200


def test_one_connection_serves_many_requests_errors_included(start):
    """An error does not put what follows out of step."""
    connection = start().connect()
    for path, body, status in [
        ("/v1/chat/completions", "nonsense", 400),
        ("/nothing", json.dumps(CHAT), 404),
        ("/v1/chat/completions", json.dumps({**CHAT, "stream": True}), 200),
        ("/v1/chat/completions", json.dumps(CHAT), 200),
    ]:
        connection.request("POST", path, body)
        answer = connection.getresponse()
        assert answer.status == status
        answer.read()
    connection.request("POST", "/v1/chat/completions", iter([json.dumps(CHAT).encode()]), encode_chunked=True)
    assert connection.getresponse().status == 200


def exchange(sim, data: bytes) -> bytes:
    with socket.create_connection((sim.host, sim.port), timeout=60) as raw:
        raw.sendall(data)
        raw.shutdown(socket.SHUT_WR)
        got = b""
        while piece := raw.recv(65536):
            got += piece
    return got


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"garbage\r\n\r\n", b" 400 "),
        (b"GET /health HTTP/9.9\r\n\r\n", b" 505 "),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\n\r\n", b" 414 "),
        (b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n\r\n", b" 411 "),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b" 400 "),
        (b"POST /v1/completions HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", b" 413 "),
        (b"POST /v1/completions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b" 400 "),
        (b"BREW /health HTTP/1.1\r\n\r\n", b" 501 "),
    ],
)
def test_malformed_requests_are_refused_and_the_next_one_is_served(start, data, status):
    """What is no request gets an error that says it is simulated, and harms nobody else."""
    sim = start()
    got = exchange(sim, data)
    assert status in got.split(b"\r\n")[0]
    assert b"X-LLMGWCTL-Simulated: true" in got
    assert sim.ask("GET", "/health")[0] == 200


def test_a_body_that_ends_early_harms_nobody(start):
    """A client that vanishes in its own request leaves nothing open."""
    sim = start()
    assert exchange(sim, b"POST /v1/completions HTTP/1.1\r\nContent-Length: 50\r\n\r\n{") == b""
    assert sim.ask("GET", "/health")[0] == 200


def test_http_1_0_clients_get_an_unchunked_stream(start):
    """An old client reads to the end of the connection."""
    body = json.dumps({**CHAT, "stream": True}).encode()
    got = exchange(start(), b"POST /v1/chat/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    head, _, data = got.partition(b"\r\n\r\n")
    assert b"chunked" not in head
    assert events(data)[-1] == "[DONE]"


def test_fifty_requests_at_once_are_all_answered(start):
    """Concurrency neither mixes nor loses answers."""
    sim = start("--tokens-per-s", "200")

    def one(number: int) -> tuple[int, str]:
        body = {"messages": [{"role": "user", "content": f"question {number}"}], "stream": number % 2 == 0}
        status, _, data = sim.ask("POST", "/v1/chat/completions", body)
        if body["stream"]:
            chunks = [json.loads(e) for e in events(data)[:-1]]
            return status, "".join(c["choices"][0]["delta"].get("content", "") for c in chunks)
        return status, json.loads(data)["choices"][0]["message"]["content"]

    with ThreadPoolExecutor(50) as pool:
        together = list(pool.map(one, range(50)))
    assert together == [one(n) for n in range(50)]
    assert {status for status, _ in together} == {200}


def test_logs_name_neither_bodies_nor_queries(start):
    """Nothing a client sends can be read in the log, but its path."""
    sim = start()
    sim.ask("POST", "/v1/completions?key=hidden-one", {"model": "hidden-two", "prompt": "hidden-three"})
    sim.term()
    assert sim.end() == 0
    assert any('"POST /v1/completions" 404' in line for line in sim.lines)
    assert "hidden" not in "\n".join(sim.lines)


def test_it_listens_on_ipv6(start):
    """An address with colons works like any other."""
    if not socket.has_ipv6 or not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    assert start(host="::1").ask("GET", "/health")[0] == 200


def test_it_runs_on_old_python(start):
    """Hosts may have Python 3.8 only."""
    homes = sorted(Path.home().glob(".pyenv/versions/3.8.*/bin/python3.8"))
    old = str(homes[0]) if homes else shutil.which("python3.8")
    if not old:
        pytest.skip("there is no Python 3.8 here")
    sim = start("--alias", "a", python=old)
    assert sim.json("POST", "/v1/chat/completions", {**CHAT, "model": "a", "tools": TOOLS})[0] == 200
    assert sim.ask("POST", "/v1/chat/completions", {**CHAT, "stream": True})[2].endswith(b"[DONE]\n\n")
    assert sim.json("POST", "/v1/embeddings", {"input": "x"})[0] == 200
    assert sim.json("POST", "/v1/completions", "nonsense")[0] == 400
    sim.term()
    assert sim.end() == 0
