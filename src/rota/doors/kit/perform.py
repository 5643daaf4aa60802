"""Carries a command out: scope, request, answer; the same at every door."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ValidationError

from rota.doors.kit.catalogue import Command
from rota.doors.kit.office import Office, Shape
from rota.errors import Conflict, InDoubt, Invalid, Rehearsed
from rota.model.requests import KeptAnswer, NewRequest, Request
from rota.ports.store import Behalf, Store
from rota.rules.permission import check_scope
from rota.rules.shapes import advice_on

NO_CONTENT = 204
MOST_ERRORS = 100
"""In a request of which the first error is told: to list them takes longer than to find them."""
_KEY = re.compile(r"[!-~]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a command was answered with; the text is JSON, or empty for a rehearsal."""

    status: int
    text: str
    etag: str | None = None
    again: bool = False
    """Whether this is what an earlier request with the same key was answered."""


async def perform(
    command: Command,
    office: Office,
    asked: BaseModel,
    *,
    key: str | None = None,
    rehearsal: bool = False,
) -> Answer:
    """Do what was asked for; a request that comes again under its key is answered as before."""
    check_scope(office.caller, command.scope)
    if not command.writes:
        return _answer(command, await command.does(office, asked))
    request = _request(command, office, asked, key, rehearsal=rehearsal)
    if key is not None:
        earlier = await office.store.find_request(request.caller, key)
        if earlier is not None:
            return _again(command, earlier, request)
    store = office.store.behalf(request)
    own = replace(office, store=store)
    if key is not None and not rehearsal:
        own = replace(own, keeps=_keeps(command, office, store))
    try:
        given = await command.does(own, asked)
    except Rehearsed:
        return Answer(status=NO_CONTENT, text="")
    if rehearsal:
        return Answer(status=NO_CONTENT, text="")
    if key is not None and store.request_id is not None and not store.answered:
        await office.store.answer_request(store.request_id, command.status, _kept(given))
    return _answer(command, given)


def read_request(takes: type[BaseModel], values: dict[str, Any]) -> BaseModel:
    """Return what was asked for, or refuse it in one sentence."""
    try:
        return takes.model_validate(values)
    except ValidationError as fault:
        raise refused(fault) from None


def refused(fault: ValidationError) -> Invalid:
    """Return the first thing that is wrong with a request, unless it takes too long to tell."""
    if fault.error_count() > MOST_ERRORS:
        return Invalid("body", "", f"it has {fault.error_count()} errors: see the reference")
    first = fault.errors(include_url=False)[0]
    field = ".".join(str(part) for part in first["loc"]) or "body"
    untold = first["type"] in {"missing", "json_invalid"} or isinstance(
        first["input"], (dict, list)
    )
    return Invalid(field, "" if untold else first["input"], advice_on(first))


def digest_of(command: Command, asked: BaseModel) -> str:
    """Return what two requests have in common that ask for the same."""
    body = f"{command.name}\n{asked.model_dump_json()}"
    return hashlib.sha256(body.encode()).hexdigest()


def is_key(text: str) -> bool:
    """Tell whether a request may be repeated under such a key."""
    return _KEY.fullmatch(text) is not None


def _keeps(
    command: Command, office: Office, store: Behalf
) -> Callable[[Sequence[str], Shape, bool], None]:
    """Return what lets a command keep its answer in the transaction of its change."""

    def keep(changes: Sequence[str], shape: Shape, whole: bool) -> None:
        async def replying(within: Store, result: object) -> KeptAnswer | None:
            given = await shape(replace(office, store=within), result)
            status = command.status if whole else None
            return None if given is None else KeptAnswer(status, _kept(given))

        store.keep_answer(changes, replying)

    return keep


def _kept(given: BaseModel) -> str:
    """Return what may be written down of an answer."""
    kept: BaseModel = getattr(given, "kept", lambda: given)()
    return kept.model_dump_json()


def _answer(command: Command, given: BaseModel) -> Answer:
    etag = getattr(given, "etag", None)
    return Answer(status=command.status, text=given.model_dump_json(), etag=etag and etag())


def _request(
    command: Command, office: Office, asked: BaseModel, key: str | None, *, rehearsal: bool
) -> NewRequest:
    if key is not None and not is_key(key):
        raise Invalid("Idempotency-Key", key, "use 1 to 256 visible characters of ASCII")
    digest = None if key is None else digest_of(command, asked)
    held = office.caller.attempt
    about = {name: getattr(asked, name) for name in command.named}
    for name in ("space", "name", "task"):
        if getattr(asked, name, None) is not None:
            about[name] = getattr(asked, name)
    return NewRequest(
        caller=office.caller.id,
        space=office.caller.space,
        command=command.name,
        about=about,
        key=key,
        digest=digest,
        rehearsal=rehearsal,
        held=None if held is None else (held.run_id, held.epoch),
    )


def _again(command: Command, earlier: Request, request: NewRequest) -> Answer:
    if earlier.digest != request.digest:
        message = f"the key {request.key!r} was used for another request: use another key"
        raise Conflict(message)
    if earlier.answer is None:
        message = (
            f"a request with the key {request.key!r} was carried out or is under way, "
            "and its answer is not known: look before you ask again"
        )
        raise InDoubt(message)
    return Answer(status=earlier.status or command.status, text=earlier.answer, again=True)
