"""Plans as the checker sees them: every slot that a cursor passes is accounted for.

Which slots a rule yields is computed by a second opinion that shares no code with `rota.timing`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import NoReturn
from zoneinfo import ZoneInfo

from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.history import Violation
from tests.tools.simulation.picture import PLANNING, Commit, Picture

PAST_ASKED_FOR = 0
GRACE_MICROS = 60_000_000
"""A slot found this late is still on time."""

MISSED = frozenset({"missed", "too_late", "catch_up_cap"})


def check_planning(
    picture: Picture, changes: Mapping[str, Sequence[Change]], commit: Commit
) -> None:
    """Judge what a transaction did to schedules and the ledger."""
    passed: set[int] = set()
    for change in changes.get("schedules", ()):
        old, new = change.old, change.new
        if new.deleted_at is None and new.state != "quarantined":
            _knows_what_is_next(new)
        if old is not None and commit.operation not in PLANNING:
            _passes_nothing(old, new, commit)
        if old is None or commit.operation not in PLANNING:
            continue
        if (old.rule, old.generation) != (new.rule, new.generation):
            _broken("planning leaves the rule alone", new, "its rule changed")
        if new.cursor < old.cursor:
            _broken("cursors never move back", new, f"{old.cursor} to {new.cursor}")
        if old.deleted_at is not None:
            _broken("a dropped schedule plans nothing", new, f"cursor {new.cursor}")
        passed.add(new.id)
        _accounts_for_every_slot(picture, changes, old, new, commit)
        _queued_as_its_task_stands(picture, changes, new)
        _skips(picture, changes, new, commit)
    for change in changes.get("ledger", ()):
        told = change.new is not None and commit.operation in PLANNING
        if told and change.new.schedule_id not in passed:
            _broken("the ledger moves with the cursor", change.new, change.new.reason)


def _passes_nothing(old: Row, new: Row, commit: Commit) -> None:
    """Changing or dropping a schedule swallows no slot that was due, and plans none again."""
    if new.cursor < old.cursor and new.cursor != PAST_ASKED_FOR:
        _broken("cursors never move back", new, f"{old.cursor} to {new.cursor}")
    until = new.cursor if new.deleted_at is None else commit.asked
    lost = slots_between(old.rule, old.cursor, until)
    if lost and old.deleted_at is None and old.state == "active":
        _broken("a change swallows no slot", new, f"{len(lost)} slots from {lost[0]} on")
    if new.generation == old.generation and _identity(old.rule) != _identity(new.rule):
        _broken("a generation has one rule", new, f"generation {new.generation}")


def _identity(rule: str) -> tuple[object, ...]:
    record = json.loads(rule)
    return tuple(record[part] for part in ("kind", "expression", "timezone", "anchor"))


def _knows_what_is_next(schedule: Row) -> None:
    cursor = schedule.cursor
    wanted = next_slot(schedule.rule, cursor - (cursor == PAST_ASKED_FOR))
    if schedule.next_at != wanted:
        _broken("a schedule knows its next slot", schedule, f"{schedule.next_at}, not {wanted}")


def _accounts_for_every_slot(
    picture: Picture,
    changes: Mapping[str, Sequence[Change]],
    old: Row,
    new: Row,
    commit: Commit,
) -> None:
    due = slots_between(old.rule, old.cursor, new.cursor)
    spans = []
    ledgered = 0
    for change in changes.get("ledger", ()):
        row, before = change.new, change.old
        if row is None or row.schedule_id != new.id:
            continue
        first = row.first_at if before is None else before.last_at + 1
        spans.append((first, row.last_at))
        ledgered += row.count - (0 if before is None else before.count)
    added = [
        c.new.slot_at
        for c in changes.get("runs", ())
        if c.new is not None and c.old is None and c.new.schedule_id == new.id
    ]
    _tells_why(picture, changes, new, commit)
    runs = {*added, *_slots_that_ran(picture, new.id, old.cursor)}
    told = [at for at in due if any(first <= at <= last for first, last in spans)]
    for at in due:
        if at in told and at in set(added):
            _broken("a slot has a run or a ledger row", new, f"{at} has a run and a ledger row")
        if at not in told and at not in runs:
            _broken("no slot is silently missing", new, f"{at} has neither run nor ledger row")
    task = picture.tasks[new.task_id]
    for at in added:
        if at not in due:
            _broken("only slots of the rule run", new, f"{at} is not one")
        if not task.enabled or (task.paused_until or at) > at:
            _broken("a disabled task's slots do not run", new, f"{at} got a run")
    if ledgered != len(told):
        _broken("the ledger counts right", new, f"{ledgered} told, {len(told)} passed over")


def _tells_why(
    picture: Picture, changes: Mapping[str, Sequence[Change]], schedule: Row, commit: Commit
) -> None:
    """The reasons in the ledger must be true, and of missed slots the newest run."""
    on_time = commit.now - GRACE_MICROS
    made = [c.new for c in changes.get("runs", ()) if c.old is None]
    made = [run for run in made if run.schedule_id == schedule.id]
    caught_up = [run.slot_at for run in made if run.source == "catch_up"]
    busy = bool(made) or picture.was_busy(schedule.task_id, commit.instant)
    for change in changes.get("ledger", ()):
        row = change.new
        if row is None or row.schedule_id != schedule.id:
            continue
        if row.reason in MISSED and row.last_at > on_time:
            _broken("a slot on time is not missed", schedule, f"{row.last_at} is {row.reason}")
        if row.reason == "overlap" and not busy:
            _broken("a slot is skipped only beside another run", schedule, f"{row.last_at}")
        passed_over = row.reason in {"coalesced", "catch_up_cap"} and row.last_at <= on_time
        if passed_over and any(at < row.last_at for at in caught_up):
            _broken("of missed slots the newest run", schedule, f"{row.last_at} was passed over")


def _skips(
    picture: Picture, changes: Mapping[str, Sequence[Change]], schedule: Row, commit: Commit
) -> None:
    """A slot that came on time has no run beside one that was there when the planner looked."""
    if json.loads(picture.tasks[schedule.task_id].policy)["overlap"] != "skip":
        return
    for change in changes.get("runs", ()):
        run = change.new
        if change.old is not None or (run.schedule_id, run.source) != (schedule.id, "slot"):
            continue
        for other in picture.runs.values():
            beside = (other.task_id, other.lane) == (run.task_id, run.lane)
            if beside and other.holder and other.started_at < commit.asked:
                _broken("a slot is skipped beside another run", schedule, f"{other.id}, {run.id}")


def _queued_as_its_task_stands(
    picture: Picture, changes: Mapping[str, Sequence[Change]], schedule: Row
) -> None:
    """A plan that was made before its task changed is not applied after it."""
    policy = json.loads(picture.tasks[schedule.task_id].policy)
    wanted = (policy["pool"], policy["priority"], policy["group"] or "", policy["metered"])
    for change in changes.get("runs", ()):
        run = change.new
        if change.old is None and run.schedule_id == schedule.id:
            queued = (run.pool, run.priority, run.grp, bool(run.metered))
            if queued != wanted:
                _broken("a slot is queued as its task stands", schedule, f"{queued}, not {wanted}")


def _slots_that_ran(picture: Picture, schedule_id: int, after: int) -> set[int]:
    return {
        run.slot_at
        for run in picture.runs.values()
        if run.schedule_id == schedule_id and run.slot_at > after
    }


def _broken(rule: str, row: Row, detail: str) -> NoReturn:
    raise Violation(rule, f"{type(row).__name__} {row.id}: {detail}")


EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
SECOND_MICROS = 1_000_000
LONGEST_GAP = timedelta(hours=3)


def slots_between(rule: str, after: int, until: int) -> list[int]:
    """Return the instants with after < instant <= until, in microseconds."""
    found = []
    for instant in _instants(rule, after):
        if instant > until:
            break
        found.append(instant)
    return found


def next_slot(rule: str, after: int) -> int | None:
    """Return the first instant after another, or None if there is none."""
    return next(iter(_instants(rule, after)), None)


def _instants(rule: str, after: int) -> Iterator[int]:
    kind, expression, zone, anchor = _read(rule)
    if kind == "interval":
        step = _seconds(expression) * SECOND_MICROS
        yield from _counted(anchor, step, after)
    elif kind == "once":
        at = _micros(datetime.fromisoformat(expression))
        if at > after:
            yield at
    elif kind == "cron" and expression.startswith("*/"):
        yield from _minutes(int(expression.split()[0][2:]), after)
    elif kind == "cron":
        minute, hour = expression.split()[:2]
        yield from _daily([time(int(hour), int(minute))], zone, after)
    else:
        yield from _daily([time.fromisoformat(t) for t in expression.split(",")], zone, after)


@lru_cache(maxsize=1_000)
def _read(rule: str) -> tuple[str, str, str, int]:
    record = json.loads(rule)
    anchor = record["anchor"]
    begun = 0 if anchor is None else _micros(datetime.fromisoformat(anchor))
    return record["kind"], record["expression"], record["timezone"], begun


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def _seconds(expression: str) -> int:
    found = re.fullmatch(r"PT(?:(\d+)M)?(?:(\d+)S)?", expression)
    if found is None:
        raise ValueError(expression)
    return 60 * int(found[1] or 0) + int(found[2] or 0)


def _counted(anchor: int, step: int, after: int) -> Iterator[int]:
    number = max(1, (after - anchor) // step + 1)
    while True:
        yield anchor + number * step
        number += 1


def _minutes(step: int, after: int) -> Iterator[int]:
    minute = 60 * SECOND_MICROS
    at = after // minute * minute + minute
    while True:
        if at // minute % 60 % step == 0:
            yield at
        at += minute


def _daily(times: list[time], zone: str, after: int) -> Iterator[int]:
    """Every day at these times of the wall: behind a gap if left out, once if repeated."""
    where = ZoneInfo(zone)
    day = (EPOCH + timedelta(microseconds=after)).astimezone(where).date() - timedelta(days=1)
    last = after
    while True:
        for instant in sorted({_wall(day, at, where) for at in times}):
            if instant > last:
                yield instant
                last = instant
        day += timedelta(days=1)


def _wall(day: date, at: time, where: ZoneInfo) -> int:
    local = datetime.combine(day, at)
    guess = local.replace(tzinfo=where).astimezone(UTC)
    if guess.astimezone(where).replace(tzinfo=None) == local:
        return _micros(guess)
    minute = guess - LONGEST_GAP
    while minute.astimezone(where).replace(tzinfo=None) < local:
        minute += MINUTE
    return _micros(minute)
