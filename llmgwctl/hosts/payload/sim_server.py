"""The simulated engine: an OpenAI-like server whose every answer is synthetic and says so.

One file, standard library only, Python 3.8 or later: it is copied to hosts and run there by their own Python.
`--help` lists the faults it can play.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import os
import re
import signal
import socket
import socketserver
import struct
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

VERSION = "sim-1.0"
HEADER = "X-LLMGWCTL-Simulated"
MAX_BODY_BYTES = 16 * 1024 * 1024
MAX_CHOICES = 16
MAX_INPUTS = 2048
DEFAULT_TOKENS = 24
DEFAULT_DIMENSIONS = 64
IDLE_TIMEOUT_S = 75
MARK = "[simulated]"
WORDS = (  # noqa: SIM905
    "this answer is made of words that mean nothing it shows that the route works and that the stream flows "
    "no model was asked and no weights were read only a hash chose these words from a short list"
).split()
BUCKETS_S = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 60.0)


class RefusedError(Exception):
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.param = status, message, kind, param

    def body(self) -> dict[str, Any]:
        """Return the error as OpenAI's clients read it."""
        error = {"message": self.message, "type": self.kind, "param": self.param, "code": self.status}
        return {"object": "error", "error": error, "simulated": True}


class Histogram:
    """Counts of durations in seconds, as Prometheus wants them."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS_S) + 1)
        self.sum = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        place = next((i for i, bound in enumerate(BUCKETS_S) if seconds <= bound), len(BUCKETS_S))
        self.counts[place] += 1
        self.sum += seconds

    def lines(self, name: str, labels: str) -> Iterator[str]:
        """Yield the text of all buckets, the sum and the count."""
        yield f"# TYPE {name} histogram"
        total = 0
        for bound, count in zip([*map(str, BUCKETS_S), "+Inf"], self.counts):  # noqa: B905 (Python 3.8)
            total += count
            yield f'{name}_bucket{{{labels},le="{bound}"}} {total}'
        yield f"{name}_sum{{{labels}}} {self.sum:.6f}"
        yield f"{name}_count{{{labels}}} {total}"


class Work:
    """What the server does right now, and what it has done."""

    def __init__(self, slots: int) -> None:
        self.lock = threading.Condition()
        self.slots = slots
        self.open = self.running = self.waiting = 0
        self.prompt_tokens = self.generated_tokens = self.serial = 0
        self.finished: dict[str, int] = {"stop": 0, "length": 0, "tool_calls": 0, "abort": 0}
        self.first_token, self.per_token, self.whole = Histogram(), Histogram(), Histogram()

    def request(self, step: int) -> None:
        """Count an HTTP request as begun (1) or ended (-1)."""
        with self.lock:
            self.open += step
            self.lock.notify_all()

    def enter(self) -> str:
        """Wait for a free slot (0 slots: no limit) and return an id for the answer."""
        with self.lock:
            self.waiting += 1
            self.lock.wait_for(lambda: not self.slots or self.running < self.slots)
            self.waiting -= 1
            self.running += 1
            self.serial += 1
            return f"sim-{self.serial:08d}"

    def leave(self) -> None:
        """Free the slot."""
        with self.lock:
            self.running -= 1
            self.lock.notify_all()

    def count(self, reason: str, prompt: int, generated: int, first_s: float, whole_s: float) -> None:
        """Add one finished answer to the totals."""
        with self.lock:
            self.finished[reason] += 1
            self.prompt_tokens += prompt
            self.generated_tokens += generated
            self.first_token.add(first_s)
            self.whole.add(whole_s)
            if generated > 1:
                self.per_token.add((whole_s - first_s) / (generated - 1))

    def drained(self, timeout_s: float | None) -> bool:
        """Wait until no request is open."""
        with self.lock:
            return self.lock.wait_for(lambda: not self.open, timeout_s)

    def metrics(self, model: str) -> str:
        """Return Prometheus text; the names are vLLM's with another prefix."""
        escaped = model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        labels = f'model_name="{escaped}"'
        with self.lock:
            lines = ["# simulated: these figures belong to synthetic answers"]
            for name, kind, value in (
                ("num_requests_running", "gauge", self.running),
                ("num_requests_waiting", "gauge", self.waiting),
                ("kv_cache_usage_perc", "gauge", min(1.0, self.running / (self.slots or 256))),
                ("prompt_tokens_total", "counter", self.prompt_tokens),
                ("generation_tokens_total", "counter", self.generated_tokens),
            ):
                lines += [f"# TYPE sim:{name} {kind}", f"sim:{name}{{{labels}}} {value}"]
            lines.append("# TYPE sim:request_success_total counter")
            for reason, count in sorted(self.finished.items()):
                lines.append(f'sim:request_success_total{{{labels},finished_reason="{reason}"}} {count}')
            lines += self.first_token.lines("sim:time_to_first_token_seconds", labels)
            lines += self.per_token.lines("sim:request_time_per_output_token_seconds", labels)
            lines += self.whole.lines("sim:e2e_request_latency_seconds", labels)
        return "\n".join(lines) + "\n"


class Answer:
    """A chat or text completion: the words, why they end, and the shapes in which they are sent."""

    def __init__(
        self, name: str, context: int, asked: dict[str, Any], seed: str, *, kind: str, call: dict[str, Any] | None
    ) -> None:
        self.id, self.kind, self.call = "", kind, call
        self.model = asked.get("model", name)
        self.choices = whole_number(asked, "n", 1, MAX_CHOICES)
        wanted = asked.get("stream_options")
        self.tell_usage = isinstance(wanted, dict) and bool(wanted.get("include_usage"))
        prompt = max(1, len(seed.split()))
        limit = whole_number(asked, "max_completion_tokens", 0) or whole_number(asked, "max_tokens", 0)
        needed = prompt + (limit or 1)
        if needed > context:
            raise RefusedError(
                400, f"This model's maximum context length is {context} tokens; {needed} were asked for."
            )
        self.tokens, self.reason = synthetic(name, seed, asked, min(limit or DEFAULT_TOKENS, context - prompt))
        if call:
            self.tokens, self.reason = [MARK], "tool_calls"
        made = len(self.tokens) * self.choices
        self.usage = {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}

    def whole(self) -> dict[str, Any]:
        """Return the answer that isn't streamed."""
        text = "".join(self.tokens)
        body: dict[str, Any] = {"text": text}
        if self.kind == "chat.completion":
            body = {"message": {"role": "assistant", "content": text}}
            if self.call:
                body = {"message": {"role": "assistant", "content": None, "tool_calls": [self.call]}}
        choices = [{"index": i, **body, "logprobs": None, "finish_reason": self.reason} for i in range(self.choices)]
        return {**self._head(self.kind), "choices": choices, "usage": self.usage}

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the chunks of a stream; each choice's last one says why it ends."""
        chat = self.kind == "chat.completion"
        head = self._head("chat.completion.chunk" if chat else self.kind)
        for index in range(self.choices):
            for piece in self._deltas(index) if chat else self._texts(index):
                yield {**head, "choices": [piece]}
        if self.tell_usage:
            yield {**head, "choices": [], "usage": self.usage}

    def _head(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.model, "simulated": True}

    def _texts(self, index: int) -> Iterator[dict[str, Any]]:
        for place, token in enumerate(self.tokens):
            reason = self.reason if place == len(self.tokens) - 1 else None
            yield {"index": index, "text": token, "logprobs": None, "finish_reason": reason}

    def _deltas(self, index: int) -> Iterator[dict[str, Any]]:
        deltas: list[dict[str, Any]] = [{"role": "assistant", "content": None if self.call else ""}]
        if self.call:
            deltas.append({"tool_calls": [{"index": 0, **self.call}]})
        else:
            deltas += [{"content": token} for token in self.tokens]
        for delta in deltas:
            yield {"index": index, "delta": delta, "finish_reason": None}
        yield {"index": index, "delta": {}, "finish_reason": self.reason}


class Server(ThreadingHTTPServer):
    """Threads for connections; bound early, listening only when told, as some engines do."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 512

    def __init__(self, options: argparse.Namespace) -> None:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        self.address_family = found[0][0]
        super().__init__((str(found[0][4][0]), int(found[0][4][1])), Handler, bind_and_activate=False)
        self.options = options
        self.names: list[str] = [options.model, *options.alias]
        self.work = Work(options.slots)
        self.loading = True
        self.leaving = threading.Event()

    def server_bind(self) -> None:
        """Bind without the look-up of the host's name that HTTPServer makes."""
        socketserver.TCPServer.server_bind(self)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say in one line that a connection failed."""
        log(f"a connection failed: {sys.exc_info()[1]!r}")


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    server: Server
    protocol_version = "HTTP/1.1"
    timeout = IDLE_TIMEOUT_S
    disable_nagle_algorithm = True
    status = 0
    streaming = False

    def do_GET(self) -> None:
        """Answer GET."""
        self._serve()

    def do_HEAD(self) -> None:
        """Answer HEAD: GET without its body."""
        self._serve()

    def do_POST(self) -> None:
        """Answer POST."""
        self._serve()

    do_PUT = do_DELETE = do_PATCH = do_OPTIONS = do_POST  # noqa: N815

    def _serve(self) -> None:
        """Answer one request and log it in one line; neither query nor body is ever logged."""
        begun = time.monotonic()
        self.status, self.streaming = 0, False
        self.server.work.request(1)
        try:
            self._route()
        except RefusedError as refused:
            self._send_json(refused.status, refused.body())
        except (ConnectionError, socket.timeout):  # noqa: UP041 (Python 3.8)
            self.status, self.close_connection = 499, True
        finally:
            self.server.work.request(-1)
            path = re.sub(r"[^!-~]", "?", self.path.partition("?")[0])[:200]
            log(f'{self.client_address[0]} "{self.command} {path}" {self.status} {time.monotonic() - begun:.3f}s')

    def _route(self) -> None:
        body = self._read_body()
        path = self.path.partition("?")[0]
        options = self.server.options
        if self.server.leaving.is_set():
            self.close_connection = True
            raise RefusedError(503, "The simulated engine is shutting down.", "ServiceUnavailableError")
        if self.server.loading:
            raise RefusedError(503, "Loading model", "unavailable_error")
        reading = {"/health": self._health, "/metrics": self._metrics, "/version": self._version}
        reading["/v1/models"] = self._models
        writing = {
            "/v1/chat/completions": self._chat,
            "/v1/completions": self._complete,
            "/v1/embeddings": self._embed,
        }
        if path in reading or path.startswith("/v1/models/"):
            self._need_method("GET", "HEAD")
            reading.get(path, self._one_model)()
        elif path in writing:
            self._need_method("POST")
            if options.embeddings and path != "/v1/embeddings":
                raise RefusedError(400, "This model only makes embeddings: use /v1/embeddings.")
            asked = parsed(body)
            self._check_model(asked)
            writing[path](asked)
        else:
            raise RefusedError(404, "There is nothing here.", "NotFoundError")

    def _need_method(self, *methods: str) -> None:
        if self.command not in methods:
            raise RefusedError(405, f"Use {' or '.join(methods)}.", "MethodNotAllowedError")

    def _read_body(self) -> bytes:
        """Read the whole body, so that the next request on this connection begins where it should."""
        if "chunked" in self.headers.get("Transfer-Encoding", "").lower():
            return self._read_chunks()
        given = self.headers.get("Content-Length")
        if given is None:
            if self.command == "POST":
                self.close_connection = True
                raise RefusedError(411, "Content-Length is missing.")
            return b""
        if not given.strip().isdigit():
            self.close_connection = True
            raise RefusedError(400, "Content-Length is not a number.")
        size = int(given)
        if size > MAX_BODY_BYTES:
            self.close_connection = True
            raise RefusedError(413, f"The body is larger than {MAX_BODY_BYTES} bytes.", "PayloadTooLargeError")
        body = self.rfile.read(size)
        if len(body) < size:
            raise ConnectionResetError("the body ended early")
        return body

    def _read_chunks(self) -> bytes:
        body = b""
        while True:
            try:
                size = int(self.rfile.readline(1024).partition(b";")[0].strip(), 16)
            except ValueError:
                size = -1
            if size < 0 or len(body) + size > MAX_BODY_BYTES:
                self.close_connection = True
                raise RefusedError(400 if size < 0 else 413, "The chunked body can't be read.")
            if size == 0:
                while self.rfile.readline(65536).strip():
                    pass
                return body
            body += self.rfile.read(size)
            self.rfile.readline(1024)

    def _check_model(self, asked: dict[str, Any]) -> None:
        name = asked.get("model", self.server.names[0])
        if not isinstance(name, str):
            raise RefusedError(400, "`model` must be a string.", param="model")
        if name not in self.server.names:
            raise RefusedError(404, f"The model `{name}` does not exist.", "NotFoundError", "model")

    def _health(self) -> None:
        time.sleep(self.server.options.health_latency_s)
        self._send_json(200, {"status": "ok", "simulated": True})

    def _version(self) -> None:
        self._send_json(200, {"version": VERSION, "simulated": True})

    def _metrics(self) -> None:
        text = self.server.work.metrics(self.server.names[0])
        self._send(200, text.encode(), "text/plain; version=0.0.4; charset=utf-8")

    def _models(self) -> None:
        data = [self._model_entry(name) for name in self.server.names]
        self._send_json(200, {"object": "list", "data": data, "simulated": True})

    def _one_model(self) -> None:
        name = unquote(self.path.partition("?")[0][len("/v1/models/") :])
        self._check_model({"model": name})
        self._send_json(200, self._model_entry(name))

    def _model_entry(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": 0,
            "owned_by": "llmgwctl-sim",
            "root": self.server.names[0],
            "aliases": self.server.names[1:],
            "max_model_len": self.server.options.context_length,
            "simulated": True,
        }

    def _chat(self, asked: dict[str, Any]) -> None:
        messages = asked.get("messages")
        if not isinstance(messages, list) or not messages or not all(isinstance(m, dict) for m in messages):
            raise RefusedError(400, "`messages` must be a list of messages.", param="messages")
        call = tool_call(asked, messages)
        seed = "\n".join(f"{m.get('role')}: {flat(m.get('content'))}" for m in messages)
        self._answer(asked, seed, "chat.completion", call)

    def _complete(self, asked: dict[str, Any]) -> None:
        prompt = asked.get("prompt")
        if not isinstance(prompt, (str, list)):
            raise RefusedError(400, "`prompt` must be a string or a list.", param="prompt")
        self._answer(asked, flat(prompt), "text_completion", None)

    def _answer(self, asked: dict[str, Any], seed: str, kind: str, call: dict[str, Any] | None) -> None:
        """Generate, all at once or streamed, and count it."""
        work, options = self.server.work, self.server.options
        answer = Answer(self.server.names[0], options.context_length, asked, seed, kind=kind, call=call)
        begun = time.monotonic()
        first_s = -1.0
        done = "abort"
        try:
            answer.id = work.enter()
            time.sleep(options.first_token_s)
            if asked.get("stream") is True:
                self._begin_stream()
                for event in answer.events():
                    time.sleep(self._token_s())
                    self._event(event)
                    first_s = time.monotonic() - begun if first_s < 0 else first_s
                self._end_stream()
            else:
                time.sleep(self._token_s() * answer.usage["completion_tokens"])
                self._send_json(200, answer.whole())
            done = answer.reason
        finally:
            work.leave()
            whole_s = time.monotonic() - begun
            usage = answer.usage
            generated = 0 if done == "abort" else usage["completion_tokens"]
            work.count(done, usage["prompt_tokens"], generated, whole_s if first_s < 0 else first_s, whole_s)

    def _embed(self, asked: dict[str, Any]) -> None:
        given = asked.get("input")
        inputs = given if isinstance(given, list) and given and not isinstance(given[0], int) else [given]
        if not all(isinstance(i, (str, list)) and i for i in inputs) or len(inputs) > MAX_INPUTS:
            raise RefusedError(400, "`input` must be a text, a list of texts, or tokens; none empty.", param="input")
        form = asked.get("encoding_format", "float")
        if form not in ("float", "base64"):
            raise RefusedError(400, "`encoding_format` must be float or base64.", param="encoding_format")
        size = whole_number(asked, "dimensions", DEFAULT_DIMENSIONS, 4096)
        begun = time.monotonic()
        self.server.work.enter()
        try:
            vectors = [unit_vector(f"{self.server.names[0]}\n{flat(i)}", size) for i in inputs]
        finally:
            self.server.work.leave()
        tokens = sum(max(1, len(flat(i).split())) for i in inputs)
        spent = time.monotonic() - begun
        self.server.work.count("stop", tokens, 0, spent, spent)
        data = [
            {"object": "embedding", "index": place, "embedding": packed(vector) if form == "base64" else vector}
            for place, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        model = asked.get("model", self.server.names[0])
        self._send_json(200, {"object": "list", "data": data, "model": model, "usage": usage, "simulated": True})

    def _token_s(self) -> float:
        rate: float = self.server.options.tokens_per_s
        return 1.0 / rate if rate > 0 else 0.0

    def _begin_stream(self) -> None:
        self.streaming = True
        self._headers(200, "text/event-stream; charset=utf-8")
        self.send_header("Cache-Control", "no-cache")
        if self.request_version == "HTTP/1.0":
            self.close_connection = True
            self.send_header("Connection", "close")
        elif self.close_connection:
            self.send_header("Connection", "close")
        else:
            self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()

    def _event(self, data: dict[str, Any]) -> None:
        self._write_chunk(b"data: " + json.dumps(data, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n")

    def _end_stream(self) -> None:
        self._write_chunk(b"data: [DONE]\n\n")
        if not self.close_connection:
            self.wfile.write(b"0\r\n\r\n")

    def _write_chunk(self, data: bytes) -> None:
        self.wfile.write(data if self.close_connection else b"%x\r\n%s\r\n" % (len(data), data))

    def _headers(self, status: int, content_type: str) -> None:
        self.status = status
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header(HEADER, "true")

    def _send_json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, json.dumps(body, ensure_ascii=False).encode("utf-8", "replace"), "application/json")

    def _send(self, status: int, body: bytes, content_type: str) -> None:
        self._headers(status, content_type)
        self.send_header("Content-Length", str(len(body)))
        if status == 405:
            self.send_header("Allow", "GET, HEAD, POST")
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer what can't even be read as a request; called by the base class."""
        self.close_connection = True
        self.request_version = "HTTP/1.0"  # else the base class leaves the headers out of what it could not read
        self._send_json(code, RefusedError(code, message or explain or "The request can't be read.").body())
        log(f'{self.client_address[0]} "unreadable request" {code}')

    def version_string(self) -> str:
        """Name the server in its headers."""
        return "llmgwctl-sim/1.0"

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Say nothing here: each request is logged once, by `_serve`."""


def parsed(body: bytes) -> dict[str, Any]:
    """Return the request's JSON object."""
    try:
        asked = json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError):
        raise RefusedError(400, "The body is not valid JSON.") from None
    if not isinstance(asked, dict):
        raise RefusedError(400, "The body must be a JSON object.")
    return asked


def whole_number(asked: dict[str, Any], key: str, default: int, most: int | None = None) -> int:
    """Return a positive whole number of the request, or the default where it is absent."""
    value = asked.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or value < 1 or (most and value > most):
        raise RefusedError(400, f"`{key}` must be a whole number from 1{f' to {most}' if most else ' on'}.", param=key)
    return value


def flat(content: Any) -> str:
    """Return the text of a message's content, a prompt or tokens."""
    if isinstance(content, list):
        return " ".join(
            flat(part.get("text", part.get("type")) if isinstance(part, dict) else part) for part in content
        )
    return "" if content is None else str(content)


def synthetic(model: str, seed: str, asked: dict[str, Any], limit: int) -> tuple[list[str], str]:
    """Return words and why they end; the same question always gets the same words, the first says what they are."""
    form = asked.get("response_format")
    if isinstance(form, dict) and form.get("type") in ("json_object", "json_schema"):
        return ['{"simulated": true}'], "stop"
    digest = hashlib.sha256(f"{model}\n{seed}".encode("utf-8", "replace")).digest()
    length = 8 + digest[0] % (DEFAULT_TOKENS - 8)
    words = [MARK] + [" " + WORDS[(digest[i % 32] + i) % len(WORDS)] for i in range(1, length)]
    return (words[:limit], "length") if limit < length else (words, "stop")


def tool_call(asked: dict[str, Any], messages: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Return a synthetic call of a tool where the request allows one and none has just been answered."""
    tools, choice = asked.get("tools"), asked.get("tool_choice", "auto")
    if not tools or choice == "none":
        return None
    if not isinstance(tools, list):
        raise RefusedError(400, "`tools` must be a list.", param="tools")
    functions = [t.get("function") for t in tools if isinstance(t, dict)]
    known = {f["name"]: f for f in functions if isinstance(f, dict) and isinstance(f.get("name"), str)}
    if not known:
        raise RefusedError(400, "Each of `tools` needs a function with a name.", param="tools")
    if isinstance(choice, dict):
        function = choice.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if name not in known:
            raise RefusedError(400, "`tool_choice` names no tool of this request.", param="tool_choice")
    elif choice == "auto" and messages[-1].get("role") == "tool":
        return None
    else:
        name = next(iter(known))
    arguments = json.dumps(example(known[name].get("parameters"), 0))
    return {"id": "call_simulated", "type": "function", "function": {"name": name, "arguments": arguments}}


def example(schema: Any, depth: int) -> Any:
    """Return a value that fits a JSON Schema's type; of an object only what is required."""
    if not isinstance(schema, dict) or depth > 8:
        return {} if depth == 0 else "simulated"
    if isinstance(schema.get("enum"), list) and schema["enum"]:
        return schema["enum"][0]
    kind = schema.get("type", "object" if "properties" in schema or depth == 0 else "string")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        properties = schema.get("properties")
        fields = properties if isinstance(properties, dict) else {}
        required = schema.get("required")
        return {k: example(fields.get(k), depth + 1) for k in (required if isinstance(required, list) else ())}
    simple: dict[Any, Any] = {"integer": 1, "number": 1.0, "boolean": True, "array": [], "null": None}
    return simple.get(kind if isinstance(kind, str) else None, "simulated")


def unit_vector(text: str, size: int) -> list[float]:
    """Return a vector of length 1 that depends on the text alone."""
    raw = b""
    while len(raw) < 4 * size:
        raw += hashlib.sha256(f"{len(raw)}\n{text}".encode("utf-8", "replace")).digest()
    values = [n / 2**31 - 1.0 for n in struct.unpack(f">{size}I", raw[: 4 * size])]
    length = sum(v * v for v in values) ** 0.5 or 1.0
    return [v / length for v in values]


def packed(vector: list[float]) -> str:
    """Return a vector as base64 of little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()


def log(text: str) -> None:
    """Write one line to standard error, which is the replica's log."""
    print(time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), text, file=sys.stderr, flush=True)


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="sim_server.py", description=__doc__, allow_abbrev=False)
    add = parser.add_argument
    add("--model", required=True, help="the name that is served")
    add("--alias", action="append", default=[], help="another name; may be repeated")
    add("--host", default="127.0.0.1")
    add("--port", type=int, default=8000, help="0: any free one, which the log then names")
    add("--context-length", type=int, default=8192)
    add("--embeddings", action="store_true", help="make embeddings only")
    add("--headless", action="store_true", help="serve nothing: a member beyond the head")
    add("--slots", type=int, default=0, help="requests at once; others wait (0: no limit)")
    add("--tokens-per-s", type=float, default=0.0, help="speed of each request (0: at once)")
    add("--first-token-s", type=float, default=0.0, help="pause before the first token")
    add("--health-latency-s", type=float, default=0.0, help="how long /health takes")
    add("--load-time-s", type=float, default=0.0, help="how long it loads before it serves")
    add("--loading", choices=("refuse", "503"), default="refuse", help="while loading: refuse connections, or say 503")
    add("--fail-after-s", type=float, help="fail instead of becoming ready, after so long")
    add("--fail-message", default="RuntimeError: simulated failure to start", help="the log's last line then")
    add("--crash-after-s", type=float, help="crash so long after becoming ready")
    add("--exit-status", type=int, default=1, help="of a failure or a crash; engines have been seen to crash with 0")
    add("--ignore-term", action="store_true", help="only KILL ends it")
    add("--ignore-term-during-load", action="store_true", help="TERM while loading is forgotten")
    add("--term-waits-for-requests", action="store_true", help="TERM waits without limit; a second TERM does not")
    add("--drain-s", type=float, default=5.0, help="how long TERM waits for open requests")
    add("--workers", type=int, default=0, help="child processes that outlive a killed parent and ignore TERM")
    return parser.parse_args(words)


class Life:
    """From start to exit: loading, serving, leaving, and the faults in between."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.loading = True
        self.terms = 0
        self.wake = threading.Event()
        self.workers = [fork_worker() for _ in range(options.workers)]

    def run(self) -> int:
        """Live until told to stop; returns the exit status."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_term)
        server = None if self.options.headless else self._bound()
        if server and self.options.loading == "503":
            self._serve(server)
        log(f"simulated engine: loading {self.options.model!r}")
        failing = self.options.fail_after_s
        if self._asleep(self.options.load_time_s if failing is None else failing):
            log("simulated engine: stopped while loading")
            return self._end(0)
        if failing is not None:
            log(self.options.fail_message)
            return self._end(self.options.exit_status)
        self.loading = False
        if server:
            server.loading = False
            if self.options.loading == "refuse":
                self._serve(server)
        log("simulated engine: ready")
        if not self._asleep(self.options.crash_after_s):
            log("simulated engine: crashed, as it was told to")
            os._exit(self.options.exit_status)
        return self._end(self._leave(server) if server else 0)

    def _on_term(self, number: int, frame: Any) -> None:
        if self.options.ignore_term or (self.loading and self.options.ignore_term_during_load):
            return
        self.terms += 1
        if self.terms > 1:
            for pid in self.workers:
                os.kill(pid, signal.SIGKILL)
            os._exit(1)
        self.wake.set()

    def _asleep(self, seconds: float | None) -> bool:
        """Wait, without end for None, and say whether TERM ended it."""
        return self.wake.wait(seconds)

    def _bound(self) -> Server:
        try:
            server = Server(self.options)
            server.server_bind()
        except OSError as error:
            log(f"couldn't bind {self.options.host} port {self.options.port}: {error}")
            sys.exit(self._end(1))
        return server

    def _serve(self, server: Server) -> None:
        try:
            server.server_activate()
        except OSError as error:
            log(f"couldn't listen on {self.options.host} port {self.options.port}: {error}")
            sys.exit(self._end(1))
        log(f"simulated engine: listening on {self.options.host} port {server.server_address[1]}")
        threading.Thread(target=server.serve_forever, args=(0.2,), daemon=True).start()

    def _leave(self, server: Server) -> int:
        """Stop accepting, let open requests end, and go."""
        log("simulated engine: stopping")
        server.leaving.set()
        server.shutdown()
        server.server_close()
        if not server.work.drained(None if self.options.term_waits_for_requests else self.options.drain_s):
            log("simulated engine: some requests were cut off")
        return 0

    def _end(self, status: int) -> int:
        for pid in self.workers:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        return status


def fork_worker() -> int:
    """Start a child that does nothing, ignores TERM, and is not ended when its parent is killed."""
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    code = Life(arguments()).run()
    sys.stderr.flush()
    # Threads of idle connections must not hold the process back.
    os._exit(code)
