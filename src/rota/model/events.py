"""Events with their meanings, and positions in the order of events."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from rota.model.ids import EventId, RunId, TaskId


class EventName(StrEnum):
    """Name of an event, as logs, the API and the documentation use it."""

    SETTLED = "run.settled"
    RETRIED = "run.retried"
    LOST = "run.lost"
    RELEASED = "run.released"
    BUDGET_EXHAUSTED = "run.budget_exhausted"
    QUESTION_ASKED = "run.question_asked"
    QUESTION_ANSWERED = "run.question_answered"
    NOTIFIED = "run.notified"
    CANCEL_REQUESTED = "run.cancel_requested"
    STUCK = "run.stuck"
    HEARTBEAT_MISSED = "run.heartbeat_missed"
    LATE_RESULT = "run.late_result"
    OUTPUT = "run.output"
    PROGRESS = "run.progress"
    TOOL_CALL = "run.tool_call"
    USAGE = "run.usage"
    SESSION = "run.session"
    AGENT_ERROR = "run.agent_error"
    TASK_CREATED = "task.created"
    TASK_CHANGED = "task.changed"
    TASK_ENABLED = "task.enabled"
    TASK_DISABLED = "task.disabled"
    TASK_DELETED = "task.deleted"
    SCHEDULE_CHANGED = "schedule.changed"
    SCHEDULE_ENDED = "schedule.ended"
    SCHEDULE_QUARANTINED = "schedule.quarantined"
    DELIVERY_SENT = "delivery.sent"
    DELIVERY_UNKNOWN = "delivery.unknown"
    DELIVERY_DEAD = "delivery.dead"
    DELIVERY_WITHDRAWN = "delivery.withdrawn"
    RESTORED = "store.restored"
    PAUSED = "store.paused"
    RESUMED = "store.resumed"
    CLOCK_JUMPED = "clock.jumped"
    CLOCK_RETURNED = "clock.returned"


EVENT_MEANINGS: dict[EventName, str] = {
    EventName.SETTLED: "a run ended; data has its state, `check_state`, `suppressed` "
    "and `next_check`",
    EventName.RETRIED: "an attempt failed and the run is queued again",
    EventName.LOST: "an attempt was lost without a result; data has the reason",
    EventName.RELEASED: "a worker shut down and returned the run to the queue",
    EventName.BUDGET_EXHAUSTED: "a daily budget is spent and the run waits; data names the budget",
    EventName.QUESTION_ASKED: "a run waits for a person's answer",
    EventName.QUESTION_ANSWERED: "a person answered and the run is queued again",
    EventName.NOTIFIED: "Rota queued notifications that a run failed, expired or waits; data has "
    "the `targets`, and in `below_level` those whose level the run does not reach",
    EventName.CANCEL_REQUESTED: "somebody requested that a running run stop; `why` says who",
    EventName.STUCK: "a run is past its timeout and cannot be stopped",
    EventName.HEARTBEAT_MISSED: "a running attempt missed two heartbeats; data has the reason",
    EventName.LATE_RESULT: "an attempt that no longer owns the run returned a result",
    EventName.OUTPUT: "a program wrote output; data has the stream, the offset and the text, and "
    "in `ansi` the text with its colors. `open` marks an incomplete line, `continues` the rest "
    "of the line before, and `end` the end of a long output, recorded after its program has ended",
    EventName.PROGRESS: "a run reported progress; data has percent and message",
    EventName.TOOL_CALL: "an agent called a tool; data has its name and a summary",
    EventName.USAGE: "an agent used tokens; data has the figures",
    EventName.SESSION: "an agent started or resumed a session; data has its name",
    EventName.AGENT_ERROR: "an agent met an error and may continue; data has its class",
    EventName.TASK_CREATED: "a task was created",
    EventName.TASK_CHANGED: "a task's definition or policy changed",
    EventName.TASK_ENABLED: "a task was enabled",
    EventName.TASK_DISABLED: "a task was disabled, by a person or after too many failures",
    EventName.TASK_DELETED: "a task was deleted; its history stays until retention",
    EventName.SCHEDULE_CHANGED: "a schedule was created or changed",
    EventName.SCHEDULE_ENDED: "a schedule has no further slots",
    EventName.SCHEDULE_QUARANTINED: "a schedule's rule could not be evaluated and the schedule "
    "is quarantined",
    EventName.DELIVERY_SENT: "a channel accepted a message",
    EventName.DELIVERY_UNKNOWN: "a channel did not say whether it accepted a message",
    EventName.DELIVERY_DEAD: "a message could not be delivered and is not sent again",
    EventName.DELIVERY_WITHDRAWN: "a question was closed before its message was sent",
    EventName.RESTORED: "the database was restored from a backup; data has the time of the backup",
    EventName.PAUSED: "everything was paused: nothing new starts, slots that come due are skipped",
    EventName.RESUMED: "everything was resumed: work starts again",
    EventName.CLOCK_JUMPED: "the store's clock jumped forward by more than a minute; data has "
    "`from` and `to`. Slots in between count as missed once Rota accepts the new time",
    EventName.CLOCK_RETURNED: "the store's clock was ahead and went back. Slots between `from` "
    "and `to` were planned already and do not fire again; `rota status` shows the `rota "
    "backfill` command for those without a run",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """A recorded event."""

    id: EventId
    at: datetime
    name: EventName
    space_id: int | None
    task_id: TaskId | None
    run_id: RunId | None
    data: dict[str, object]


_TEXT = re.compile(r"([0-9a-f]{1,64})-([0-9a-f]{1,16})-([0-9a-f]{1,16})")


class EventPosition(NamedTuple):
    """A position in the order of events; no event is ever inserted before a position once read.

    Stores with one writer order by id alone; there `transaction` is 0.
    """

    transaction: int
    event: int


START = EventPosition(0, 0)


def cursor_at(incarnation: str, position: EventPosition) -> str:
    """Return a position in a database as text."""
    return f"{incarnation}-{position.transaction:x}-{position.event:x}"


def position_of(cursor: str, incarnation: str) -> EventPosition | None:
    """Return the position that a cursor stands for; None if it belongs to another database."""
    found = _TEXT.fullmatch(cursor)
    if found is None or found[1] != incarnation:
        return None
    return EventPosition(int(found[2], 16), int(found[3], 16))


@dataclass(frozen=True, slots=True, kw_only=True)
class EventPage:
    """Events in order, each with its position, and where to continue.

    `gap`: events after the cursor may be missing, because it is of another incarnation or retention
    removed some. `more`: the page was full. `hidden`: newer events exist, but a transaction that
    is still open keeps their order undecided.
    """

    events: tuple[tuple[EventPosition, Event], ...]
    position: EventPosition
    gap: bool = False
    more: bool = False
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTally:
    """Counts of events after a position, and where to continue.

    `events` counts by name and, for ended runs, by state. `late` counts runs of slots that ended at
    their first attempt, by how late they started: bucket, count, and total microseconds.
    """

    events: tuple[tuple[str, str, int], ...]
    late: tuple[tuple[int, int, int], ...]
    position: EventPosition
    more: bool = False
