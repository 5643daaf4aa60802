"""Fault points: named places where a test may kill, stop or fail this process.

`ROTA_FAULT=name:hit:action` arms one of them: when the process gets there for the hit-th time, the
action happens. Unarmed, a point is one look at an empty list.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from types import MappingProxyType
from typing import Final

from rota.errors import Invalid, Unavailable

SLEEP_SECONDS: Final = 1.0
EXIT_CODE: Final = 70

STAGES: Final = MappingProxyType(
    {
        "begin": "its transaction has not begun",
        "statement": "one of its statements is about to be sent; hit 3 is the third statement",
        "commit": "everything is sent but the commit",
        "committed": "it is committed and nobody has been told",
        "answered": "its caller is about to go on",
    }
)
"""Where an operation that writes can be hurt: each has a point `operation.stage`."""

OPERATIONS: Final = (
    "add_space",
    "set_space",
    "add_thread",
    "put_task",
    "enable_task",
    "disable_task",
    "delete_task",
    "put_schedule",
    "drop_schedule",
    "set_limits",
    "enqueue",
    "request_cancel",
    "plan_due",
    "apply_plans",
    "align_schedules",
    "record_clock_jump",
    "record_clock_return",
    "promote_delayed",
    "claim_runs",
    "settle",
    "approve",
    "mark_stuck",
    "register_worker",
    "renew_worker",
    "retire_worker",
    "fence_workers",
    "fence_other_workers",
    "rebuild_queue_heads",
    "prune_runs",
    "add_key",
    "revoke_key",
    "touch_keys",
    "renew_home_lease",
    "fence_home",
    "record_launch",
    "begin_checks",
    "schedule_relaunch",
    "record_output",
    "adopt_attempt",
    "drop_kept_attempt",
    "archive_session",
    "clear_session",
    "resume_session",
    "put_thread",
    "add_message",
    "requeue_reader",
    "assign_messages",
    "record_mailbox_number",
    "acknowledge_messages",
    "record_heartbeats",
    "record_missed_heartbeats",
    "record_machine_sample",
    "defer_operations",
    "record_effect",
    "set_budget",
    "set_notification_target",
    "drop_notification_target",
    "reserve_budget",
    "record_request",
    "record_answer",
    "put_state",
    "drop_state",
    "mark_seen",
    "pause_all",
    "resume_all",
    "claim_deliveries",
    "record_delivery",
)
"""Every operation of a store that writes."""

PLACES: Final = MappingProxyType(
    {
        "migrate.begin": "a step of the schema is about to be applied",
        "migrate.applied": "the step is applied, its number not yet written",
        "migrate.commit": "the step's number is written and nothing committed",
        "migrate.committed": "the step is committed, the next one has not begun",
        "snapshot.begin": "SQLite: the copy before an upgrade is empty",
        "snapshot.copied": "SQLite: the copy is made and not yet checked",
        "lock.taken": "SQLite: this process has become the one that works on the file",
        "plan.advanced": "the cursors of schedules have moved, their runs are not yet there",
        "settle.outbox": "runs are moved on, their messages not yet in the outbox",
        "settle.successors": "messages are in the outbox, successors not yet in the queue",
        "settle.deferred": "what a success had deferred is done, and not yet crossed off",
        "approve.done": "what a person approved is done, what came of it not yet written",
        "attempt.begin": "a run is claimed, its work not begun",
        "attempt.end": "the work has ended, nothing is settled",
        "kept.promised": "the store believes in a home's keepers, they have not been told",
        "kept.written": "an attempt is written down, its keeper not started",
        "kept.started": "its keeper is started, nothing heard",
        "kept.heard": "it has ended and all of it is heard, nothing reported",
        "mailbox.read": "a command is read from a mailbox, nothing done",
        "mailbox.served": "the command is carried out, nobody has been answered",
        "mailbox.answered": "the reply is written, the command still lies in the mailbox",
        "mailbox.drained": "the program has ended and its mailbox is empty, nothing reported",
        "kept.adopted": "attempts of an earlier process are ours, nobody hears them yet",
        "check.begin": "a program has ended well, none of its task's checks is looked at",
        "check.looked": "one of its checks is looked at",
        "check.end": "all of its checks are looked at, nothing reported",
        "delivery.send": "a delivery is taken, nothing sent",
        "delivery.sent": "the channel has taken the message, nothing recorded",
        "crew.ready": "everything left behind is given back, the loops have not begun",
        "drain.begin": "the process was told to stop",
        "drain.end": "everything that ran has ended, the worker is still registered",
    }
)
"""Single points, each in one line of the code."""

POINTS: Final = MappingProxyType(
    {f"{name}.{stage}": STAGES[stage] for name in OPERATIONS for stage in STAGES} | dict(PLACES)
)
"""Every point and what is true there."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    # To this thread: another one would take it later, and this one would go on meanwhile.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _sleep() -> None:
    time.sleep(SLEEP_SECONDS)


def _raise() -> None:
    message = "the database cannot be used: a fault point says so"
    raise Unavailable(message)


def _exit() -> None:
    os._exit(EXIT_CODE)


ACTIONS: Final[MappingProxyType[str, Callable[[], None]]] = MappingProxyType(
    {"kill": _kill, "stop": _stop, "sleep": _sleep, "raise": _raise, "exit": _exit}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens where, and at which time the process gets there."""

    point: str
    hit: int
    action: str
    _hits: count[int] = field(default_factory=lambda: count(1), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}:{self.action}"

    def meet(self, point: str) -> None:
        """Act if this is the point and the time has come."""
        if point == self.point and next(self._hits) == self.hit:
            ACTIONS[self.action]()


_armed: Final[list[Fault]] = []


def parse_fault(text: str) -> Fault:
    """Return the fault that `name:hit:action` describes."""
    point, _, rest = text.partition(":")
    hit, _, action = rest.partition(":")
    if point not in POINTS:
        raise Invalid("fault", text, "no such point; docs/reference/fault-points.md lists them")
    if not (hit.isascii() and hit.isdecimal() and int(hit) > 0 and action in ACTIONS):
        advice = f"write name:hit:action, a hit from 1 and one of {', '.join(ACTIONS)}"
        raise Invalid("fault", text, advice)
    return Fault(point, int(hit), action)


def arm(text: str) -> None:
    """Arm the fault that a text describes instead of any other; an empty one arms none."""
    _armed[:] = [parse_fault(text)] if text else []


def armed() -> bool:
    """Return whether anything can happen at all."""
    return bool(_armed)


def reach(point: str) -> None:
    """Say that the process has come to a point."""
    if _armed:
        _armed[0].meet(point)
