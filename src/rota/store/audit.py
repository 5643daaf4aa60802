"""The audit log, repeated requests, and the fence of attempts as callers."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

from rota.errors import Conflict, DryRunRolledBack, Fenced
from rota.model.audit import AttemptIdentity, AuditEntry, KeptAnswer, NewAuditEntry
from rota.model.ids import Epoch, RunId, TaskId
from rota.model.instants import from_micros
from rota.store.transactions import QueryRows, Row, Transaction, one

Result = TypeVar("Result")
Operation = Callable[..., Coroutine[Any, Any, Result]]
Answered: TypeAlias = Callable[[Transaction, Any], Awaitable[KeptAnswer | None]]


class Untouched(Exception):
    """A change came to nothing, so that its request is taken back with it."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


@dataclass(frozen=True, slots=True)
class Stamped(Generic[Result]):
    """What a change came to, and the request that was written down with it."""

    request_id: int | None
    result: Result
    whole: bool = False
    """Whether its answer was, too."""


def with_audit(
    request: NewAuditEntry,
    operation: Operation[Result],
    now: int,
    answered: Answered | None = None,
) -> Operation[Stamped[Result]]:
    """Return an operation that writes a request down and then does what was asked for.

    Nobody asks again for a request without a key, so nothing has to be known of it before the rest:
    it goes with the next statement. A rehearsal is taken back, and so is never a single statement.
    For an attempt that is over nothing is done, and nothing is written down. `answered` makes the
    answer, which is kept with the change.
    """

    async def both(session: Transaction, *args: object) -> Stamped[Result]:
        words = {**_words(request), "key": request.key, "digest": request.digest}
        await check_held(session, request.held)
        if request.key is None and not request.rehearsal:
            await session.run("insert_request", now=now, **words)
            return Stamped(None, await operation(session, *args))
        row = await one(session, "insert_request", now=now, **words)
        if row is None:
            message = (
                f"a request with the key {request.key!r} was made at the same time: look first"
            )
            raise Conflict(message)
        result = await operation(session, *args)
        if request.rehearsal:
            raise DryRunRolledBack
        if answered is None:
            return Stamped(row[0], result)
        kept = await answered(session, result)
        if kept is None:
            raise Untouched(result)
        await answer_request(session, row[0], *kept)
        return Stamped(row[0], result, whole=kept.status is not None)

    both.__name__ = operation.__name__
    return both


def with_audit_each(
    requests: Sequence[NewAuditEntry], operation: Operation[Result], now: int
) -> Operation[Result]:
    """Return an operation that writes requests without keys down and then does what they ask for.

    They share a transaction, and so a commit.
    """

    async def together(session: Transaction, *args: object) -> Result:
        await session.run("insert_requests", rows=QueryRows(map(_words, requests)), now=now)
        return await operation(session, *args)

    together.__name__ = operation.__name__
    return together


def may_share(request: NewAuditEntry) -> bool:
    """Whether nothing has to be known of a request but that it was made."""
    return request.key is None and request.held is None and not request.rehearsal


def _words(request: NewAuditEntry) -> dict[str, object]:
    return {
        "caller": request.caller,
        "space": request.space,
        "command": request.command,
        "about": json.dumps(request.about),
    }


def with_fence(held: tuple[int, int], operation: Operation[Result]) -> Operation[Result]:
    """Return an operation that does nothing for an attempt that is over."""

    async def guarded(session: Transaction, *args: object) -> Result:
        await check_held(session, held)
        return await operation(session, *args)

    guarded.__name__ = operation.__name__
    return guarded


async def check_held(session: Transaction, held: tuple[int, int] | None) -> None:
    """Raise Fenced unless the attempt goes on, which it then does until this transaction ends."""
    if held is None:
        return
    run_id, epoch = held
    if await one(session, "lock_held", run_id=run_id, epoch=epoch) is None:
        raise Fenced(run_id, epoch)


async def find_held(session: Transaction, run_id: int, epoch: int) -> AttemptIdentity | None:
    """Return what is known of an attempt that goes on; None if it is over."""
    row = await one(session, "find_held", run_id=run_id, epoch=epoch)
    if row is None:
        return None
    return AttemptIdentity(
        run_id=RunId(row[0]),
        epoch=Epoch(row[1]),
        task_id=TaskId(row[2]),
        task=row[3],
        thread=row[4],
        space=row[5],
    )


async def count_made(session: Transaction, space_id: int) -> int:
    """Return how many tasks stand in a space that attempts have made."""
    row = await one(session, "count_made", space_id=space_id)
    return 0 if row is None else int(row[0])


async def note_request(session: Transaction) -> None:
    """Change nothing: what was asked for is done outside the database."""


async def answer_request(
    session: Transaction, request_id: int, status: int | None, answer: str
) -> None:
    """Keep what a request is answered, for when it comes again; with its status it is final."""
    await session.run("answer_request", id=request_id, status=status, answer=answer)


async def find_request(session: Transaction, caller: str, key: str) -> AuditEntry | None:
    """Return the request that a caller made under a key."""
    row = await one(session, "find_request", caller=caller, key=key)
    return None if row is None else _as_request(row)


async def requests_alike(session: Transaction, callers: list[str], digest: str) -> list[AuditEntry]:
    """Return the requests of callers that asked for the same, in the order they were made."""
    rows = await session.rows("requests_alike", callers=callers, digest=digest)
    return [_as_request(row) for row in rows]


async def list_requests(
    session: Transaction, space: str | None, before: int, most: int
) -> list[AuditEntry]:
    """Return requests, newest first."""
    rows = await session.rows("list_requests", space=space, before=before, most=most)
    return [_as_request(row) for row in rows]


def _as_request(row: Row) -> AuditEntry:
    return AuditEntry(
        id=row[0],
        at=from_micros(row[1]),
        caller=row[2],
        space=row[3],
        command=row[4],
        about=json.loads(row[5]),
        key=row[6],
        digest=row[7],
        status=row[8],
        answer=row[9],
    )
