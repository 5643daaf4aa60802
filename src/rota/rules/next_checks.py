"""Next checks: an agent chooses when it looks again, within the bounds of its task."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from rota.errors import Invalid
from rota.model.ids import RunId
from rota.model.runs import RunBatch, Source
from rota.model.tasks import Task, TaskKind
from rota.rules.queueing import new_run
from rota.rules.wishes import is_in_conversation
from rota.timing.durations import parse_duration

FIELD = "next_check"
SHORTEST = timedelta(minutes=1)
LONGEST = timedelta(days=366)
KEY = "next:"
"""How the key of a run begins that an earlier one asked for."""


class Bounds(NamedTuple):
    """How soon and how late a task lets its agent look again."""

    least: timedelta
    most: timedelta


def bounds_in(spec: Mapping[str, Any]) -> Bounds | None:
    """Return the bounds of a record; Invalid if they are none."""
    told = spec.get(FIELD)
    if told is None:
        return None
    if not isinstance(told, dict) or told.keys() != {"min", "max"}:
        raise Invalid(FIELD, told, "give min and max, like 10m and 1d")
    least = parse_duration(str(told["min"]), field=f"{FIELD}.min")
    most = parse_duration(str(told["max"]), field=f"{FIELD}.max")
    if not SHORTEST <= least <= most <= LONGEST:
        raise Invalid(FIELD, f"{told['min']}..{told['max']}", "go from 1m up to 366d")
    return Bounds(least, most)


def check_next(spec: Mapping[str, Any], kind: TaskKind) -> None:
    """Refuse bounds that are none, or that nobody could use."""
    if bounds_in(spec) is not None and kind is TaskKind.PYTHON:
        raise Invalid(FIELD, "", "a callable queues its next run by itself: leave it out")


def next_run(task: Task, run_id: RunId, words: str | None, now: int) -> RunBatch | None:
    """Return the run that an agent wants next, as soon or late as its task allows.

    None if it wants none, its task lets it have none, or its words are no length of time.
    """
    bounds = bounds_in(task.spec)
    if bounds is None or words is None or not task.enabled:
        return None
    try:
        wanted = parse_duration(words, field=FIELD)
    except Invalid:
        return None
    wait = min(max(wanted, bounds.least), bounds.most)
    at = now + wait // timedelta(microseconds=1)
    template = new_run(
        task.id,
        task.space_id,
        task.route,
        task.policy,
        Source.AFTER,
        now,
        available_at=at,
        upstream_id=run_id,
        thread=task.thread,
        in_conversation=is_in_conversation(task),
    )
    return RunBatch(template, ["null"], [f"{KEY}{run_id}"])
