"""The bridge of `rota mcp`: lines in, lines out, whatever the daemon does."""

import io
import json

from rota.cli.mcp import MAX_LINE, McpBridge
from rota.errors import Unavailable


class FakeDaemon:
    """Answers as told, and keeps what it was sent."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sent = []

    def post(self, path, body, headers):
        self.sent.append((path, json.loads(body), headers))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def carried(daemon, *messages):
    going = io.BytesIO()
    lines = [m if isinstance(m, bytes) else json.dumps(m).encode() for m in messages]
    McpBridge(daemon).forward(io.BytesIO(b"\n".join(lines)), going)
    return [json.loads(line) for line in going.getvalue().splitlines()]


def message(number, method, **params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def test_a_session_and_its_version_go_with_every_later_message():
    hello = {"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25"}}
    pong = {"jsonrpc": "2.0", "id": 2, "result": {}}
    daemon = FakeDaemon(
        (200, {"mcp-session-id": "s"}, json.dumps(hello).encode()),
        (202, {}, b""),
        (200, {}, json.dumps(pong).encode()),
    )
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    told = carried(daemon, message(1, "initialize"), b"", notice, message(2, "ping"))
    assert told == [hello, pong]
    assert [headers for _, _, headers in daemon.sent] == [
        {},
        {"mcp-session-id": "s", "mcp-protocol-version": "2025-11-25"},
        {"mcp-session-id": "s", "mcp-protocol-version": "2025-11-25"},
    ]


def test_what_a_message_of_2026_says_of_itself_is_said_to_http_too():
    daemon = FakeDaemon((200, {}, b'{"jsonrpc": "2.0"}'))
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28"}
    carried(daemon, message(1, "tools/call", name="get_task", _meta=meta))
    assert daemon.sent[0][2] == {
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": "tools/call",
        "mcp-name": "get_task",
    }


def test_faults_are_answers_and_the_bridge_stands():
    daemon = FakeDaemon(
        Unavailable("the daemon at x does not respond"),
        (401, {}, b'{"error": {"message": "this key opens nothing"}}'),
        (502, {}, b"<html>"),
        (200, {}, b'{"jsonrpc": "2.0", "id": 4, "result": {}}'),
        Unavailable("gone"),
    )
    notice = {"jsonrpc": "2.0", "method": "notifications/x"}
    asked = [message(n, "ping") for n in range(1, 5)]
    told = carried(daemon, b"{", b"x" * (MAX_LINE + 9), *asked, notice)
    assert [one.get("id") for one in told] == [None, None, 1, 2, 3, 4]
    assert [one.get("error", {}).get("code") for one in told] == [
        -32700, -32700, -32000, -32000, -32000, None,
    ]  # fmt: skip
    assert told[3]["error"]["message"] == "this key opens nothing"
