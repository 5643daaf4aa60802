"""Executes requests of running programs as commands, with the rights of their run.

The caller is identified by the channel of the request, never by its content. A request is a command
of the catalogue with the same permissions, audit entries and idempotency as in every other
interface. An attempt that is over gets nothing.

A retried run starts again and sends the same requests. The n-th equal request of an attempt counts
as the n-th of the run: if an earlier attempt got an answer to it, the answer is repeated and
recorded for this attempt as well. An attempt that continues after an answer to a question repeats
nothing, so this does not apply to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from rota.agent_api.operations import AvailableOperation, available_operations
from rota.commands.catalogue import Operation, digest_of, execute, is_key, validation_error
from rota.commands.context import AppContext, RequestContext
from rota.commands.errors import error_record
from rota.errors import Busy, Fenced, InDoubt, Invalid, NotFound, RotaError
from rota.model.audit import AttemptIdentity, AuditEntry
from rota.model.ids import Epoch
from rota.model.json import is_deeper
from rota.model.runs import AttemptCause
from rota.model.spaces import SpaceRole
from rota.rules.permissions import Caller, attempt_caller, inherit_settings
from rota.store.audit import find_attempt_identity, find_repeated_requests, record_request
from rota.store.store import Store
from rota.store.tasks import find_space, get_tasks
from rota.store.views import get_run

log = logging.getLogger(__name__)

LONGEST_REQUEST = 1 << 20
DEEPEST_REQUEST = 40
UNEXPECTED = {"code": "unexpected", "message": "internal error; see the log of the daemon"}


class AgentApi:
    """Serves attempts, and callers with a key."""

    def __init__(self, app: AppContext, pace: RateLimiter | None = None) -> None:
        self._app = replace(app, secrets=None)
        self._pace = pace or RateLimiter()
        self._roles: dict[str, SpaceRole] = {}

    async def serve(
        self,
        held: AttemptIdentity,
        verb: str,
        fields: Mapping[str, Any],
        request_id: str | None = None,
    ) -> dict[str, Any]:
        """Execute an operation for an attempt and return the answer or the error."""
        return await self._told(self._serve_attempt(held, verb, fields, request_id), verb)

    async def serve_caller(
        self, caller: Caller, verb: str, fields: Mapping[str, Any], request_id: str | None = None
    ) -> dict[str, Any]:
        """Execute an operation for a caller with a key or an attempt token."""
        if caller.attempt is not None:
            return await self.serve(caller.attempt, verb, fields, request_id)
        return await self._told(self._serve(caller, verb, fields, request_id), verb)

    async def caller_of(self, run_id: int, epoch: int) -> Caller | None:
        """Return the caller of an attempt; None if the attempt is over."""
        held = await self._app.store.read(find_attempt_identity, run_id, epoch)
        return None if held is None else attempt_caller(held, await self._role(held.space))

    def offers(self, caller: Caller) -> Mapping[str, AvailableOperation]:
        """Return the operations that a caller can use."""
        known = available_operations(attempt=caller.attempt is not None)
        return {name: one for name, one in known.items() if one.command.scope in caller.scopes}

    async def _serve_attempt(
        self, held: AttemptIdentity, verb: str, fields: Mapping[str, Any], request_id: str | None
    ) -> dict[str, Any]:
        self._pace.spend(held.name)
        caller = await self.caller_of(held.run_id, held.epoch)
        if caller is None:
            raise Fenced(held.run_id, held.epoch)
        return await self._serve(caller, verb, fields, request_id)

    async def _serve(
        self, caller: Caller, verb: str, fields: Mapping[str, Any], request_id: str | None
    ) -> dict[str, Any]:
        found = self.offers(caller).get(verb)
        if found is None:
            raise NotFound("verb", verb, f"there are {', '.join(self.offers(caller))}")
        if request_id is not None and not is_key(request_id):
            raise Invalid("request_id", request_id, "use 1 to 256 visible ASCII characters")
        check_depth(fields)
        said = await self._filled(found, caller, fields)
        try:
            text = json.dumps(said, allow_nan=False)
            if len(text) > LONGEST_REQUEST:
                raise Invalid("request", "", f"it has at most {LONGEST_REQUEST} bytes")
            asked = found.command.takes.model_validate_json(text, strict=True)
        except ValidationError as fault:
            raise validation_error(fault) from None
        except (TypeError, ValueError):
            raise Invalid("request", "", "use JSON values") from None
        office, command, key, told = self._office(caller), found.command, request_id, {}
        if caller.attempt is not None and command.name in MAKING:
            key = key or f"desk:{secrets.token_hex(16)}"
            earlier = await find_earlier(office.store, caller.attempt, digest_of(command, asked))
            if earlier is not None:
                command, told = is_repeat(command, earlier), {"already_done": True}
        answer = await execute(command, office, asked, key=key)
        return {**json.loads(answer.text), **told}

    async def _filled(
        self, found: AvailableOperation, caller: Caller, fields: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Add defaults of an attempt to the fields, and limit the tasks that it creates."""
        held = caller.attempt
        if held is None:
            return fields
        said = found.filled(fields, held)
        if found.verb.name == "schedule_task" and "call" not in said:
            (own,) = await self._app.store.read(get_tasks, [held.task_id])
            said = inherit_settings(own.spec, said)
        return said

    async def _told(
        self, serving: Coroutine[Any, Any, dict[str, Any]], verb: str
    ) -> dict[str, Any]:
        try:
            return {**await serving, "ok": True}
        except RotaError as fault:
            return {"ok": False, **error_record(fault)}
        except Exception:
            log.exception("agent_api.unexpected", extra={"verb": verb[:100]})
            return {"ok": False, "error": dict(UNEXPECTED)}

    async def _role(self, space: str) -> SpaceRole:
        """Return the role of a space, which never changes."""
        if space not in self._roles:
            self._roles[space] = (await self._app.store.read(find_space, space)).role
        return self._roles[space]

    def _office(self, caller: Caller) -> RequestContext:
        return RequestContext(app=self._app, caller=caller)


def check_depth(value: object) -> None:
    """Refuse a value that is nested too deeply."""
    if is_deeper(value, DEEPEST_REQUEST):
        raise Invalid("request", "", f"nest values {DEEPEST_REQUEST} deep at most")


MAKING = frozenset({"create_task", "run_task"})
"""Commands that create something with each call."""
IN_DOUBT = (
    "an earlier attempt of this run sent the same request, and its outcome is not known: check "
    "before you send it again"
)


async def find_earlier(store: Store, held: AttemptIdentity, digest: str) -> AuditEntry | None:
    """Return the audit entry of the equal request of an earlier attempt, if there is one."""
    if held.epoch <= 1:
        return None
    run = await store.read(get_run, held.run_id)
    if run is None or run.cause is AttemptCause.RESUME:
        return None
    callers = [replace(held, epoch=Epoch(one)).name for one in range(1, held.epoch + 1)]
    asked: dict[str, list[AuditEntry]] = {}
    for request in await store.read(find_repeated_requests, callers, digest):
        asked.setdefault(request.caller, []).append(request)
    own = len(asked.pop(held.name, ()))
    longest = max(asked.values(), key=len, default=[])
    return longest[own] if own < len(longest) else None


def is_repeat(command: Operation, earlier: AuditEntry) -> Operation:
    """Return a command that returns an earlier answer and records it for this attempt."""

    async def again(office: RequestContext, _asked: BaseModel) -> BaseModel:
        if earlier.answer is None:
            raise InDoubt(IN_DOUBT)
        await office.store.write(record_request)
        return command.gives.model_validate_json(earlier.answer)

    return replace(command, does=again)


BURST = 200.0
A_SECOND = 20.0
MOST_KNOWN = 10_000
SLACK = 0.001
"""Seconds added to a wait, so that the token is available afterwards."""


class RateLimited(Busy):
    """The program exceeds its request rate."""

    code = "too_fast"


class RateLimiter:
    """Token buckets of callers; a full bucket is forgotten."""

    def __init__(
        self,
        monotonic: Callable[[], float] = time.monotonic,
        *,
        burst: float = BURST,
        rate: float = A_SECOND,
    ) -> None:
        self._monotonic = monotonic
        self._burst = burst
        self._rate = rate
        self._left: dict[str, tuple[float, float]] = {}

    def spend(self, caller: str) -> None:
        """Take one token or raise RateLimited."""
        if self._refilled(caller) < 1.0:
            raise RateLimited(
                f"too many requests of one run: at most {self._rate:g} a second, wait"
            )
        self.charge(caller, 1.0)

    def charge(self, caller: str, cost: float) -> None:
        """Take tokens after the work; the next request waits if there are too few."""
        left, now = self._refilled(caller), self._monotonic()
        if len(self._left) >= MOST_KNOWN:
            self._forget(now)
        self._left[caller] = (left - cost, now)

    async def wait(self, caller: str) -> None:
        """Wait until a token is available without taking it."""
        lacking = 1.0 - self._refilled(caller)
        if lacking > 0.0:
            await asyncio.sleep(lacking / self._rate + SLACK)

    def _refilled(self, caller: str) -> float:
        now = self._monotonic()
        left, at = self._left.get(caller, (self._burst, now))
        return min(self._burst, left + (now - at) * self._rate)

    def _forget(self, now: float) -> None:
        """Forget full buckets."""
        self._left = {
            name: (left, at)
            for name, (left, at) in self._left.items()
            if left + (now - at) * self._rate < self._burst
        }
