"""A stub of the model providers' APIs on loopback, so that real agents can run without one.

It speaks Anthropic's messages, OpenAI's responses and chat completions, streaming. Every request
for an answer takes the next word of the script; the last word is said again for ever.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socketserver import BaseServer, ThreadingMixIn, UnixStreamServer
from types import TracebackType
from typing import Self, TypeAlias

Json: TypeAlias = dict[str, object]

TOKENS_IN, TOKENS_OUT = 11, 7
MAX_WAIT = 30.0


@dataclass(frozen=True, slots=True)
class Text:
    """Answer with a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Tool:
    """Call a tool of the agent's; OpenAI's responses name the tool's server apart."""

    name: str
    arguments: Mapping[str, object]
    namespace: str | None = None


@dataclass(frozen=True, slots=True)
class Refusal:
    """Answer with an HTTP error."""

    status: int
    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Slow:
    """Say nothing until the stub is released, then say a text."""

    text: str


@dataclass(frozen=True, slots=True)
class Cut:
    """Begin a text and hang up in its middle."""

    text: str


Word: TypeAlias = Text | Tool | Refusal | Slow | Cut
_Stream: TypeAlias = Callable[[Word, str], Iterator[Json]]


@dataclass(slots=True)
class Script:
    """What the stub says, and what it was asked."""

    words: Sequence[Word]
    asked: list[Json] = field(default_factory=list)
    shown: set[str] = field(default_factory=set)
    """The keys that it was shown."""
    released: threading.Event = field(default_factory=threading.Event)
    heard: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next(self, request: Json) -> Word:
        """Note a request and return the answer to it."""
        with self.lock:
            self.asked.append(request)
            word = self.words[min(len(self.asked), len(self.words)) - 1]
        self.heard.set()
        return word


class Provider:
    """The stub as a context: listening on a free port of loopback until it is left.

    With a path it listens on a Unix socket there as well.
    """

    def __init__(self, *words: Word, at: Path | None = None) -> None:
        self.script = Script(words)
        handler = type("Bound", (_Handler,), {"script": self.script})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._servers: list[BaseServer] = [self._server]
        if at is not None:
            self._servers.append(_SocketServer(str(at), handler))
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), name="rota-stub-provider")
            for server in self._servers
        ]

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def port(self) -> int:
        """On which port it listens."""
        return int(self._server.server_address[1])

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.script.released.set()
        for server, thread in zip(self._servers, self._threads, strict=True):
            server.shutdown()
            thread.join()
            server.server_close()


class _SocketServer(ThreadingMixIn, UnixStreamServer):
    """Listens on a Unix socket, as what leads out of a sandbox does."""

    daemon_threads = True


class _Handler(BaseHTTPRequestHandler):
    script: Script

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 — as its base names it
        """Say nothing."""

    def do_GET(self) -> None:
        self._send(200, {"object": "list", "data": [], "models": []})

    def do_HEAD(self) -> None:
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        try:
            request: Json = json.loads(body)
        except ValueError:
            request = {}
        if path.endswith("/count_tokens"):
            self._send(200, {"input_tokens": TOKENS_IN})
        elif path.endswith("/messages"):
            self._answer(request, _messages)
        elif path.endswith("/responses"):
            self._answer(request, _responses)
        elif path.endswith("/chat/completions"):
            self._answer(request, _completions)
        else:
            self._send(404, {"error": {"type": "not_found_error", "message": path}})

    def _answer(self, request: Json, stream: _Stream) -> None:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        self.script.shown |= {self.headers.get("X-Api-Key", ""), bearer} - {""}
        word = self.script.next({"path": self.path, **request})
        if isinstance(word, Refusal):
            error = {"type": word.kind, "message": word.message, "code": word.kind}
            self._send(word.status, {"type": "error", "error": error})
            return
        if isinstance(word, Slow):
            self.script.released.wait(MAX_WAIT)
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        events = list(stream(word, str(request.get("model", ""))))
        for event in events[: len(events) // 2 if isinstance(word, Cut) else None]:
            name = f"event: {event['type']}\n" if "type" in event else ""
            self.wfile.write(f"{name}data: {json.dumps(event)}\n\n".encode())
            self.wfile.flush()
        if stream is _completions and not isinstance(word, Cut):
            self.wfile.write(b"data: [DONE]\n\n")

    def _send(self, status: int, body: Json) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _said(word: Word) -> str:
    return "" if isinstance(word, (Tool, Refusal)) else word.text


def _halves(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def _messages(word: Word, model: str) -> Iterator[Json]:
    """Yield the events of Anthropic's messages."""
    usage = {"input_tokens": TOKENS_IN, "output_tokens": 1, "cache_read_input_tokens": 0}
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": model}
    begun: Json = {
        **message,
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    yield {"type": "message_start", "message": begun}
    if isinstance(word, Tool):
        block: Json = {"type": "tool_use", "id": "toolu_1", "name": word.name, "input": {}}
        deltas = [("input_json_delta", "partial_json", json.dumps(dict(word.arguments)))]
    else:
        block = {"type": "text", "text": ""}
        deltas = [("text_delta", "text", half) for half in _halves(_said(word))]
    yield {"type": "content_block_start", "index": 0, "content_block": block}
    for kind, key, value in deltas:
        yield {"type": "content_block_delta", "index": 0, "delta": {"type": kind, key: value}}
    yield {"type": "content_block_stop", "index": 0}
    reason = "tool_use" if isinstance(word, Tool) else "end_turn"
    delta = {"stop_reason": reason, "stop_sequence": None}
    yield {"type": "message_delta", "delta": delta, "usage": {"output_tokens": TOKENS_OUT}}
    yield {"type": "message_stop"}


def _responses(word: Word, model: str) -> Iterator[Json]:
    """Yield the events of OpenAI's responses."""
    response = {"id": "resp_1", "object": "response", "model": model, "output": []}
    yield {"type": "response.created", "response": {**response, "status": "in_progress"}}
    if isinstance(word, Tool):
        call = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": word.name}
        item: Json = {**call, "arguments": json.dumps(dict(word.arguments))}
        if word.namespace:
            item["namespace"] = word.namespace
    else:
        text = {"type": "output_text", "text": _said(word), "annotations": []}
        item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [text]}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {
        "input_tokens": TOKENS_IN,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": TOKENS_OUT,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": TOKENS_IN + TOKENS_OUT,
    }
    done = {**response, "status": "completed", "output": [item], "usage": usage}
    yield {"type": "response.completed", "response": done}


def _completions(word: Word, model: str) -> Iterator[Json]:
    """Yield the chunks of OpenAI's chat completions."""
    chunk = {"id": "chat_1", "object": "chat.completion.chunk", "created": 0, "model": model}
    if isinstance(word, Tool):
        function = {"name": word.name, "arguments": json.dumps(dict(word.arguments))}
        call = {"index": 0, "id": "call_1", "type": "function", "function": function}
        deltas: list[Json] = [{"role": "assistant", "tool_calls": [call]}]
    else:
        deltas = [{"role": "assistant", "content": half} for half in _halves(_said(word))]
    for delta in deltas:
        yield {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    reason = "tool_calls" if isinstance(word, Tool) else "stop"
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    total = TOKENS_IN + TOKENS_OUT
    usage = {
        "prompt_tokens": TOKENS_IN,
        "completion_tokens": TOKENS_OUT,
        "total_tokens": total,
    }
    yield {**chunk, "choices": [], "usage": usage}
