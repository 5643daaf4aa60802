"""The audit log, repeated requests, and the check that a calling attempt still goes on."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias

from rota.errors import Conflict, DryRunRolledBack, Fenced
from rota.model.audit import AttemptIdentity, AuditEntry, KeptAnswer, NewAuditEntry
from rota.model.ids import Epoch, RunId, TaskId
from rota.model.instants import from_micros
from rota.model.runs import Enqueued, RunBatch
from rota.store.settlement import enqueue
from rota.store.transactions import Operation, QueryRows, Result, Row, Transaction, one

MakeAnswerWithin: TypeAlias = Callable[[Transaction, Any], Awaitable[KeptAnswer | None]]


class Untouched(Exception):
    """A change came to nothing, so its audit entry is rolled back with it."""

    def __init__(self, result: object) -> None:
        super().__init__()
        self.result = result


@dataclass(frozen=True, slots=True)
class Audited(Generic[Result]):
    """The result of a change, and the audit entry written with it."""

    request_id: int | None
    result: Result
    answered: bool = False
    """Whether the answer was written too, and is complete."""


class AuditedOperation(Generic[Result]):
    """Writes an audit entry and then does what was asked for.

    Nobody repeats a request without a key, so nothing has to be known of its entry: it goes with
    the next statement. A dry run is rolled back, and so is never a single statement. For an attempt
    that is over nothing is done, and nothing is written. `make_answer` makes the answer, which is
    kept with the change.
    """

    def __init__(
        self,
        entry: NewAuditEntry,
        operation: Operation[..., Result],
        make_answer: MakeAnswerWithin | None = None,
    ) -> None:
        self.__name__ = operation.__name__
        self.entry = entry
        self._operation = operation
        self._make_answer = make_answer

    async def __call__(self, tx: Transaction, *args: Any, **kwargs: Any) -> Audited[Result]:  # noqa: ANN401
        """Run it."""
        entry = self.entry
        values = {**_entry_values(entry), "key": entry.key, "digest": entry.digest}
        await check_attempt(tx, entry.held)
        if entry.key is None and not entry.rehearsal:
            await tx.run("insert_request", now=tx.now(), **values)
            return Audited(None, await self._operation(tx, *args, **kwargs))
        row = await one(tx, "insert_request", now=tx.now(), **values)
        if row is None:
            message = f"a request with the key {entry.key!r} was made at the same time: look first"
            raise Conflict(message)
        result = await self._operation(tx, *args, **kwargs)
        if entry.rehearsal:
            raise DryRunRolledBack
        if self._make_answer is None:
            return Audited(row[0], result)
        answer = await self._make_answer(tx, result)
        if answer is None:
            raise Untouched(result)
        await record_answer(tx, row[0], *answer)
        return Audited(row[0], result, answered=answer.status is not None)


async def enqueue_audited(
    tx: Transaction, requests: Sequence[tuple[NewAuditEntry, RunBatch]]
) -> list[list[Enqueued]]:
    """Queue the runs of requests that need no key, with their audit entries, in one commit."""
    entries = QueryRows(_entry_values(entry) for entry, _ in requests)
    await tx.run("insert_requests", rows=entries, now=tx.now())
    return await enqueue(tx, [batch for _, batch in requests])


enqueue_audited.__name__ = enqueue.__name__  # the same fault points


def can_share_commit(entry: NewAuditEntry) -> bool:
    """Tell whether nothing has to be known of a request but that it was made."""
    return entry.key is None and entry.held is None and not entry.rehearsal


def _entry_values(entry: NewAuditEntry) -> dict[str, object]:
    return {
        "caller": entry.caller,
        "space": entry.space,
        "command": entry.command,
        "about": json.dumps(entry.about),
    }


class AttemptOperation(Generic[Result]):
    """Does what an attempt asked for, and nothing for one that is over."""

    def __init__(self, attempt: tuple[int, int], operation: Operation[..., Result]) -> None:
        self.__name__ = operation.__name__
        self._attempt = attempt
        self._operation = operation

    async def __call__(self, tx: Transaction, *args: Any, **kwargs: Any) -> Result:  # noqa: ANN401
        """Run it."""
        await check_attempt(tx, self._attempt)
        return await self._operation(tx, *args, **kwargs)


async def check_attempt(tx: Transaction, attempt: tuple[int, int] | None) -> None:
    """Raise Fenced unless the attempt goes on, which it then does until this transaction ends."""
    if attempt is None:
        return
    run_id, epoch = attempt
    if await one(tx, "lock_held", run_id=run_id, epoch=epoch) is None:
        raise Fenced(run_id, epoch)


async def find_attempt_identity(tx: Transaction, run_id: int, epoch: int) -> AttemptIdentity | None:
    """Return what is known of an attempt that goes on; None if it is over."""
    row = await one(tx, "find_held", run_id=run_id, epoch=epoch)
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


async def count_tasks_made_by_attempts(tx: Transaction, space_id: int) -> int:
    """Return how many tasks stand in a space that attempts have made."""
    row = await one(tx, "count_made", space_id=space_id)
    return 0 if row is None else int(row[0])


async def record_request(tx: Transaction) -> None:
    """Change nothing: what was asked for is done outside the database."""


async def record_answer(tx: Transaction, request_id: int, status: int | None, answer: str) -> None:
    """Keep what a request is answered, for when it comes again; with its status it is final."""
    await tx.run("answer_request", id=request_id, status=status, answer=answer)


async def find_audit_entry(tx: Transaction, caller: str, key: str) -> AuditEntry | None:
    """Return the request that a caller made under a key."""
    row = await one(tx, "find_request", caller=caller, key=key)
    return None if row is None else _as_request(row)


async def find_repeated_requests(
    tx: Transaction, callers: Sequence[str], digest: str
) -> list[AuditEntry]:
    """Return the requests of callers that asked for the same, in the order they were made."""
    rows = await tx.rows("requests_alike", callers=callers, digest=digest)
    return [_as_request(row) for row in rows]


async def list_audit_entries(
    tx: Transaction, space: str | None, before: int, most: int
) -> list[AuditEntry]:
    """Return requests, newest first."""
    rows = await tx.rows("list_requests", space=space, before=before, most=most)
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
