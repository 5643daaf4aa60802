"""The catalogue of commands, and their execution: scope, audit, idempotency, dry run.

A command is a function of a request context and a request model that returns a response model.
HTTP routes, the OpenAPI document, the agent API and the command line are derived from its
annotations and its docstring.
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
        "audit": "status",
        "pause-all": "daemon",
        "notification-targets": "notifications",
        "resume-all": "daemon",
        "seen": "task_state",
        "sql": "sql_console",
        "start": "daemon",
        "state": "task_state",
        "stop": "daemon",
        "workers": "status",
    }
)
"""The module to search first for a path whose first part is not the name of a module."""
_FIELD = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation, as all interfaces offer it."""

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
        """The fields in the path."""
        return tuple(_FIELD.findall(self.path))


def command(
    method: str, path: str, scope: KeyScope, *, status: int = 200, writes: bool | None = None
) -> Callable[[Function], Function]:
    """Register a function as a command; by default every method but GET writes."""

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
            takes=hints["request"],
            gives=hints["return"],
            does=function,
            about=getdoc(function) or "",
        )
        _KNOWN.setdefault(found.group, []).append(found)
        return function

    return keep


_KNOWN: dict[str, list[Operation]] = {}


def commands_of(group: str) -> list[Operation]:
    """Return the commands of a module, importing it if needed."""
    import_module(f"{PACKAGE}.{group}")
    return _KNOWN[group]


def every_command() -> list[Operation]:
    """Return all commands."""
    return [command for group in MODULES for command in commands_of(group)]


def find_command(method: str, path: str) -> tuple[Operation, dict[str, str]]:
    """Return the command for a path, with the values of the fields in the path."""
    first = path.removeprefix(ROOT).partition("/")[0]
    likely = MODULE_OF_PATH.get(first, first)
    groups: Iterable[str] = sorted(MODULES, key=lambda group: group != likely)
    for group in groups:
        for known in commands_of(group):
            match = pattern_of(known.path).fullmatch(path) if known.method == method else None
            if match is not None:
                return known, {name: unquote(value) for name, value in match.groupdict().items()}
    raise NotFound("command", f"{method} {path}")


@cache
def pattern_of(path: str) -> re.Pattern[str]:
    """Return the pattern of the paths of a command."""
    return re.compile(_FIELD.sub(r"(?P<\1>[^/]+)", path))


NO_CONTENT = 204
MAX_ERRORS = 100
"""Up to this many errors the first one is reported; listing more takes too long."""
_KEY = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandResult:
    """The response to a command; the text is JSON, or empty for a dry run."""

    status: int
    text: str
    etag: str | None = None
    again: bool = False
    """Whether this is the response to an earlier request with the same key."""


async def execute(
    command: Operation,
    context: RequestContext,
    request: BaseModel,
    *,
    key: str | None = None,
    dry_run: bool = False,
) -> CommandResult:
    """Execute a command; a repeated key gets the response of the first request."""
    check_scope(context.caller, command.scope)
    if not command.writes:
        return _result(command, await command.does(context, request))
    entry = _audit_entry(command, context, request, key, dry_run=dry_run)
    if key is not None:
        earlier = await context.store.read(find_audit_entry, entry.caller, key)
        if earlier is not None:
            return _repeat(command, earlier, entry)
    audit = RequestAudit(context.store, entry)
    own = context.with_app(store=HookedStore(context.store, audit))
    if key is not None and not dry_run:
        own = replace(own, recorder=_recorder(command, context, audit))
    try:
        response = await command.does(own, request)
    except DryRunRolledBack:
        return CommandResult(status=NO_CONTENT, text="")
    if dry_run:
        return CommandResult(status=NO_CONTENT, text="")
    if key is not None and audit.request_id is not None and not audit.answered:
        await context.store.write(
            record_answer, audit.request_id, command.status, _recorded_text(response)
        )
    return _result(command, response)


def read_request(takes: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return the validated request, or raise Invalid with one sentence."""
    try:
        return takes.model_validate(values)
    except ValidationError as error:
        raise validation_error(error) from None


def validation_error(error: ValidationError) -> Invalid:
    """Return the first error of a request."""
    if error.error_count() > MAX_ERRORS:
        return Invalid("body", "", f"{error.error_count()} errors: see the reference")
    first = error.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "body"
    untold = first["type"] in {"missing", "json_invalid"} or isinstance(
        first["input"], (dict, list)
    )
    return Invalid(field, "" if untold else first["input"], advice_on(first))


def digest_of(command: Operation, request: BaseModel) -> str:
    """Return a digest that equal requests share."""
    body = f"{command.name}\n{request.model_dump_json()}"
    return hashlib.sha256(body.encode()).hexdigest()


def is_key(text: str) -> bool:
    """Whether a text is a valid idempotency key."""
    return _KEY.fullmatch(text) is not None


def _recorder(
    command: Operation, context: RequestContext, audit: RequestAudit
) -> Callable[[Sequence[Callable[..., Any]], Shape, bool], None]:
    """Return the function with which a command records its response."""

    def keep(changes: Sequence[Callable[..., Any]], shape: Shape, whole: bool) -> None:
        async def replying(within: Store, result: object) -> KeptAnswer | None:
            response = await shape(context.with_app(store=within), result)
            status = command.status if whole else None
            return None if response is None else KeptAnswer(status, _recorded_text(response))

        audit.keep_answer(changes, replying)

    return keep


def _recorded_text(response: BaseModel) -> str:
    """Return the recorded form of a response, without secrets."""
    kept: BaseModel = getattr(response, "recorded", lambda: response)()
    return kept.model_dump_json()


def _result(command: Operation, response: BaseModel) -> CommandResult:
    etag = getattr(response, "etag", None)
    return CommandResult(
        status=command.status, text=response.model_dump_json(), etag=etag and etag()
    )


def _audit_entry(
    command: Operation,
    context: RequestContext,
    request: BaseModel,
    key: str | None,
    *,
    dry_run: bool,
) -> NewAuditEntry:
    if key is not None and not is_key(key):
        raise Invalid("Idempotency-Key", key, "use 1 to 256 visible characters of ASCII")
    digest = None if key is None else digest_of(command, request)
    held = context.caller.attempt
    about = {name: getattr(request, name) for name in command.named}
    for name in ("space", "name", "task"):
        if getattr(request, name, None) is not None:
            about[name] = getattr(request, name)
    return NewAuditEntry(
        caller=context.caller.id,
        space=context.caller.space,
        command=command.name,
        subject=about,
        key=key,
        digest=digest,
        rehearsal=dry_run,
        attempt=None if held is None else (held.run_id, held.epoch),
    )


def _repeat(command: Operation, earlier: AuditEntry, entry: NewAuditEntry) -> CommandResult:
    if earlier.digest != entry.digest:
        message = f"the key {entry.key!r} was used for a different request: use another key"
        raise Conflict(message)
    if earlier.answer is None:
        message = (
            f"a request with the key {entry.key!r} has been or is being executed, "
            "and its response is not known: check the result before you retry"
        )
        raise InDoubt(message)
    return CommandResult(status=earlier.status or command.status, text=earlier.answer, again=True)
