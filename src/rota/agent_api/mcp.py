"""MCP over JSON-RPC: agent operations as tools, one message in and at most one out.

Nothing is stored between two messages, so the daemon can restart between them. Clients of the 2025
revisions call `initialize` first; those of 2026-07-28 send their version with every request.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from rota.agent_api.dispatcher import AgentApi
from rota.agent_api.operations import AvailableOperation
from rota.rules.permissions import Caller

HANDSHAKES = ("2025-06-18", "2025-11-25")
MODERN = ("2026-07-28",)
META = "io.modelcontextprotocol/"
REQUEST_ID = "rota/request_id"
"""Key in `_meta` under which a client identifies a repeated call."""
PARSE, INVALID, NO_METHOD, PARAMS = -32700, -32600, -32601, -32602
MISMATCH, VERSION = -32020, -32022
STATUS = {PARSE: 400, INVALID: 400, NO_METHOD: 404, PARAMS: 400, MISMATCH: 400, VERSION: 400}
"""HTTP statuses of errors; before 2026-07-28 errors of a whole request had status 200."""
OK, TAKEN = 200, 202
INSIDE = (
    "Rota schedules and runs work for people. These tools act for your run, within its space: "
    "schedule tasks, list them, store state, send messages. Ask the person (ask_user) before you "
    "schedule something that nobody asked for. Times are in the time zone of the space unless you "
    "name another."
)
OUTSIDE = (
    "Rota schedules and runs work for people. These tools act for the space of your key: schedule "
    "tasks, run them, list them, store state. Ask the person before you schedule something that "
    "nobody asked for. Times are in the time zone of the space unless you name another."
)
_SESSION = re.compile(r"[!-~]{1,128}")


class McpResponse(NamedTuple):
    """The answer to a message; without a record for notifications."""

    status: int
    record: dict[str, Any] | None = None
    session: str | None = None


class McpHeaders(NamedTuple):
    """Headers of the transport that accompany a message."""

    session: str | None = None
    version: str | None = None
    method: str | None = None
    name: str | None = None


class McpError(Exception):
    """An invalid message."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error: dict[str, Any] = {"code": code, "message": message}
        if data is not None:
            self.error["data"] = data


class McpSession:
    """Answers the messages of any client."""

    def __init__(self, desk: AgentApi) -> None:
        self._desk = desk
        self._server = {"name": "rota", "version": version("rota")}

    async def answer(self, message: object, caller: Caller, told: McpHeaders) -> McpResponse:
        """Return the answer to one message."""
        number = message.get("id") if isinstance(message, dict) else None
        modern = _is_modern(message)
        try:
            method, params, is_notice = _read(message)
            if is_notice:
                return McpResponse(TAKEN)
            _check_version(params, method, told, modern=modern)
            result, session = await self._result(method, params, caller, told, number)
        except McpError as fault:
            code = fault.error["code"]
            broken = code in {PARSE, INVALID, VERSION, MISMATCH}
            status = STATUS[code] if modern or broken else OK
            known = number if _is_number(number) else None
            return McpResponse(status, {"jsonrpc": "2.0", "id": known, "error": fault.error})
        if modern:
            result = {
                **result,
                "resultType": "complete",
                "_meta": {f"{META}serverInfo": self._server},
            }
        return McpResponse(OK, {"jsonrpc": "2.0", "id": number, "result": result}, session)

    async def _result(
        self,
        method: str,
        params: Mapping[str, Any],
        caller: Caller,
        told: McpHeaders,
        number: object,
    ) -> tuple[dict[str, Any], str | None]:
        match method:
            case "initialize":
                return self._hello(params, caller), secrets.token_hex(16)
            case "server/discover":
                return self._known(caller), None
            case "ping":
                return {}, None
            case "tools/list":
                return self._tools(caller, told), None
            case "tools/call":
                return await self._call(params, caller, told, number), None
        raise McpError(NO_METHOD, f"unknown method {method[:100]!r} here")

    def _hello(self, params: Mapping[str, Any], caller: Caller) -> dict[str, Any]:
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in HANDSHAKES else HANDSHAKES[-1],
            "capabilities": {"tools": {}},
            "serverInfo": self._server,
            "instructions": _instructions(caller),
        }

    def _known(self, caller: Caller) -> dict[str, Any]:
        return {
            "supportedVersions": [*HANDSHAKES, *MODERN],
            "capabilities": {"tools": {}},
            "instructions": _instructions(caller),
            **FRESH,
        }

    def _tools(self, caller: Caller, told: McpHeaders) -> dict[str, Any]:
        inside = caller.attempt is not None
        tools = [tool_of(found, attempt=inside) for found in self._desk.offers(caller).values()]
        return {"tools": tools, **(FRESH if told.version in MODERN else {})}

    async def _call(
        self, params: Mapping[str, Any], caller: Caller, told: McpHeaders, number: object
    ) -> dict[str, Any]:
        name, fields = params.get("name"), params.get("arguments") or {}
        if not isinstance(name, str) or not isinstance(fields, dict):
            raise McpError(PARAMS, "name a tool and pass its arguments as an object")
        if name not in self._desk.offers(caller):
            raise McpError(PARAMS, f"unknown tool {name[:100]!r} here")
        key = _key(params.get("_meta"), told.session, number)
        given = await self._desk.serve_caller(caller, name, fields, key)
        return {
            "content": [{"type": "text", "text": json.dumps(given, ensure_ascii=False)}],
            "structuredContent": given,
            "isError": not given["ok"],
        }


FRESH: Mapping[str, Any] = {"ttlMs": 0, "cacheScope": "private"}


def _instructions(caller: Caller) -> str:
    return OUTSIDE if caller.attempt is None else INSIDE


def tool_of(found: AvailableOperation, *, attempt: bool) -> dict[str, Any]:
    """Return an operation as an MCP tool."""
    reads = not found.command.writes
    return {
        "name": found.verb.name,
        "description": found.verb.about,
        "inputSchema": found.schema(attempt=attempt),
        "annotations": {
            "readOnlyHint": reads,
            "destructiveHint": not reads and found.command.method == "DELETE",
            "openWorldHint": False,
        },
    }


def _read(message: object) -> tuple[str, Mapping[str, Any], bool]:
    """Return the method, its parameters, and whether the message is a notification."""
    if isinstance(message, list):
        raise McpError(INVALID, "send one message at a time")
    if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
        raise McpError(INVALID, "send one JSON-RPC 2.0 message")
    method, params = message.get("method"), message.get("params", {})
    if "id" in message and not _is_number(message["id"]):
        raise McpError(INVALID, "an id is a string of at most 128 characters or an integer")
    if not isinstance(method, str):
        raise McpError(INVALID, "name a method")
    if not isinstance(params, dict):
        raise McpError(PARAMS, "pass params as an object")
    return method, params, "id" not in message


def _is_number(number: object) -> bool:
    if isinstance(number, str):
        return len(number) <= LONGEST_ID
    return isinstance(number, int) and not isinstance(number, bool) and abs(number) < LARGEST_ID


LONGEST_ID = 128
LARGEST_ID = 2**63


def _is_modern(message: object) -> bool:
    """Return whether a message states its version itself."""
    params = message.get("params") if isinstance(message, dict) else None
    meta = params.get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and f"{META}protocolVersion" in meta


def _check_version(
    params: Mapping[str, Any], method: str, told: McpHeaders, *, modern: bool
) -> None:
    """Refuse unsupported versions and contradicting headers."""
    if not modern:
        if told.version is not None and told.version not in HANDSHAKES and method != "initialize":
            raise _unspoken(told.version)
        return
    meta = params["_meta"]
    asked = meta[f"{META}protocolVersion"]
    if not isinstance(asked, str) or f"{META}clientCapabilities" not in meta:
        raise McpError(PARAMS, f"_meta needs {META}protocolVersion and {META}clientCapabilities")
    if told.version != asked or told.method != method:
        raise McpError(
            MISMATCH, "the headers MCP-Protocol-Version and Mcp-Method do not match the message"
        )
    if method == "tools/call" and told.name != params.get("name"):
        raise McpError(MISMATCH, "the header Mcp-Name does not match the message")
    if asked not in MODERN:
        raise _unspoken(asked)


def _unspoken(asked: str) -> McpError:
    data = {"supported": [*HANDSHAKES, *MODERN], "requested": asked[:100]}
    return McpError(VERSION, "Unsupported protocol version", data)


def _key(meta: object, session: str | None, number: object) -> str | None:
    """Return the identity of a repeated call: given by the client, or its number in a session."""
    said = meta.get(REQUEST_ID) if isinstance(meta, dict) else None
    if isinstance(said, str):
        return said
    if session is None or _SESSION.fullmatch(session) is None:
        return None
    words = f"{session}\n{json.dumps(number)}".encode()
    return f"mcp:{hashlib.sha256(words).hexdigest()}"


MCP_PATH = "/mcp"
