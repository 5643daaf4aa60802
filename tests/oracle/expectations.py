"""The slots a rule has in a window, found by looking into the table of minutes.

This is the text of the rules, and nothing of `rota.timing` is in it:

- A nominal time runs at the minute the wall shows it. One that is shown twice runs in the pass
  `fold` names. One that is never shown runs at the end of the gap (`shift`), once for the gap and
  not beside a slot that stands there anyway, or not at all (`skip`).
- A rule that follows elapsed time runs whenever the wall shows its times, in both passes. It has
  nothing to make up after a gap, unless the gap took all that it wanted of a day.
- An excluded day takes the nominal times of that day, and the instants of an interval on it.
- Quiet hours are looked up on the wall: a slot waits for the first minute outside, or is skipped.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import date, datetime, timedelta
from typing import NamedTuple

from tests.oracle import lines, recurrences
from tests.oracle.windows import DAY, Minute, Window, count, moment

SECONDS = {"H": 3600, "M": 60, "S": 1}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule as a person writes it; its bounds are minutes from the change of the window.

    An interval counts from ten days before the change.
    """

    kind: str
    text: str
    gap: str = "shift"
    fold: str = "first"
    starts: int | None = None
    ends: int | None = None
    excluded: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    quiet_mode: str = "postpone"

    def __str__(self) -> str:
        given = ((field.name, getattr(self, field.name), field.default) for field in fields(self))
        said = (f"{name}={value!r}" for name, value, default in given if value != default)
        return " ".join(said)


class Slot(NamedTuple):
    """A slot: its instant, its name without the zone, and when it is due; in seconds."""

    at: int
    key: str
    due: int


class Times(NamedTuple):
    """What a kind of text wants of a day, and whether it follows elapsed time."""

    wants: Callable[[str, date], lines.Wanted]
    elapsed: Callable[[str], bool]


WALL_KINDS = {
    "cron": Times(lines.cron_wants, lines.follows_elapsed_time),
    "calendar": Times(lines.calendar_wants, lambda _: False),
    "rrule": Times(recurrences.recurrence_wants, recurrences.follows_elapsed_time),
}


def expected(rule: Rule, window: Window) -> list[Slot]:
    """Return the slots of a rule after the window's start and up to its end."""
    if rule.kind in WALL_KINDS:
        found = _by_wall(rule, window)
    elif rule.kind == "interval":
        found = _by_interval(rule, window)
    else:
        found = _once(rule, window)
    first = window.start * 60 + 1
    if rule.starts is not None:
        first = (window.change.at + rule.starts) * 60
    last = window.end if rule.ends is None else window.change.at + rule.ends
    slots = [
        Slot(at, key, _due(rule, window, at))
        for at, key in sorted(found)
        if first <= at <= last * 60
    ]
    if rule.quiet_mode == "skip":
        return [slot for slot in slots if slot.due == slot.at]
    return slots


def anchor(window: Window) -> int:
    """Return the minute intervals count from."""
    return window.change.at - 10 * DAY


def _by_wall(rule: Rule, window: Window) -> list[tuple[int, str]]:
    wants, follows_elapsed_time = WALL_KINDS[rule.kind]
    elapsed = follows_elapsed_time(rule.text)
    days: dict[int, dict[int, tuple[int, ...]]] = {}
    for number in window.days:
        day = _day(number)
        if not _is_excluded(rule, day):
            wanted = wants(rule.text, day)
            days[number] = {number * DAY + clock: wanted[clock] for clock in wanted}
    wanted = {wall: seconds for day in days.values() for wall, seconds in day.items()}
    found = [
        (minute.at * 60 + second, _key(wall, second, minute.again))
        for wall, seconds in wanted.items()
        for minute in window.shown.get(wall, ())
        if elapsed or _is_pass(rule, minute)
        for second in seconds
    ]
    if rule.gap == "shift":
        taken = {at for at, _ in found}
        for gap in window.gaps:
            lost = [wall for wall in gap.walls if wall in wanted]
            if elapsed:
                lost = [wall for wall in lost if all(w in gap.walls for w in days[wall // DAY])]
            if lost and gap.resumed * 60 not in taken:
                found.append((gap.resumed * 60, _key(lost[0], wanted[lost[0]][0], again=False)))
    return found


def _is_pass(rule: Rule, minute: Minute) -> bool:
    if not minute.twice or rule.fold == "both":
        return True
    return minute.again == (rule.fold == "second")


def _by_interval(rule: Rule, window: Window) -> list[tuple[int, str]]:
    step = sum(int(n) * SECONDS[unit] for n, unit in re.findall(r"(\d+)([HMS])", rule.text))
    found, n, at = [], 0, anchor(window) * 60
    while at <= window.end * 60:
        if at > window.start * 60:
            day = _day(window.minute(at // 60).wall // DAY)
            if not _is_excluded(rule, day):
                found.append((at, f"g1:{n}"))
        n, at = n + 1, at + step
    return found


def _once(rule: Rule, window: Window) -> list[tuple[int, str]]:
    wall = count(datetime.fromisoformat(f"{rule.text}+00:00"))
    if shown := window.shown.get(wall):
        return [(shown[-1 if rule.fold == "second" else 0].at * 60, "g1:0")]
    resumed = [gap.resumed * 60 for gap in window.gaps if wall in gap.walls]
    return [(at, "g1:0") for at in resumed if rule.gap == "shift"]


def _due(rule: Rule, window: Window, at: int) -> int:
    minute = at // 60
    while any(_is_quiet(text, window.minute(minute).wall) for text in rule.quiet):
        minute += 1
    return max(at, minute * 60)


def _is_quiet(text: str, wall: int) -> bool:
    """Whether a minute lies in a window such as `sat,sun 22:00-07:00`; it begins on these days."""
    days, _, hours = text.rpartition(" ")
    begin, end = (int(clock[:2]) * 60 + int(clock[3:]) for clock in hours.split("-"))
    number, clock = divmod(wall, DAY)
    if begin < end:
        began, inside = number, begin <= clock < end
    else:
        began, inside = number - (clock < end), clock >= begin or clock < end
    return inside and _day(began).weekday() in lines.weekday_numbers(days or "mon-sun")


def _is_excluded(rule: Rule, day: date) -> bool:
    for text in rule.excluded:
        if text[0].isdigit():
            first, _, last = text.partition("..")
            if date.fromisoformat(first) <= day <= date.fromisoformat(last or first):
                return True
        elif day.weekday() in lines.weekday_numbers(text):
            return True
    return False


def _day(number: int) -> date:
    return date(1970, 1, 1) + timedelta(days=number)


def _key(wall: int, second: int, again: bool) -> str:
    seconds = f":{second:02}" if second else ""
    return f"{moment(wall):%Y-%m-%dT%H:%M}{seconds}#{int(again)}"
