"""The SQL console: its views, its error texts, and how many ask at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Protocol, TypeAlias

from rota.errors import Busy, SqlRefused, shown


class SqlType(Enum):
    """What a column holds; the value is the word of the reference."""

    TEXT = "text"
    NUMBER = "number"
    INSTANT = "instant"
    JSON = "JSON text"
    FLAG = "0 or 1"


Instant: TypeAlias = Callable[[str], str]
"""Turns the SQL of microseconds into the SQL of an instant in ISO 8601."""


@dataclass(frozen=True, slots=True)
class SqlColumn:
    """One column: its name, where it comes from, and what it says."""

    name: str
    source: str
    kind: SqlType
    about: str


@dataclass(frozen=True, slots=True)
class SqlView:
    """One view; `{}` in its rows stands for the schema, `space` is what its filter compares."""

    name: str
    about: str
    rows: str
    space: str
    columns: tuple[SqlColumn, ...]

    def select(self, schema: str, instant: Instant, seen: str) -> str:
        """Return the query behind the view; `seen` is a condition on the space it names `{}`."""
        columns = ", ".join(
            f"{instant(column.source) if column.kind is SqlType.INSTANT else column.source}"
            f" as {column.name}"
            for column in self.columns
        )
        rows = self.rows.replace("{}", schema)
        return f"select {columns} from {rows} where {seen.replace('{}', self.space)}"  # noqa: S608


def _text(name: str, source: str, about: str) -> SqlColumn:
    return SqlColumn(name, source, SqlType.TEXT, about)


def _number(name: str, source: str, about: str) -> SqlColumn:
    return SqlColumn(name, source, SqlType.NUMBER, about)


def _instant(name: str, source: str, about: str) -> SqlColumn:
    return SqlColumn(name, source, SqlType.INSTANT, about)


def _json(name: str, source: str, about: str) -> SqlColumn:
    return SqlColumn(name, source, SqlType.JSON, about)


def _flag(name: str, source: str, about: str) -> SqlColumn:
    return SqlColumn(name, source, SqlType.FLAG, about)


VIEWS: tuple[SqlView, ...] = (
    SqlView(
        "spaces",
        "Spaces. A key of a member space sees only its own.",
        "{}.spaces s",
        "s.id",
        (
            _text("name", "s.name", "its name"),
            _text("role", "s.role", "`main` or `member`"),
            _text("timezone", "s.timezone", "its time zone"),
            _instant("created_at", "s.created_at", "when it was created"),
        ),
    ),
    SqlView(
        "tasks",
        "Tasks, including deleted ones.",
        "{}.tasks t join {}.spaces s on s.id = t.space_id left join {}.tasks a"
        " on a.id = t.after_task_id",
        "t.space_id",
        (
            _number("id", "t.id", "its id"),
            _text("space", "s.name", "its space"),
            _text(
                "name", "t.name", "its name, unique in its space among tasks that are not deleted"
            ),
            _text("title", "t.title", "its title"),
            _text("kind", "t.kind", "`python`, `script` or `agent`"),
            _text("route", "t.route", "the route that a worker must serve to run it"),
            _json("spec", "t.spec", "the work"),
            _json("policy", "t.policy", "retry, timeout, overlap, catch-up, limits, delivery"),
            _text("after_task", "a.name", "the task it follows"),
            _text("after_on", "t.after_on", "`success`, `failure` or `any`"),
            _text("thread", "t.thread", "its thread"),
            _text("origin", "t.origin", "the interface that created it"),
            _flag("enabled", "t.enabled", "whether its slots run"),
            _instant("paused_until", "t.paused_until", "when it is enabled again automatically"),
            _text("disabled_reason", "t.disabled_reason", "why it is disabled"),
            _number("failures", "t.failures", "failed runs since the last success"),
            _instant("created_at", "t.created_at", "when it was created"),
            _instant("updated_at", "t.updated_at", "when it was last changed"),
            _instant("deleted_at", "t.deleted_at", "when it was deleted"),
        ),
    ),
    SqlView(
        "schedules",
        "Schedules, including deleted ones.",
        "{}.schedules c join {}.tasks t on t.id = c.task_id join {}.spaces s on s.id = t.space_id",
        "t.space_id",
        (
            _number("id", "c.id", "its id"),
            _text("space", "s.name", "its space"),
            _number("task_id", "c.task_id", "its task"),
            _text("task", "t.name", "its task's name"),
            _text(
                "name",
                "c.name",
                "its name, unique in its task among schedules that are not deleted",
            ),
            _json("rule", "c.rule", "kind, expression, zone and options"),
            _text("state", "c.state", "`active`, `ended` or `quarantined`"),
            _text("note", "c.note", "why it is quarantined"),
            _instant("next_at", "c.next_at", "its next slot"),
            _instant("created_at", "c.created_at", "when it was created"),
            _instant("updated_at", "c.updated_at", "when it was last changed"),
            _instant("deleted_at", "c.deleted_at", "when it was deleted"),
        ),
    ),
    SqlView(
        "runs",
        "Runs, until retention removes them.",
        "{}.runs r join {}.tasks t on t.id = r.task_id join {}.spaces s on s.id = r.space_id",
        "r.space_id",
        (
            _number("id", "r.id", "its id"),
            _text("space", "s.name", "its space"),
            _number("task_id", "r.task_id", "its task"),
            _text("task", "t.name", "its task's name"),
            _text("state", "r.state", "`queued`, `running`, `waiting` or how it ended"),
            _text("queue_state", "r.queue_state", "while queued: `ready`, `delayed` or `held`"),
            _text("pool", "r.pool", "`foreground` or `background`"),
            _text("source", "r.source", "what created it"),
            _text("route", "r.route", "the route that a worker must serve to run it"),
            _number("priority", "r.priority", "higher values first"),
            _number("attempt", "r.epoch", "the number of its newest attempt, 0 before the first"),
            _number("retries", "r.retries", "failed attempts that were retried"),
            _number("losses", "r.losses", "attempts that were lost"),
            _text("check_state", "r.check_state", "`verified` or `contradicted`, if it has checks"),
            _text("suppressed", "r.suppressed", "`by_gate` or `by_result`, if nothing was sent"),
            _text("worker", "r.worker_id", "the worker that runs it"),
            _text("lane", "r.lane", "its ordering key"),
            _text("key", "r.key", "the key it was queued under"),
            _number("schedule_id", "r.schedule_id", "the schedule of its slot"),
            _text("slot", "r.slot_key", "the name of its slot"),
            _instant("slot_at", "r.slot_at", "the instant of its slot"),
            _number("upstream_id", "r.upstream_id", "the run it follows"),
            _text("thread", "r.thread", "its thread"),
            _flag("stuck", "r.stuck", "whether it is past its timeout and cannot be stopped"),
            _instant("available_at", "r.available_at", "the earliest start"),
            _instant("created_at", "r.created_at", "when it was created"),
            _instant("started_at", "r.started_at", "when its newest attempt started"),
            _instant("finished_at", "r.finished_at", "when its end was recorded"),
            _instant("expires_at", "r.expires_at", "when it expires if it has not ended"),
            _instant(
                "cancel_requested_at",
                "r.cancel_requested_at",
                "when its cancellation was requested",
            ),
            _text("error_code", "r.error_code", "the code of its error"),
            _text("error", "r.error", "its error message"),
            _json("result", "r.result", "its result"),
            _json("payload", "r.payload", "its payload"),
        ),
    ),
    SqlView(
        "attempts",
        "Attempts that have ended.",
        "{}.attempts a join {}.runs r on r.id = a.run_id join {}.spaces s on s.id = r.space_id",
        "r.space_id",
        (
            _number("run_id", "a.run_id", "its run"),
            _text("space", "s.name", "its space"),
            _number("attempt", "a.epoch", "its number, from 1"),
            _text("cause", "a.cause", "`first`, `retry`, `lost`, `resume` or `released`"),
            _text("worker", "a.worker_id", "its worker"),
            _text("outcome", "a.outcome", "how it ended"),
            _text("error", "a.error", "its error message"),
            _json("exit", "a.exit", "the exit record of its processes, if any"),
            _json("check_results", "a.check_results", "the results of its checks, if any"),
            _instant("started_at", "a.started_at", "when it started"),
            _instant("ended_at", "a.ended_at", "when its work ended"),
        ),
    ),
    SqlView(
        "ledger",
        "Slots that did not run. Consecutive slots with the same reason are one row.",
        "{}.ledger l join {}.schedules c on c.id = l.schedule_id"
        " join {}.tasks t on t.id = c.task_id join {}.spaces s on s.id = t.space_id",
        "t.space_id",
        (
            _number("id", "l.id", "its id"),
            _text("space", "s.name", "its space"),
            _number("task_id", "c.task_id", "the task"),
            _text("task", "t.name", "the task's name"),
            _number("schedule_id", "l.schedule_id", "the schedule"),
            _text("reason", "l.reason", "why they did not run"),
            _text("first_slot", "l.first_key", "the name of the first one"),
            _text("last_slot", "l.last_key", "the name of the last one"),
            _instant("first_at", "l.first_at", "the instant of the first one"),
            _instant("last_at", "l.last_at", "the instant of the last one"),
            _number("count", "l.count", "the number of slots"),
            _instant("recorded_at", "l.recorded_at", "when the row was written"),
        ),
    ),
    SqlView(
        "questions",
        "Questions of runs to people.",
        "{}.questions q join {}.runs r on r.id = q.run_id join {}.tasks t on t.id = r.task_id"
        " join {}.spaces s on s.id = r.space_id",
        "r.space_id",
        (
            _number("id", "q.id", "its id"),
            _text("space", "s.name", "its space"),
            _number("run_id", "q.run_id", "the run that waits"),
            _text("task", "t.name", "its task's name"),
            _text("kind", "q.kind", "`ask`, `lost` or `approval`"),
            _text("question", "q.question", "the question"),
            _text("context", "q.context", "the context that the run gave"),
            _json("options", "q.options", "the answers to choose from"),
            _instant("asked_at", "q.asked_at", "when it was asked"),
            _instant("expires_at", "q.expires_at", "when it expires"),
            _instant("answered_at", "q.answered_at", "when it was answered"),
            _text("answer", "q.answer", "the answer"),
            _text("answered_by", "q.answered_by", "who answered"),
            _json("outcome", "q.outcome", "the outcome of an approved action that Rota executed"),
        ),
    ),
    SqlView(
        "deliveries",
        "Outgoing messages.",
        "{}.deliveries d join {}.spaces s on s.id = d.space_id",
        "d.space_id",
        (
            _number("id", "d.id", "its id"),
            _text("space", "s.name", "its space"),
            _number("run_id", "d.run_id", "the run it is about"),
            _text("channel", "d.channel", "its channel"),
            _text("target", "d.target", "its target"),
            _text("body", "d.body", "the message"),
            _text("kind", "d.kind", "`message`, `result` or `notification`"),
            _text(
                "state",
                "d.state",
                "from `pending` and `sending` to `sent`, `unknown`, `dead` or `withdrawn`",
            ),
            _number("tries", "d.tries", "how often it was tried"),
            _text("error", "d.error", "the last error"),
            _instant("available_at", "d.available_at", "the earliest time of sending"),
            _instant("created_at", "d.created_at", "when it was created"),
            _instant("sent_at", "d.sent_at", "when it was sent"),
        ),
    ),
    SqlView(
        "events",
        "Recorded events; see [events](events.md).",
        "{}.events e left join {}.spaces s on s.id = e.space_id",
        "e.space_id",
        (
            _number("id", "e.id", "its id"),
            _instant("at", "e.at", "when it happened"),
            _text("name", "e.name", "its name"),
            _text("space", "s.name", "its space, if it has one"),
            _number("task_id", "e.task_id", "its task, if it has one"),
            _number("run_id", "e.run_id", "its run, if it has one"),
            _json("data", "e.data", "its data"),
        ),
    ),
    SqlView(
        "workers",
        "Worker processes. They belong to no space, so a key of a member space sees none.",
        "{}.workers w",
        "0",
        (
            _text("id", "w.id", "its id"),
            _text("host", "w.host", "its machine"),
            _number("pid", "w.pid", "its process number"),
            _text("roles", "w.roles", "its roles"),
            _json("routes", "w.routes", "the routes that it serves"),
            _number("slots", "w.slots", "the number of its slots"),
            _instant("started_at", "w.started_at", "when it started"),
            _instant("seen_at", "w.seen_at", "when it last renewed its lease"),
            _instant("lease_until", "w.lease_until", "when its lease ends"),
            _flag("fenced", "w.fenced", "whether it is fenced"),
        ),
    ),
)
"""Keys, requests, state and seen items are not here at all, and neither are spaces' secrets."""

Scalar: TypeAlias = str | int | float | bool | None

SECONDS = 2.0
"""How long a query may take; then it is stopped, whatever it is doing."""
MOST_ROWS = 1_000
MAX_BYTES = 1024 * 1024
"""Of the rows as JSON."""
LONGEST_SQL = 20_000
MOST_PARAMS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlQuery:
    """One query; `space_id` is whose rows it may see, none meaning everybody's."""

    sql: str
    params: tuple[Scalar, ...] = ()
    space_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlResult:
    """What a query found; `truncated` says that there was more than is given."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Any, ...], ...]
    truncated: bool


TOO_LONG = f"the query took longer than {SECONDS:.0f} s and was stopped: ask for less"
FAILED = (
    "the query failed while it was answered: check its types and functions, "
    "and that it needs no more than a little memory"
)
NOT_THERE = (
    "the query asks for something that is not to be had: "
    "one SELECT over the documented views is, see the reference of SQL"
)
ONE_QUERY = "there is more than one statement: ask one query at a time"


def plain(fault: str) -> str:
    """Return a sentence about the query itself."""
    return f"the query cannot be understood: {fault}"


def about(fault: str) -> str:
    """Return what a database said about the words of a query, at most a line of it."""
    return plain(shown(fault.partition("\n")[0]).strip('"'))


def check_text(sql: str) -> None:
    """Refuse what is no text to a database, before each of them makes something else of it."""
    if "\x00" in sql or any("\ud800" <= character <= "\udfff" for character in sql):
        raise SqlRefused(plain("it holds characters that no text can hold"))


AT_ONCE = 2
PATIENCE = 3.0
"""Seconds that a query waits for its turn: a little longer than another one may take."""


class ConcurrencyGate:
    """Lets two queries go on at once, and one of each space."""

    def __init__(self, at_once: int = AT_ONCE, patience: float = PATIENCE) -> None:
        self._all = asyncio.Semaphore(at_once)
        self._of: dict[int | None, _Line] = {}
        self._patience = patience

    @asynccontextmanager
    async def turn(self, space_id: int | None) -> AsyncIterator[None]:
        """Wait for a turn, not for long."""
        line = self._of.setdefault(space_id, _Line())
        line.length += 1
        try:
            async with asyncio.timeout(self._patience) as waiting:
                async with line.lock, self._all:
                    waiting.reschedule(None)
                    yield
        except TimeoutError:
            if not waiting.expired():
                raise
            message = "too many queries are being answered: try again in a moment"
            raise Busy(message) from None
        finally:
            line.length -= 1
            if line.length == 0:
                del self._of[space_id]


class _Line:
    """Those of one space who wait, and the one who does not."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


class SqlConsole(Protocol):
    """Answers read-only queries over the documented views, beside the work and never in its way.

    Raises SqlRefused for what may not be asked, SqlTimeout for what takes too long, SqlFailed for
    what went wrong underway, Busy when too many ask at once. No error quotes anybody's rows.
    """

    async def ask(self, inquiry: SqlQuery) -> SqlResult:
        """Return what a query finds, within bounds of time, rows and bytes."""

    async def close(self) -> None:
        """Let go of what answering needed."""
