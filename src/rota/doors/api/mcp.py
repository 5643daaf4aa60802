"""`/mcp` over HTTP: one message in a request, its answer in JSON."""

from __future__ import annotations

from functools import partial

from pydantic_core import from_json

from rota.doors.api.asgi import Receive, Reply, Scope, whole_body
from rota.doors.api.bodies import Reading
from rota.doors.api.guard import NO_ROUTE
from rota.doors.inside.mcp import PARSE, Headers, Tools
from rota.wiring.passes import PATH

ALLOWED = "POST, DELETE"
SESSION = "mcp-session-id"


class McpPage:
    """Answers what the guard has let through to the desk."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._reading = Reading()

    async def __call__(self, scope: Scope, receive: Receive) -> Reply:
        """Return the answer to one request."""
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else NO_ROUTE
        scope["route"] = f"{method} {PATH}"
        if scope["method"] == "DELETE":  # nothing is kept of a session
            return Reply(204, b"")
        if scope["method"] != "POST":
            error = {"code": "method_not_allowed", "message": f"say it with {ALLOWED}"}
            return Reply.record(405, {"error": error}, [("allow", ALLOWED)])
        body = await whole_body(receive)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        beside = Headers(
            session=headers.get(SESSION.encode()),
            version=headers.get(b"mcp-protocol-version"),
            method=headers.get(b"mcp-method"),
            name=headers.get(b"mcp-name"),
        )
        try:
            message = await self._reading.read(body, partial(from_json, allow_inf_nan=False))
        except ValueError:
            fault = {"code": PARSE, "message": "that is not JSON, or too deep"}
            return Reply.record(400, {"jsonrpc": "2.0", "id": None, "error": fault})
        answer = await self._tools.answer(message, scope["caller"], beside)
        if answer.record is None:
            return Reply(answer.status, b"")
        named = [] if answer.session is None else [(SESSION, answer.session)]
        return Reply.record(answer.status, answer.record, named)
