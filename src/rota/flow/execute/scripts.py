"""Scripts: what one is told, how long it may take, and what its result file says."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NoReturn

from rota.errors import Invalid
from rota.model.outcomes import LONGEST_RESULT
from rota.model.tasks import Pool
from rota.model.texts import clean
from rota.model.values import encode
from rota.model.wishes import Output, Wish
from rota.ports.runner import Assignment
from rota.timing.durations import parse_duration

SCRIPT = "script"
"""The agent of scripts."""
LONGEST_METADATA = 64 * 1024
"""A variable of an environment may have 128 KiB on Linux."""
TOO_LONG = "its result file has more than 256 KiB: leave it among the artifacts and write less here"


def script_wish(spec: Mapping[str, Any], payload: str) -> Wish:
    """Return what a script task wants: its words, or the one line that it gives to a shell."""
    words = tuple(spec.get("command", ()))
    return Wish(
        program=("sh", "-c", *words) if spec.get("shell") else words,
        instructions=payload,
        output=Output(spec.get("output", Output.LAST_LINE)),
    )


def thread_of(assignment: Assignment) -> str | None:
    """Return the conversation that a run belongs to: its own, or else its task's."""
    return assignment.lease.thread or assignment.task.thread


def profile_of(assignment: Assignment, schedule: str | None = None) -> str:
    """Return what a task says of itself, as JSON, and which of its schedules a run is for."""
    task = assignment.task
    told: dict[str, object] = {
        "name": task.name,
        "title": task.title,
        "kind": task.kind.value,
        "space": task.space,
        "thread": thread_of(assignment),
        "schedule": schedule,
        "attempts": task.policy.retry.attempts,
        "timeout_seconds": _seconds(task.policy.timeout),
        "pool": (task.policy.pool or Pool.BACKGROUND).value,
        "group": task.policy.group,
    }
    metadata = task.spec.get("metadata")
    if len(json.dumps(metadata)) <= LONGEST_METADATA:
        told["metadata"] = metadata
    return json.dumps({name: value for name, value in told.items() if value is not None})


def local_timeout(config: str | None) -> timedelta | None:
    """Return how long a task's local config lets it take: seconds, or a length in words."""
    told = None if config is None else json.loads(config).get("timeout")
    if told is None:
        return None
    if isinstance(told, str):
        return parse_duration(told, field="timeout")
    if isinstance(told, bool) or not isinstance(told, int | float) or told <= 0:
        raise Invalid("timeout", told, "give the local config seconds, or a length like '10m'")
    try:
        return timedelta(seconds=told)
    except OverflowError:
        raise Invalid("timeout", told, "give less than a thousand years") from None


def result_line(given: bytes) -> bytes | None:
    """Return what a result file holds as a line of Rota's; None if it says nothing."""
    if len(given) > LONGEST_RESULT:
        return _line({"rota": "error", "class": "bad_result", "message": TOO_LONG})
    text = given.decode("utf-8", "replace").strip()
    if not text:
        return None
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = text
    told = {"text": clean(found)} if isinstance(found, str) else {"data": found}
    try:
        return _line({"rota": "result", **told})
    except ValueError as fault:
        return _line({"rota": "error", "class": "bad_result", "message": str(fault)})


def _line(record: Mapping[str, Any]) -> bytes:
    return encode(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)
