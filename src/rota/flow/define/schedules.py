"""Declare, replace and delete schedules."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from rota.errors import Invalid, NotFound
from rota.flow.lookup import check_name, get_task
from rota.flow.task_changes import plan_due_then_list, retry_if_stale
from rota.model.instants import from_micros, to_micros
from rota.model.schedules import PAST_ASKED_FOR, Rule, RuleKind, ScheduleState, StoredSchedule
from rota.model.spaces import Space
from rota.model.tasks import Task
from rota.rules.permissions import Caller
from rota.store import tasks as store_tasks
from rota.store.store import Store
from rota.store.tasks import find_schedule, find_space, list_schedules
from rota.timing import natural_language, rule_builders
from rota.timing.durations import format_duration, parse_duration
from rota.timing.options import build
from rota.timing.timetable import timetable

KINDS = ("cron", "every", "rrule", "at", "times", "words")
MAX_CREATED_SCHEDULES = 1_000
SHORTEST = timedelta(seconds=1)
"""The shortest interval for people, agents and programs; a shorter one is a typing error."""
TOO_SHORT = 'at most once a second: use "1s" or longer; "1m" is a minute'


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """A requested schedule; exactly one of the first six fields is given.

    No interface sets `shortest`: tests of Rota use intervals of milliseconds.
    """

    cron: str | None = None
    every: str | timedelta | None = None
    rrule: str | None = None
    at: str | datetime | None = None
    times: str | tuple[str, ...] | None = None
    words: str | None = None
    weekdays: str | tuple[str, ...] = ()
    timezone: str | None = None
    anchor: datetime | None = None
    allow_past: bool = False
    shortest: timedelta = SHORTEST
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def kinds(self) -> list[str]:
        """Return which of the six fields are given."""
        return [kind for kind in KINDS if getattr(self, kind) is not None]


def build_rule(wish: ScheduleSpec, timezone: str, now: datetime, begun: datetime) -> Rule:
    """Return the rule of a spec, for a schedule that was first declared at `begun`."""
    rule = _rule_from(wish, timezone, now, begun)
    if rule.kind is RuleKind.INTERVAL and parse_duration(rule.expression) < wish.shortest:
        said = wish.words or wish.every
        shown = format_duration(said) if isinstance(said, timedelta) else said
        raise Invalid("every", shown, TOO_SHORT)
    return rule


def _rule_from(wish: ScheduleSpec, timezone: str, now: datetime, begun: datetime) -> Rule:
    given = wish.kinds
    if len(given) != 1:
        advice = f"give exactly one of {', '.join(KINDS)}"
        raise Invalid("schedule", " and ".join(given) or "nothing", advice)
    options = {**wish.options, "timezone": wish.timezone or timezone}
    if wish.weekdays and given != ["times"]:
        raise Invalid("weekdays", wish.weekdays, "requires times")
    match given[0]:
        case "cron":
            return rule_builders.cron(wish.cron or "", **options)
        case "every":
            return rule_builders.every(wish.every or "", anchor=wish.anchor or begun, **options)
        case "rrule":
            return rule_builders.rrule(wish.rrule or "", created_at=begun, **options)
        case "at":
            at = _moment(wish.at or "", now, options["timezone"])
            return rule_builders.once(at, now=now, allow_past=wish.allow_past, **options)
        case "words":
            said = natural_language.read(wish.words or "", now=now, timezone=options["timezone"])
            return build(said.kind, said.expression, anchor=said.anchor, **options)
        case _:
            return rule_builders.calendar(wish.times or "", weekdays=wish.weekdays, **options)


def _moment(at: str | datetime, now: datetime, timezone: str) -> str | datetime:
    """Return an instant; `in 20 minutes` counts from now."""
    if not isinstance(at, str) or not at.strip().lower().startswith("in "):
        return at
    said = natural_language.read(at, now=now, timezone=timezone)
    return said.expression if said.kind is RuleKind.ONCE else at


async def put_schedule(
    store: Store,
    caller: Caller,
    task_name: str,
    wish: ScheduleSpec,
    *,
    space: str = "main",
    name: str = "default",
) -> StoredSchedule:
    """Declare a schedule by name; the same spec again changes nothing.

    A new or changed schedule starts now and does not fire for the past, except for a requested past
    instant. Its generation increases when kind, expression, zone or anchor of the rule changes.
    """

    async def put() -> StoredSchedule:
        task = await get_task(store, caller, task_name, space)
        owner = await store.read(find_space, space)
        record = await prepare_schedule(store, owner, task_name, task, wish, name)
        if record is not None:
            return await store.write(store_tasks.put_schedule, record)
        found = await store.read(find_schedule, task.id, name)
        if found is None:
            raise NotFound("schedule", name, "it was deleted meanwhile: try again")
        return found

    return await retry_if_stale(put)


async def prepare_schedule(
    store: Store, owner: Space, task_name: str, task: Task | None, wish: ScheduleSpec, name: str
) -> dict[str, Any] | None:
    """Return what to write for a spec, or None if it is stored already.

    Everything is validated, and due slots are planned. The task need not exist yet.
    """
    check_name("schedule", name)
    now = from_micros(store.now())
    found = await _find(store, task, name)
    begun = now if found is None else found.created_at
    if found is not None and _unchanged(found, wish, owner.timezone, begun):
        return None
    if found is not None and found.next_at is not None and found.next_at <= now:
        await plan_due_then_list(store, found.task_id, to_micros(now))
        found = await _find(store, task, name)
    rule = build_rule(wish, owner.timezone, now, begun)
    generation = 1
    if found is not None:
        same = not _set_aside(found) and _identity(_rule_of(found)) == _identity(rule)
        generation = found.generation if same else found.generation + 1
    elif task is not None:
        await _check_count(store, task.id)
    cursor = now if found is None else _begin(found, now)
    if wish.at is not None and wish.allow_past:
        cursor = from_micros(PAST_ASKED_FOR)
    task_id = 0 if task is None else task.id
    stagger = f"{owner.name}/{task_name}/{name}"
    record = _record(task_id, name, rule, generation, cursor, stagger)
    stood = [] if found is None else [to_micros(found.cursor), found.version]
    return {**record, "created_at": to_micros(begun), "stood": stood}


def _begin(found: StoredSchedule, now: datetime) -> datetime:
    """Return when a changed schedule starts: after the slots that are planned already."""
    return max(now, found.cursor)


async def _find(store: Store, task: Task | None, name: str) -> StoredSchedule | None:
    return None if task is None else await store.read(find_schedule, task.id, name)


def _unchanged(found: StoredSchedule, wish: ScheduleSpec, timezone: str, begun: datetime) -> bool:
    """Return whether a spec describes the stored rule, even one that is no longer valid.

    A past `at` counts as the same spec.
    """
    again = replace(wish, allow_past=True) if wish.at is not None else wish
    rule = _rule_from(again, timezone, begun, begun)
    return not _set_aside(found) and rule_builders.to_record(rule) == json.loads(found.rule)


def _set_aside(found: StoredSchedule) -> bool:
    """Return whether the stored rule is quarantined, and may be unreadable."""
    return found.state is ScheduleState.QUARANTINED


def _rule_of(found: StoredSchedule) -> Rule:
    return rule_builders.from_record(json.loads(found.rule))


def _identity(rule: Rule) -> tuple[object, ...]:
    return (rule.kind, rule.expression, rule.timezone, rule.anchor)


def _record(
    task_id: int, name: str, rule: Rule, generation: int, cursor: datetime, stagger: str
) -> dict[str, Any]:
    slot = timetable(rule, generation=generation, stagger=stagger).next(cursor)
    return {
        "task_id": task_id,
        "name": name,
        "rule": json.dumps(rule_builders.to_record(rule)),
        "generation": generation,
        "cursor": to_micros(cursor),
        "next_at": None if slot is None else to_micros(slot.due),
    }


async def _check_count(store: Store, task_id: int) -> None:
    if len(await store.read(list_schedules, [task_id])) >= MAX_CREATED_SCHEDULES:
        raise Invalid("schedule", task_id, f"a task has at most {MAX_CREATED_SCHEDULES} schedules")


async def drop_schedule(
    store: Store, caller: Caller, task_name: str, space: str = "main", name: str = "default"
) -> StoredSchedule:
    """Delete a schedule; its history stays."""

    async def drop() -> StoredSchedule:
        task = await get_task(store, caller, task_name, space)
        standing = await plan_due_then_list(store, task.id, store.now())
        found = next((schedule for schedule in standing if schedule.name == name), None)
        if found is None:
            raise NotFound("schedule", name, f"see `rota task show {task_name}`")
        await store.write(store_tasks.drop_schedule, found)
        return found

    return await retry_if_stale(drop)
