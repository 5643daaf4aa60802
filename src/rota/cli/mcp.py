"""`rota mcp`: agent operations over standard input and output."""

from __future__ import annotations

import json
import sys
from typing import IO, Any

import typer

from rota.cli.context import CliContext
from rota.cli.remote import HttpClient
from rota.errors import RotaError, Unavailable

MAX_LINE = 1 << 20
PATH = "/mcp"
SESSION = "mcp-session-id"
META_VERSION = "io.modelcontextprotocol/protocolVersion"
PARSE, FAILED = -32700, -32000
REFUSED = 400
NO_DAEMON = "no daemon is running: start `rota up`, or set --url or ROTA_URL"


def mcp(context: typer.Context) -> None:
    """Serve Rota's tools to an MCP client on standard input and output.

    Requests go to the daemon with the key ROTA_KEY, or the key of the home folder, and its
    permissions.

    Example: rota mcp --url http://127.0.0.1:7682
    """
    daemon = CliContext(context).daemon()
    if daemon is None:
        raise Unavailable(NO_DAEMON)
    try:
        McpBridge(daemon).forward(sys.stdin.buffer, sys.stdout.buffer)
    finally:
        daemon.close()


class McpBridge:
    """Forwards messages, one per line, to a daemon, and returns its responses."""

    def __init__(self, daemon: HttpClient) -> None:
        self._daemon = daemon
        self._session: str | None = None
        self._version: str | None = None

    def forward(self, source: IO[bytes], target: IO[bytes]) -> None:
        """Forward messages until the end of the input."""
        while line := source.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                while line and not line.endswith(b"\n"):
                    line = source.readline(MAX_LINE)
                answer: object = _error(None, PARSE, f"message longer than {MAX_LINE} bytes")
            elif not line.strip():
                continue
            else:
                answer = self._answer(line)
            if answer is not None:
                target.write(json.dumps(answer).encode() + b"\n")
                target.flush()

    def _answer(self, line: bytes) -> object:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _error(None, PARSE, "not valid JSON")
        request: dict[str, Any] = message if isinstance(message, dict) else {}
        try:
            status, headers, body = self._daemon.post(PATH, line.strip(), self._headers(request))
            answer = json.loads(body) if body else None
        except (RotaError, ValueError) as error:
            return _error(request.get("id"), FAILED, str(error)) if "id" in request else None
        if request.get("method") == "initialize" and status < REFUSED:
            self._session = headers.get(SESSION)
            self._version = (answer or {}).get("result", {}).get("protocolVersion")
        if status < REFUSED or "jsonrpc" in (answer or {}):
            return answer
        message_text = (answer or {}).get("error", {}).get(
            "message"
        ) or f"the daemon answered {status}"
        return _error(request.get("id"), FAILED, message_text)

    def _headers(self, request: dict[str, Any]) -> dict[str, str]:
        """Return the HTTP headers for a message."""
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        own = meta.get(META_VERSION) if isinstance(meta, dict) else None
        values: dict[str, object] = {
            SESSION: None if own else self._session,
            "mcp-protocol-version": own or self._version,
            "mcp-method": request.get("method") if own else None,
            "mcp-name": params.get("name") if own else None,
        }
        headers = {name: value for name, value in values.items() if isinstance(value, str)}
        return {name: value for name, value in headers.items() if _is_plain(value)}


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _error(number: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("mcp")(mcp)
