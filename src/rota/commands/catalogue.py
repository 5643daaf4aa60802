"""The catalogue of commands, and how one is carried out: scope, audit, repeats, dry runs.

A command is a function over an Office that takes one model and gives one model. Its annotations
and its docstring are all there is to say about it; HTTP routes, the OpenAPI file, the command line
and whatever door comes next read them from here.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from inspect import getdoc
from types import MappingProxyType
from typing import Any, TypeVar, get_type_hints
from urllib.parse import unquote

from pydantic import BaseModel, ValidationError

from rota.commands.context import RequestContext, Shape
from rota.errors import Conflict, DryRunRolledBack, InDoubt, Invalid, NotFound, advice_on
from rota.model.audit import AuditEntry, KeptAnswer, NewAuditEntry
from rota.model.keys import KeyScope
from rota.rules.permissions import check_scope
from rota.store.audit import find_audit_entry, record_answer
from rota.store.store import HookedStore, RequestAudit, Store

Function = TypeVar("Function", bound=Callable[..., Awaitable[Any]])

ROOT = "/v1/"
PACKAGE = "rota.commands"
MODULES = (
    *("spaces", "keys", "tasks", "schedules", "runs", "attempt_requests", "sessions", "threads"),
    *("status", "task_state", "notifications", "budgets", "secrets", "sql_console", "daemon"),
)
MODULE_OF_PATH = MappingProxyType(
    {
        "attempt": "attempt_requests",
        "heartbeats": "status",
        "limits": "spaces",
        "machines": "status",
        "notify": "notifications",
        "pause-all": "daemon",
        "requests": "status",
        "resume-all": "daemon",
        "seen": "task_state",
        "sql": "sql_console",
        "start": "daemon",
        "state": "task_state",
        "stop": "daemon",
        "workers": "status",
    }
)
"""Where to look first for an address whose first word is no module's name."""
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, as every door sees it."""

    name: str
    group: str
    method: str
    path: str
    scope: KeyScope
    status: int
    writes: bool
    takes: type[BaseModel]
    gives: type[BaseModel]
    does: Callable[[RequestContext, Any], Awaitable[Any]]
    about: str

    @property
    def named(self) -> tuple[str, ...]:
        """The fields that stand in the path."""
        return tuple(_FIELD.findall(self.path))


def command(
    method: str, path: str, scope: KeyScope, *, status: int = 200, writes: bool | None = None
) -> Callable[[Function], Function]:
    """Put a function into the catalogue; whatever is no GET writes unless it says otherwise."""

    def keep(function: Function) -> Function:
        hints = get_type_hints(function)
        found = Operation(
            name=function.__name__,
            group=function.__module__.rpartition(".")[2],
            method=method,
            path=path,
            scope=scope,
            status=status,
            writes=method != "GET" if writes is None else writes,
            takes=hints["asked"],
            gives=hints["return"],
            does=function,
            about=getdoc(function) or "",
        )
        _KNOWN.setdefault(found.group, []).append(found)
        return function

    return keep


_KNOWN: dict[str, list[Operation]] = {}


def commands_of(group: str) -> list[Operation]:
    """Return the commands of one module, which is loaded if needed."""
    import_module(f"{PACKAGE}.{group}")
    return _KNOWN[group]


def every_command() -> list[Operation]:
    """Return the whole catalogue."""
    return [command for group in MODULES for command in commands_of(group)]


def find_command(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """Return the command at a path, and what stands in the path's fields."""
    first = path.removeprefix(ROOT).partition("/")[0]
    wanted = MODULE_OF_PATH.get(first, first)
    groups: Iterable[str] = sorted(MODULES, key=lambda group: group != wanted)
    for group in groups:
        for known in commands_of(group):
            match = pattern_of(known.path).fullmatch(path) if known.method == method else None
            if match is not None:
                return known, {name: unquote(value) for name, value in match.groupdict().items()}
    raise NotFound("command", f"{method} {path}")


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """Return what the addresses of a command look like."""
    return re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", path))


NO_CONTENT = 204
MOST_ERRORS = 100
"""In a request of which the first error is told: to list them takes longer than to find them."""
_KEY = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """What a command was answered with; the text is JSON, or empty for a rehearsal."""

    status: int
    text: str
    etag: str | None = None
    again: bool = False
    """Whether this is what an earlier request with the same key was answered."""


async def execute(
    command: Operation,
    office: RequestContext,
    asked: BaseModel,
    *,
    key: str | None = None,
    rehearsal: bool = False,
) -> CommandResult:
    """Do what was asked for; a request that comes again under its key is answered as before."""
    check_scope(office.caller, command.scope)
    if not command.writes:
        return _answer(command, await command.does(office, asked))
    request = _request(command, office, asked, key, rehearsal=rehearsal)
    if key is not None:
        earlier = await office.store.read(find_audit_entry, request.caller, key)
        if earlier is not None:
            return _again(command, earlier, request)
    audit = RequestAudit(office.store, request)
    own = office.with_app(store=HookedStore(office.store, audit))
    if key is not None and not rehearsal:
        own = replace(own, keeps=_keeps(command, office, audit))
    try:
        given = await command.does(own, asked)
    except DryRunRolledBack:
        return CommandResult(status=NO_CONTENT, text="")
    if rehearsal:
        return CommandResult(status=NO_CONTENT, text="")
    if key is not None and audit.request_id is not None and not audit.answered:
        await office.store.write(record_answer, audit.request_id, command.status, _kept(given))
    return _answer(command, given)


def read_request(takes: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return what was asked for, or refuse it in one sentence."""
    try:
        return takes.model_validate(values)
    except ValidationError as fault:
        raise validation_error(fault) from None


def validation_error(fault: ValidationError) -> Invalid:
    """Return the first thing that is wrong with a request, unless it takes too long to tell."""
    if fault.error_count() > MOST_ERRORS:
        return Invalid("body", "", f"it has {fault.error_count()} errors: see the reference")
    first = fault.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "body"
    untold = first["type"] in {"missing", "json_invalid"} or isinstance(
        first["input"], (dict, list)
    )
    return Invalid(field, "" if untold else first["input"], advice_on(first))


def digest_of(command: Operation, asked: BaseModel) -> str:
    """Return what two requests have in common that ask for the same."""
    body = f"{command.name}\n{asked.model_dump_json()}"
    return hashlib.sha256(body.encode()).hexdigest()


def is_key(text: str) -> bool:
    """Tell whether a request may be repeated under such a key."""
    return _KEY.fullmatch(text) is not None


def _keeps(
    command: Operation, office: RequestContext, audit: RequestAudit
) -> Callable[[Sequence[Callable[..., Any]], Shape, bool], None]:
    """Return what lets a command keep its answer in the transaction of its change."""

    def keep(changes: Sequence[Callable[..., Any]], shape: Shape, whole: bool) -> None:
        async def replying(within: Store, result: object) -> KeptAnswer | None:
            given = await shape(office.with_app(store=within), result)
            status = command.status if whole else None
            return None if given is None else KeptAnswer(status, _kept(given))

        audit.keep_answer(changes, replying)

    return keep


def _kept(given: BaseModel) -> str:
    """Return what may be written down of an answer."""
    kept: BaseModel = getattr(given, "kept", lambda: given)()
    return kept.model_dump_json()


def _answer(command: Operation, given: BaseModel) -> CommandResult:
    etag = getattr(given, "etag", None)
    return CommandResult(status=command.status, text=given.model_dump_json(), etag=etag and etag())


def _request(
    command: Operation,
    office: RequestContext,
    asked: BaseModel,
    key: str | None,
    *,
    rehearsal: bool,
) -> NewAuditEntry:
    if key is not None and not is_key(key):
        raise Invalid("Idempotency-Key", key, "use 1 to 256 visible characters of ASCII")
    digest = None if key is None else digest_of(command, asked)
    held = office.caller.attempt
    about = {name: getattr(asked, name) for name in command.named}
    for name in ("space", "name", "task"):
        if getattr(asked, name, None) is not None:
            about[name] = getattr(asked, name)
    return NewAuditEntry(
        caller=office.caller.id,
        space=office.caller.space,
        command=command.name,
        about=about,
        key=key,
        digest=digest,
        rehearsal=rehearsal,
        held=None if held is None else (held.run_id, held.epoch),
    )


def _again(command: Operation, earlier: AuditEntry, request: NewAuditEntry) -> CommandResult:
    if earlier.digest != request.digest:
        message = f"the key {request.key!r} was used for another request: use another key"
        raise Conflict(message)
    if earlier.answer is None:
        message = (
            f"a request with the key {request.key!r} was carried out or is under way, "
            "and its answer is not known: look before you ask again"
        )
        raise InDoubt(message)
    return CommandResult(status=earlier.status or command.status, text=earlier.answer, again=True)
