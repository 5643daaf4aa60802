"""What `rota.timing` says of a rule in a window, beside what the oracle expects."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rota.model.schedules import Rule as RotaRule
from rota.model.schedules import Slot as RotaSlot
from rota.timing import rule_builders
from rota.timing.timetable import timetable
from tests.oracle.cases import rules_in
from tests.oracle.expectations import Rule, Slot, anchor, expected
from tests.oracle.windows import EPOCH, HOUR, Change, Window, look, moment

STARTS = sorted({*range(-24 * HOUR, 24 * HOUR, 6 * HOUR), *range(-3 * HOUR, 3 * HOUR + 1, 20)})
"""From where the next slot is asked for, in minutes from the change; and a second before each."""


class Mismatch(NamedTuple):
    """One answer that is not the oracle's."""

    zone: str
    change: Change
    rule: str
    asked: str
    expected: str
    found: str

    def __str__(self) -> str:
        year = self.change.year
        return (
            f"{self.zone}, {self.change}: {self.rule}\n  {self.asked}\n"
            f"  expected  {self.expected}\n  found     {self.found}\n"
            f"  again     python -m tests.oracle --zone {self.zone} --from {year} --to {year}"
        )


class Outcome(NamedTuple):
    """What came of one change: how many zones made it, and how many walls they have."""

    zone: str
    change: Change
    zones: int
    windows: int
    comparisons: int
    mismatches: list[Mismatch]


def compare_change(job: tuple[Change, list[str]]) -> Outcome:
    """Compare every rule around a change, once for all zones whose walls show the same."""
    change, zones = job
    alike: dict[tuple[int, ...], str] = {}
    for zone in zones:
        alike.setdefault(look(ZoneInfo(zone), change), zone)
    comparisons, mismatches = 0, list[Mismatch]()
    for walls, zone in alike.items():
        window = Window(change, walls)
        for rule in rules_in(window):
            comparison = Comparison(rule, window, zone, expected(rule, window))
            mismatches += comparison.mismatches()
            comparisons += comparison.count
    return Outcome(zones[0], change, len(zones), len(alike), comparisons, mismatches)


def built(rule: Rule, window: Window, zone: str) -> RotaRule:
    """Return a rule as Rota's own constructors make it."""
    options = {
        "timezone": zone,
        "gap": rule.gap,
        "fold": rule.fold,
        "excluded": rule.excluded,
        "quiet": rule.quiet,
        "quiet_mode": rule.quiet_mode,
        "starts_at": None if rule.starts is None else moment(window.change.at + rule.starts),
        "ends_at": None if rule.ends is None else moment(window.change.at + rule.ends),
    }
    match rule.kind:
        case "cron":
            return rule_builders.cron(rule.text, **options)
        case "calendar":
            times, _, weekdays = rule.text.partition(" ")
            return rule_builders.calendar(times, weekdays=weekdays, **options)
        case "rrule":
            return rule_builders.rrule(rule.text, created_at=EPOCH, **options)
        case "interval":
            return rule_builders.every(rule.text, anchor=moment(anchor(window)), **options)
        case "once":
            return rule_builders.once(rule.text, now=EPOCH, **options)
    raise ValueError(rule.kind)


class Comparison:
    """One rule in one window and one zone; counts what it compares."""

    def __init__(self, rule: Rule, window: Window, zone: str, expected: list[Slot]) -> None:
        self._rule, self._window, self._zone = rule, window, zone
        self._expected = expected
        self._table = timetable(built(rule, window, zone))
        self.count = 0

    def mismatches(self) -> list[Mismatch]:
        """Return everything that is not as expected."""
        return [*self._all_slots(), *self._next_slots()]

    def _all_slots(self) -> Iterator[Mismatch]:
        """Walk through the window, and hold the slots to what is true of all slots."""
        found = [
            self._plain(slot)
            for slot in self._table.between(
                moment(self._window.start), moment(self._window.end), limit=100_000
            )
        ]
        self.count += max(len(found), len(self._expected))
        if found != self._expected:
            yield self._mismatch("all slots", self._expected, found)
        if len({slot.key for slot in found}) != len(found):
            yield self._mismatch("keys", "each once", found)
        ordered = all(a.at < b.at and a.due <= b.due for a, b in pairwise(found))
        strictly = self._rule.quiet or all(a.due < b.due for a, b in pairwise(found))
        if not (ordered and strictly):
            yield self._mismatch("order", "ascending", found)

    def _next_slots(self) -> Iterator[Mismatch]:
        """Ask for the next slot from many places, also from between slots."""
        instants = [slot.at for slot in self._expected]
        begins = [(self._window.change.at + minutes) * 60 for minutes in STARTS]
        for after in (second for begin in begins for second in (begin - 1, begin)):
            place = bisect_right(instants, after)
            expected = self._expected[place] if place < len(instants) else None
            slot = self._table.next(EPOCH + timedelta(seconds=after))
            found = None if slot is None else self._plain(slot)
            if expected is None and found is not None and found.at > self._window.end * 60:
                found = None
            self.count += 1
            if found != expected:
                asked = f"next after {EPOCH + timedelta(seconds=after):%Y-%m-%dT%H:%M:%SZ}"
                yield self._mismatch(asked, expected, found)

    def _plain(self, slot: RotaSlot) -> Slot:
        return Slot(_seconds(slot.at), slot.key.replace(f"[{self._zone}]", ""), _seconds(slot.due))

    def _mismatch(self, asked: str, expected: object, found: object) -> Mismatch:
        return Mismatch(
            self._zone,
            self._window.change,
            str(self._rule),
            asked,
            _said(expected, found),
            _said(found, expected),
        )


def _said(answer: object, other: object) -> str:
    """Return an answer in words; of two lists, what only the first has."""
    if isinstance(answer, Slot):
        return f"{answer.key} at {_at(answer.at)}, due {_at(answer.due)}"
    if not isinstance(answer, list):
        return str(answer)
    odd = [slot for slot in answer if not isinstance(other, list) or slot not in other]
    return "; ".join(_said(slot, None) for slot in odd) or "nothing else"


def _at(seconds: int) -> str:
    return f"{EPOCH + timedelta(seconds=seconds):%dT%H:%M:%SZ}"


def _seconds(instant: datetime) -> int:
    seconds, rest = divmod(instant - EPOCH, timedelta(seconds=1))
    if rest:
        raise ValueError(f"{instant} is not a whole second")
    return seconds
