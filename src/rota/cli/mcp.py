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
NO_DAEMON = "no daemon answers: start one with `rota up`, or name it with --url or ROTA_URL"


def mcp(context: typer.Context) -> None:
    """Offer Rota's tools to an MCP client that starts this program.

    It speaks MCP on standard input and output and asks the daemon with ROTA_KEY, or the key of the
    home folder; what that key may not do, the client may not.

    Example: rota mcp --url http://127.0.0.1:7682
    """
    daemon = CliContext(context).daemon()
    if daemon is None:
        raise Unavailable(NO_DAEMON)
    try:
        McpBridge(daemon).carry(sys.stdin.buffer, sys.stdout.buffer)
    finally:
        daemon.close()


class McpBridge:
    """Carries messages, a line each, to a daemon and its answers back."""

    def __init__(self, daemon: HttpClient) -> None:
        self._daemon = daemon
        self._session: str | None = None
        self._version: str | None = None

    def carry(self, coming: IO[bytes], going: IO[bytes]) -> None:
        """Carry until there is nothing more to come."""
        while line := coming.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                while line and not line.endswith(b"\n"):
                    line = coming.readline(MAX_LINE)
                answer: object = _fault(None, PARSE, f"a message has at most {MAX_LINE} bytes")
            elif not line.strip():
                continue
            else:
                answer = self._answer(line)
            if answer is not None:
                going.write(json.dumps(answer).encode() + b"\n")
                going.flush()

    def _answer(self, line: bytes) -> object:
        try:
            message = json.loads(line)
        except (ValueError, RecursionError):
            return _fault(None, PARSE, "that is not JSON")
        said: dict[str, Any] = message if isinstance(message, dict) else {}
        try:
            status, headers, body = self._daemon.post(PATH, line.strip(), self._headers(said))
            answer = json.loads(body) if body else None
        except (RotaError, ValueError) as fault:
            return _fault(said.get("id"), FAILED, str(fault)) if "id" in said else None
        if said.get("method") == "initialize" and status < REFUSED:
            self._session = headers.get(SESSION)
            self._version = (answer or {}).get("result", {}).get("protocolVersion")
        if status < REFUSED or "jsonrpc" in (answer or {}):
            return answer
        told = (answer or {}).get("error", {}).get("message") or f"the daemon answered {status}"
        return _fault(said.get("id"), FAILED, told)

    def _headers(self, said: dict[str, Any]) -> dict[str, str]:
        """Return what HTTP wants to know of a message beside it."""
        params = said.get("params")
        params = params if isinstance(params, dict) else {}
        meta = params.get("_meta")
        own = meta.get(META_VERSION) if isinstance(meta, dict) else None
        wanted: dict[str, object] = {
            SESSION: None if own else self._session,
            "mcp-protocol-version": own or self._version,
            "mcp-method": said.get("method") if own else None,
            "mcp-name": params.get("name") if own else None,
        }
        said_of = {name: value for name, value in wanted.items() if isinstance(value, str)}
        return {name: value for name, value in said_of.items() if _is_plain(value)}


def _is_plain(value: str) -> bool:
    return value.isascii() and value.isprintable()


def _fault(number: object, code: int, message: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": message}}


def register(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("mcp")(mcp)
