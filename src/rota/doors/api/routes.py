"""The application: a route for every command of the catalogue, and nothing that decides."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json, to_json

from rota.doors.api.asgi import Receive, Reply, Scope, Send, whole_body
from rota.doors.api.bodies import Reading
from rota.doors.api.document import describe_api
from rota.doors.api.downloads import PATH, Download, Downloads, find_download
from rota.doors.api.guard import METRICS, Turned
from rota.doors.api.hub import Hub
from rota.doors.api.metrics import KIND, Metrics
from rota.doors.api.refusals import failed
from rota.doors.api.sharing import Sharing
from rota.doors.api.streams import Following, Stream, Streams, find_following
from rota.doors.commands.artifacts import OneArtifact, open_artifact
from rota.doors.kit.catalogue import Command, every_command, pattern_of
from rota.doors.kit.faults import fault_record, told
from rota.doors.kit.office import House, Office
from rota.doors.kit.perform import Answer, perform, refused
from rota.errors import Invalid, RotaError, Unavailable
from rota.flow.observe.readiness import readiness
from rota.model.keys import KeyScope
from rota.rules.permission import Caller, check_main, check_scope
from rota.runtime.clock import SystemClock

BODIES = frozenset({"POST", "PUT", "PATCH"})
REHEARSAL = {None: False, b"false": False, b"true": True}
MOST_QUERIES = 100
DOCUMENT = "/v1/openapi.json"
READY = "/readyz"
NOTHING_HERE = "there is nothing here: see /v1/openapi.json"

Page = Callable[[Scope, Receive], Awaitable[Reply | Stream | Download]]


class _Found(NamedTuple):
    command: Command
    named: dict[str, str]


@dataclass(frozen=True, slots=True)
class _Route:
    command: Command
    pattern: re.Pattern[str]
    whole: frozenset[str]
    """The fields that are whole numbers in the path."""


class Api:
    """Answers requests that the guard has let through."""

    def __init__(self, house: House, pages: dict[str, Page] | None = None) -> None:
        self._house = house
        self._pages = pages or {}
        self._sharing: Sharing[Reply] = Sharing()
        self._plain: dict[tuple[str, str], Command] = {}
        self._routes: list[_Route] = []
        for command in every_command():
            if command.named:
                whole = frozenset(n for n in command.named if _is_whole(command.takes, n))
                self._routes.append(_Route(command, pattern_of(command.path), whole))
            else:
                self._plain[command.method, command.path] = command
        self._document: bytes | None = None
        self._hub = Hub(house.store, SystemClock(), house.chance)
        self._streams = Streams(house.store, self._hub)
        self._metrics = Metrics(house)
        self._reading = Reading()
        self.downloads = Downloads()

    async def close(self) -> None:
        """Let clients go whose answer has no end."""
        await self._hub.close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        page = self._pages.get(scope["path"], self._reply)
        try:
            reply = await page(scope, receive)
        except Turned as fault:  # in the middle of a body, of which the rest is not wanted
            reply = Reply.record(fault.status, fault_record(fault), [("connection", "close")])
        except RotaError as fault:
            reply = Reply.record(told(fault).status, fault_record(fault))
        except Exception as fault:  # noqa: BLE001 - it is logged
            reply = failed(scope, fault)
        await reply.send(send)

    async def _reply(self, scope: Scope, receive: Receive) -> Reply | Stream | Download:
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
            answer = await perform(
                command,
                office,
                asked,
                key=None if key is None else key.decode("latin-1"),
                rehearsal=_rehearsal(headers.get(b"rota-dry-run")),
            )
            return _reply_of(answer)
        return await self._look(command, office, asked)

    def _office(self, scope: Scope, stands: bytes | None = None) -> Office:
        house = self._house
        return Office(
            store=house.store,
            caller=_caller(scope),
            chance=house.chance,
            bounds=house.bounds,
            agents=house.agents,
            channels=house.channels,
            inquirer=house.inquirer,
            sites=house.sites,
            artifacts=house.artifacts,
            probes=house.probes,
            secrets=house.secrets,
            daemon=house.daemon,
            stands=None if stands is None else stands.decode("latin-1"),
        )

    async def _fetch(self, wanted: dict[str, str], scope: Scope, receive: Receive) -> Download:
        try:
            asked = OneArtifact.model_validate_strings({**_query(scope), **wanted})
        except ValidationError as fault:
            raise refused(fault) from None
        opened = await open_artifact(self._office(scope), asked)
        return self.downloads.begin(opened, receive)

    async def _figures(self, scope: Scope) -> Reply:
        """Return figures; who comes without a key was let through by the guard."""
        scope["route"] = f"GET {METRICS}"
        if "caller" in scope:
            check_scope(_caller(scope), KeyScope.READ)
            check_main(_caller(scope))
        return Reply(200, await self._metrics.text(), kind=KIND)

    async def _follow(
        self, route: Following, named: dict[str, str], scope: Scope, receive: Receive
    ) -> Reply | Stream:
        try:
            asked = route.takes.model_validate_strings({**_query(scope), **named})
        except ValidationError as fault:
            raise refused(fault) from None
        return await self._streams.reply(route, scope, receive, asked)

    async def _look(self, command: Command, office: Office, asked: BaseModel) -> Reply:
        """Answer a question together with everybody who sees the same and asks the same."""
        seen_as = (office.caller.role, office.caller.space)
        question = (command.name, seen_as, asked.model_dump_json())

        async def look() -> Reply:
            return _reply_of(await perform(command, office, asked))

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

    async def _other(self, method: str, path: str) -> Reply:
        if path == DOCUMENT and method == "GET":
            if self._document is None:
                self._document = json.dumps(describe_api()).encode()
            return Reply(200, self._document)
        if path == READY and method == "GET":
            return await self._sharing.ask((READY, None, ""), self._ready)
        allowed = sorted(set(self._allowed(path)))
        if allowed:
            message = f"{method} is not possible here: {', '.join(allowed)} is"
            error = {"code": "method_not_allowed", "message": message}
            return Reply.record(405, {"error": error}, [("allow", ", ".join(allowed))])
        return Reply.record(404, {"error": {"code": "not_found", "message": NOTHING_HERE}})

    async def _ready(self) -> Reply:
        """Tell everybody what this daemon cannot do, without what only its people may know."""
        house = self._house
        services = [] if house.daemon is None else house.daemon.services
        found = await readiness(house.store, services)
        if not found:
            return Reply.record(200, {"status": "ok"})
        reasons = [{"code": each.code, "message": each.sentence} for each in found]
        message = "; ".join(each.sentence for each in found)
        error = {"code": Unavailable.code, "message": message}
        return Reply.record(503, {"status": "unavailable", "error": error, "reasons": reasons})

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
                raise Invalid("query", "", "say everything in the body")
            return await self._reading.read(
                await whole_body(receive), partial(self._said, command, found.named)
            )
        except ValidationError as fault:
            raise refused(fault) from None

    def _said(self, command: Command, named: dict[str, str], body: bytes) -> BaseModel:
        """Read a body together with what stands in the path, and hold a long one only once."""
        if not named:
            return command.takes.model_validate_json(body or b"{}", strict=True)
        said = _object(body)
        del body
        route = next(route for route in self._routes if route.command is command)
        for name, value in named.items():
            if name in said:
                raise Invalid(name, said[name], "it stands in the path already")
            whole = name in route.whole and value.isascii() and value.isdigit()
            said[name] = int(value) if whole and len(value) <= len(str(2**63)) else value
        together = to_json(said)
        said.clear()
        return command.takes.model_validate_json(together, strict=True)


def _rehearsal(said: bytes | None) -> bool:
    """Return whether nothing is to change; a word that is not known must not change anything."""
    found = REHEARSAL.get(said)
    if found is None:
        raise Invalid("Rota-Dry-Run", said, "say `true` or `false`")
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
        raise Invalid("query", "", "it cannot be read") from None
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


def _reply_of(answer: Answer) -> Reply:
    headers = []
    if answer.etag is not None:
        headers.append(("etag", answer.etag))
    if answer.again:
        headers.append(("idempotency-replayed", "true"))
    return Reply(answer.status, answer.text.encode(), headers)
