"""Routes from the catalogue, request coalescing and the MCP endpoint.

Equal read requests share one query. A request never shares a query that started before it: it waits
for the next one, together with all others that arrive meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Hashable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from rota.agent_api.mcp import MCP_PATH, PARSE, McpHeaders, McpSession
from rota.api.asgi import (
    PATH,
    Download,
    Downloads,
    HttpResponse,
    Receive,
    Scope,
    Send,
    find_download,
    whole_body,
)
from rota.api.event_stream import (
    EventHub,
    EventStreamResponse,
    EventStreams,
    StreamRoute,
    find_following,
)
from rota.api.metrics import KIND, Metrics
from rota.api.middleware import METRICS, NO_ROUTE, Reading, RequestRejected
from rota.api.openapi import describe_api
from rota.api.refusals import failed
from rota.commands.catalogue import (
    CommandResult,
    Operation,
    every_command,
    execute,
    pattern_of,
    validation_error,
)
from rota.commands.context import AppContext, RequestContext
from rota.commands.errors import error_code, error_record
from rota.commands.runs import ArtifactSelector, open_artifact
from rota.errors import Invalid, RotaError, Unavailable
from rota.flow.observe.readiness import readiness
from rota.model.keys import KeyScope
from rota.rules.permissions import Caller, check_main, check_scope
from rota.runtime.clock import SystemClock

BODIES = frozenset({"POST", "PUT", "PATCH"})
REHEARSAL = {None: False, b"false": False, b"true": True}
MOST_QUERIES = 100
DOCUMENT = "/v1/openapi.json"
READY = "/readyz"
NOTHING_HERE = "unknown path: see /v1/openapi.json"

Page = Callable[[Scope, Receive], Awaitable[HttpResponse | EventStreamResponse | Download]]


class _Found(NamedTuple):
    command: Operation
    named: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Route:
    command: Operation
    pattern: re.Pattern[str]
    whole: frozenset[str]
    """The integer fields of the path."""


class HttpApi:
    """Handles authenticated requests."""

    def __init__(self, app: AppContext, pages: dict[str, Page] | None = None) -> None:
        self._app = app
        self._pages = pages or {}
        self._sharing: RequestCoalescer[HttpResponse] = RequestCoalescer()
        self._plain: dict[tuple[str, str], Operation] = {}
        self._routes: list[_Route] = []
        for command in every_command():
            if command.named:
                whole = frozenset(n for n in command.named if _is_whole(command.takes, n))
                self._routes.append(_Route(command, pattern_of(command.path), whole))
            else:
                self._plain[command.method, command.path] = command
        self._document: bytes | None = None
        self._hub = EventHub(app.store, SystemClock(), app.chance)
        self._streams = EventStreams(app.store, self._hub)
        self._metrics = Metrics(app)
        self._reading = Reading()
        self.downloads = Downloads()

    async def close(self) -> None:
        """Close all event streams."""
        await self._hub.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        page = self._pages.get(scope["path"], self._reply)
        try:
            reply = await page(scope, receive)
        except RequestRejected as fault:  # the rest of the body is not wanted
            reply = HttpResponse.record(
                fault.status, error_record(fault), [("connection", "close")]
            )
        except RotaError as fault:
            reply = HttpResponse.record(error_code(fault).status, error_record(fault))
        except Exception as fault:  # noqa: BLE001 - it is logged
            reply = failed(scope, fault)
        await reply.send(send)

    async def _reply(
        self, scope: Scope, receive: Receive
    ) -> HttpResponse | EventStreamResponse | Download:
        method, path = scope["method"], scope["path"]
        found = self._find(method, path)
        if found is None:
            following = find_following(path) if method == "GET" else None
            if following is not None:
                scope["route"] = f"GET {following[0].path}"
                return await self._follow(*following, scope, receive)
            wanted = find_download(path) if method == "GET" else None
            if wanted is not None:
                scope["route"] = f"GET {PATH}"
                return await self._fetch(wanted, scope, receive)
            if (method, path) == ("GET", METRICS):
                return await self._figures(scope)
            return await self._other(method, path)
        command = found.command
        scope["route"] = f"{method} {command.path}"
        headers = dict(scope["headers"])
        check_scope(_caller(scope), command.scope)
        asked = await self._asked(found, scope, receive)
        office = self._office(scope, headers.get(b"if-match"))
        if command.writes:
            key = headers.get(b"idempotency-key")
            answer = await execute(
                command,
                office,
                asked,
                key=None if key is None else key.decode("latin-1"),
                dry_run=_rehearsal(headers.get(b"rota-dry-run")),
            )
            return _reply_of(answer)
        return await self._look(command, office, asked)

    def _office(self, scope: Scope, if_match: bytes | None = None) -> RequestContext:
        return RequestContext(
            app=self._app,
            caller=_caller(scope),
            expected_version=None if if_match is None else if_match.decode("latin-1"),
        )

    async def _fetch(self, wanted: dict[str, str], scope: Scope, receive: Receive) -> Download:
        try:
            asked = ArtifactSelector.model_validate_strings({**_query(scope), **wanted})
        except ValidationError as fault:
            raise validation_error(fault) from None
        opened = await open_artifact(self._office(scope), asked)
        return self.downloads.begin(opened, receive)

    async def _figures(self, scope: Scope) -> HttpResponse:
        """Return the metrics; the middleware has checked access without a key."""
        scope["route"] = f"GET {METRICS}"
        if "caller" in scope:
            check_scope(_caller(scope), KeyScope.READ)
            check_main(_caller(scope))
        return HttpResponse(200, await self._metrics.text(), kind=KIND)

    async def _follow(
        self, route: StreamRoute, named: dict[str, str], scope: Scope, receive: Receive
    ) -> HttpResponse | EventStreamResponse:
        try:
            asked = route.takes.model_validate_strings({**_query(scope), **named})
        except ValidationError as fault:
            raise validation_error(fault) from None
        return await self._streams.reply(route, scope, receive, asked)

    async def _look(
        self, command: Operation, office: RequestContext, asked: BaseModel
    ) -> HttpResponse:
        """Run a read command, shared with equal requests of the same visibility."""
        seen_as = (office.caller.role, office.caller.space)
        question = (command.name, seen_as, asked.model_dump_json())

        async def look() -> HttpResponse:
            return _reply_of(await execute(command, office, asked))

        return await self._sharing.ask(question, look)

    def _find(self, method: str, path: str) -> _Found | None:
        command = self._plain.get((method, path))
        if command is not None:
            return _Found(command, {})
        for route in self._routes:
            if route.command.method == method:
                match = route.pattern.fullmatch(path)
                if match is not None:
                    return _Found(route.command, match.groupdict())
        return None

    async def _other(self, method: str, path: str) -> HttpResponse:
        if path == DOCUMENT and method == "GET":
            if self._document is None:
                self._document = json.dumps(describe_api()).encode()
            return HttpResponse(200, self._document)
        if path == READY and method == "GET":
            return await self._sharing.ask((READY, None, ""), self._ready)
        allowed = sorted(set(self._allowed(path)))
        if allowed:
            message = f"{method} is not allowed here: {', '.join(allowed)} is"
            error = {"code": "method_not_allowed", "message": message}
            return HttpResponse.record(405, {"error": error}, [("allow", ", ".join(allowed))])
        return HttpResponse.record(404, {"error": {"code": "not_found", "message": NOTHING_HERE}})

    async def _ready(self) -> HttpResponse:
        """Return readiness with reasons but without confidential details."""
        app = self._app
        services = [] if app.daemon is None else app.daemon.services
        found = await readiness(app.store, services)
        if not found:
            return HttpResponse.record(200, {"status": "ok"})
        reasons = [{"code": each.code, "message": each.sentence} for each in found]
        message = "; ".join(each.sentence for each in found)
        error = {"code": Unavailable.code, "message": message}
        return HttpResponse.record(
            503, {"status": "unavailable", "error": error, "reasons": reasons}
        )

    def _allowed(self, path: str) -> Iterable[str]:
        if path in {DOCUMENT, READY, METRICS} or find_following(path) or find_download(path):
            yield "GET"
        yield from (method for method, known in self._plain if known == path)
        for route in self._routes:
            if route.pattern.fullmatch(path):
                yield route.command.method

    async def _asked(self, found: _Found, scope: Scope, receive: Receive) -> BaseModel:
        command = found.command
        try:
            if command.method not in BODIES:
                return command.takes.model_validate_strings({**_query(scope), **found.named})
            if scope["query_string"]:
                raise Invalid("query", "", "put all fields into the body")
            return await self._reading.read(
                await whole_body(receive), partial(self._said, command, found.named)
            )
        except ValidationError as fault:
            raise validation_error(fault) from None

    def _said(self, command: Operation, named: dict[str, str], body: bytes) -> BaseModel:
        """Parse the body and path fields, and hold a long body only once."""
        if not named:
            return command.takes.model_validate_json(body or b"{}", strict=True)
        said = _object(body)
        del body
        route = next(route for route in self._routes if route.command is command)
        for name, value in named.items():
            if name in said:
                raise Invalid(name, said[name], "it is already in the path")
            whole = name in route.whole and value.isascii() and value.isdigit()
            said[name] = int(value) if whole and len(value) <= len(str(2**63)) else value
        together = to_json(said)
        said.clear()
        return command.takes.model_validate_json(together, strict=True)


def _rehearsal(said: bytes | None) -> bool:
    """Return whether the request is a dry run; an unknown value is an error."""
    found = REHEARSAL.get(said)
    if found is None:
        raise Invalid("Rota-Dry-Run", said, "use `true` or `false`")
    return found


def _object(body: bytes) -> dict[str, Any]:
    try:
        said = from_json(body or b"{}")
    except ValueError:
        raise Invalid("body", "", "send one JSON object") from None
    if not isinstance(said, dict):
        raise Invalid("body", "", "send one JSON object")
    return said


def _query(scope: Scope) -> dict[str, str]:
    try:
        text = scope["query_string"].decode("ascii")
        pairs = parse_qsl(
            text, keep_blank_values=True, max_num_fields=MOST_QUERIES, errors="strict"
        )
    except ValueError:
        raise Invalid("query", "", "it cannot be parsed") from None
    found: dict[str, str] = {}
    for name, value in pairs:
        if name in found:
            raise Invalid(name, value, "give it once")
        found[name] = value
    return found


def _is_whole(takes: type[BaseModel], name: str) -> bool:
    return takes.model_fields[name].annotation is int


def _caller(scope: Scope) -> Caller:
    caller: Caller = scope["caller"]
    return caller


def _reply_of(answer: CommandResult) -> HttpResponse:
    headers = []
    if answer.etag is not None:
        headers.append(("etag", answer.etag))
    if answer.again:
        headers.append(("idempotency-replayed", "true"))
    return HttpResponse(answer.status, answer.text.encode(), headers)


Answer = TypeVar("Answer")


class RequestCoalescer(Generic[Answer]):
    """Answers equal requests with one query."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[Answer] | None] = {}

    async def ask(self, question: Hashable, look: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the result of a query that starts now or later."""
        if question not in self._waiting:
            self._waiting[question] = None
            try:
                return await look()
            finally:
                self._go_on(question, look)
        following = self._waiting[question]
        if following is None:
            following = self._waiting[question] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(following)

    def _go_on(self, question: Hashable, look: Callable[[], Awaitable[Answer]]) -> None:
        """Run the query again for requests that arrived meanwhile."""
        following = self._waiting[question]
        if following is None:
            del self._waiting[question]
            return
        self._waiting[question] = None
        asyncio.get_running_loop().create_task(self._follow(question, look, following))

    async def _follow(
        self,
        question: Hashable,
        look: Callable[[], Awaitable[Answer]],
        following: asyncio.Future[Answer],
    ) -> None:
        try:
            answer = await look()
        except Exception as fault:  # noqa: BLE001 - passed to all waiting requests
            following.set_exception(fault)
            following.exception()
        else:
            following.set_result(answer)
        finally:
            self._go_on(question, look)


ALLOWED = "POST, DELETE"
SESSION = "mcp-session-id"


class McpEndpoint:
    """Passes authenticated messages to the agent API."""

    def __init__(self, tools: McpSession) -> None:
        self._tools = tools
        self._reading = Reading()

    async def __call__(self, scope: Scope, receive: Receive) -> HttpResponse:
        """Return the response to one message."""
        method = scope["method"] if scope["method"] in {"GET", "POST", "DELETE"} else NO_ROUTE
        scope["route"] = f"{method} {MCP_PATH}"
        if scope["method"] == "DELETE":  # sessions have no state
            return HttpResponse(204, b"")
        if scope["method"] != "POST":
            error = {"code": "method_not_allowed", "message": f"use {ALLOWED}"}
            return HttpResponse.record(405, {"error": error}, [("allow", ALLOWED)])
        body = await whole_body(receive)
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        beside = McpHeaders(
            session=headers.get(SESSION.encode()),
            version=headers.get(b"mcp-protocol-version"),
            method=headers.get(b"mcp-method"),
            name=headers.get(b"mcp-name"),
        )
        try:
            message = await self._reading.read(body, partial(from_json, allow_inf_nan=False))
        except ValueError:
            fault = {"code": PARSE, "message": "invalid JSON, or nested too deeply"}
            return HttpResponse.record(400, {"jsonrpc": "2.0", "id": None, "error": fault})
        answer = await self._tools.answer(message, scope["caller"], beside)
        if answer.record is None:
            return HttpResponse(answer.status, b"")
        named = [] if answer.session is None else [(SESSION, answer.session)]
        return HttpResponse.record(answer.status, answer.record, named)
