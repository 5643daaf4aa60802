"""`/mcp` over HTTP: one message in a request, its answer in JSON."""

from __future__ import annotations

from pydantic_core import from_json

from rota.doors.api.asgi import Receive, Reply, Scope, Send, whole_body
from rota.doors.api.guard import NO_ROUTE, Turned
from rota.doors.api.refusals import failed
from rota.doors.inside.mcp import PARSE, Headers, Tools
from rota.doors.kit.faults import fault_record, told
from rota.errors import RotaError
from rota.wiring.passes import PATH

ALLOWED = "POST, DELETE"
SESSION = "mcp-session-id"


class McpPage:
    """Answers what the guard has let through to the desk."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else NO_ROUTE
        scope["route"] = f"{method} {PATH}"
        try:
            reply = await self._reply(scope, receive)
        except Turned as fault:  # in the middle of a body, of which the rest is not wanted
            reply = Reply.record(fault.status, fault_record(fault), [("connection", "close")])
        except RotaError as fault:
            reply = Reply.record(told(fault).status, fault_record(fault))
        except Exception as fault:  # noqa: BLE001 - it is logged
            reply = failed(scope, fault)
        await reply.send(send)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply:
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
            message = from_json(body, allow_inf_nan=False)
        except ValueError:
            fault = {"code": PARSE, "message": "that is not JSON, or too deep"}
            return Reply.record(400, {"jsonrpc": "2.0", "id": None, "error": fault})
        answer = await self._tools.answer(message, scope["caller"], beside)
        if answer.record is None:
            return Reply(answer.status, b"")
        named = [] if answer.session is None else [(SESSION, answer.session)]
        return Reply.record(answer.status, answer.record, named)
