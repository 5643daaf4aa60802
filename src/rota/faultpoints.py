"""Fault points: named places where a test can kill, stop or fail this process.

`ROTA_FAULT=name:hit:action` arms one of them: the action happens when the process reaches the point
for the hit-th time. An unarmed point costs one check of an empty list.
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
        "begin": "the transaction has not begun",
        "statement": "one of its statements is about to be sent; hit 3 is the third statement",
        "commit": "all statements are sent, the commit is not",
        "committed": "the transaction is committed, its caller has no answer",
        "answered": "the caller is about to continue",
    }
)
"""Stages of a writing operation: each operation has a point `operation.stage`."""

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
"""Every writing operation of a store."""

PLACES: Final = MappingProxyType(
    {
        "migrate.begin": "a schema step is about to be applied",
        "migrate.applied": "the step is applied, its number is not written",
        "migrate.commit": "the step's number is written, nothing is committed",
        "migrate.committed": "the step is committed, the next one has not begun",
        "snapshot.begin": "SQLite: the copy before an upgrade is empty",
        "snapshot.copied": "SQLite: the copy is made and not verified",
        "lock.taken": "SQLite: this process has the lock of the file",
        "plan.advanced": "the cursors of schedules have moved, their runs do not exist yet",
        "settle.outbox": "states of runs are written, their messages are not in the outbox",
        "settle.successors": "messages are in the outbox, successors are not in the queue",
        "settle.deferred": "deferred operations of a success are applied, their rows not deleted",
        "approve.done": "an approved action is executed, its outcome is not written",
        "attempt.begin": "a run is claimed, its work has not started",
        "attempt.end": "the work has ended, nothing is settled",
        "kept.promised": "the lease of a keeper home is renewed in the store, not for its keepers",
        "kept.written": "an attempt is recorded, its keeper is not started",
        "kept.started": "the keeper is started, no output is read",
        "kept.heard": "the program has ended and all output is read, nothing is reported",
        "mailbox.read": "a command is read from a mailbox and not executed",
        "mailbox.served": "the command is executed, the reply is not written",
        "mailbox.answered": "the reply is written, the command is still in the mailbox",
        "mailbox.drained": "the program has ended and its mailbox is empty, nothing is reported",
        "kept.adopted": "attempts of an earlier process are adopted, their output is not read",
        "check.begin": "a program has succeeded, none of its checks is evaluated",
        "check.looked": "one of the checks is evaluated",
        "check.end": "all checks are evaluated, nothing is reported",
        "delivery.send": "a delivery is claimed, nothing is sent",
        "delivery.sent": "the channel has accepted the message, nothing is recorded",
        "crew.ready": "abandoned runs are returned to the queue, the loops have not started",
        "drain.begin": "the process received a request to stop",
        "drain.end": "all runs have ended, the worker is still registered",
    }
)
"""Points that each occur in one line of the code."""

POINTS: Final = MappingProxyType(
    {f"{name}.{stage}": STAGES[stage] for name in OPERATIONS for stage in STAGES} | dict(PLACES)
)
"""Every point with the state in which the process reaches it."""


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    # Send it to this thread: another one would handle it later, while this one continues.
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def _sleep() -> None:
    time.sleep(SLEEP_SECONDS)


def _raise() -> None:
    message = "the database is not available (raised by a fault point)"
    raise Unavailable(message)


def _exit() -> None:
    os._exit(EXIT_CODE)


ACTIONS: Final[MappingProxyType[str, Callable[[], None]]] = MappingProxyType(
    {"kill": _kill, "stop": _stop, "sleep": _sleep, "raise": _raise, "exit": _exit}
)


@dataclass(frozen=True, slots=True)
class Fault:
    """An action at the hit-th visit of a point."""

    point: str
    hit: int
    action: str
    _hits: count[int] = field(default_factory=lambda: count(1), compare=False, repr=False)

    def __str__(self) -> str:
        return f"{self.point}:{self.hit}:{self.action}"

    def meet(self, point: str) -> None:
        """Perform the action if this is the hit-th visit of the point."""
        if point == self.point and next(self._hits) == self.hit:
            ACTIONS[self.action]()


_armed: Final[list[Fault]] = []


def parse_fault(text: str) -> Fault:
    """Parse `name:hit:action`."""
    point, _, rest = text.partition(":")
    hit, _, action = rest.partition(":")
    if point not in POINTS:
        raise Invalid("fault", text, "unknown fault point; see docs/reference/fault-points.md")
    if not (hit.isascii() and hit.isdecimal() and int(hit) > 0 and action in ACTIONS):
        advice = f"write name:hit:action, a hit from 1 and one of {', '.join(ACTIONS)}"
        raise Invalid("fault", text, advice)
    return Fault(point, int(hit), action)


def arm(text: str) -> None:
    """Arm one fault and disarm all others; an empty text arms none."""
    _armed[:] = [parse_fault(text)] if text else []


def armed() -> bool:
    """Return whether a fault is armed."""
    return bool(_armed)


def reach(point: str) -> None:
    """Perform the armed action if it is due at this point."""
    if _armed:
        _armed[0].meet(point)
