"""From a rule to its slots.

A timetable answers one question, "what comes after this instant?", in bounded time for every
rule a constructor of `rota.timing.rules` has accepted. Its slots have these names:

- cron, calendar, rrule: nominal local time, zone and pass, `2026-10-25T02:30[Europe/Berlin]#0`.
  Seconds are written only when there are any. The pass is 1 for the second run through a
  repeated stretch and 0 otherwise, also for a slot that a gap has moved; so a change of a
  zone's rules moves a slot and never renames it, save with `fold` second, whose pass is its name.
  `resume` says where to go on after such a change.
- interval: `g<generation>:<n>`, where slot n lies at anchor + n * interval; the first is 1.
- once: `g<generation>:0`.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from hashlib import sha256
from typing import TYPE_CHECKING

from rota.model.schedules import QuietMode, Rule, RuleKind, Slot
from rota.timing.courses import plan_of
from rota.timing.instants import TICK, instant, seconds
from rota.timing.patterns import MOST_SKIPS

if TYPE_CHECKING:
    from rota.timing.courses import Plan
    from rota.timing.quiet import Quiet

_MILLISECOND = timedelta(milliseconds=1)
_INDEXED = frozenset({RuleKind.INTERVAL, RuleKind.ONCE})


@lru_cache(maxsize=8192)
def timetable(rule: Rule, *, generation: int = 1, stagger: str = "") -> Timetable:
    """Return the timetable of a schedule.

    `stagger` names the schedule, so that its jitter is its own and always the same. What a rule
    costs to evaluate is shared by all schedules with that rule.
    """
    return Timetable(plan_of(rule), generation, _offset(rule.jitter, stagger))


class Timetable:
    """The slots of one schedule, ascending; every instant in and out is UTC."""

    __slots__ = ("_plan", "_prefix", "_stagger")

    def __init__(self, plan: Plan, generation: int, stagger: timedelta) -> None:
        self._plan = plan
        self._prefix = f"g{generation}:" if plan.rule.kind in _INDEXED else ""
        self._stagger = stagger

    @property
    def rule(self) -> Rule:
        """The rule the slots follow from."""
        return self._plan.rule

    def next(self, after: datetime) -> Slot | None:
        """Return the first slot strictly after an instant; None means there is none left."""
        if self._plan.quiet is not None:
            return self._next_around(self._plan.quiet, after)
        found = self._plan.next(after)
        if found is None:
            return None
        at, key = found
        return Slot(key=self._prefix + key, at=at, due=at + self._stagger)

    def resume(self, cursor: datetime, key: str | None) -> datetime:
        """Return the instant to go on from, for a schedule whose newest slot is called `key`.

        That slot lay at `cursor` when it was planned; new zone data may have moved it.
        """
        return self._plan.resume(cursor, key)

    def take(self, after: datetime, n: int) -> list[Slot]:
        """Return the next n slots after an instant, or fewer if the rule ends before."""
        slots: list[Slot] = []
        while len(slots) < n:
            slot = self.next(after)
            if slot is None:
                break
            slots.append(slot)
            after = slot.at
        return slots

    def between(self, after: datetime, until: datetime, *, limit: int = 10_000) -> list[Slot]:
        """Return the slots with after < at <= until, oldest first, at most `limit` of them."""
        slots: list[Slot] = []
        while len(slots) < limit:
            slot = self.next(after)
            if slot is None or slot.at > until:
                break
            slots.append(slot)
            after = slot.at
        return slots

    def latest(self, after: datetime, until: datetime) -> Slot | None:
        """Return the newest slot with after < at <= until, however many lie between.

        The cost grows with the logarithm of the stretch, not with the number of slots in it.
        """
        newest, slot = None, self.next(after)
        empty_from = until
        while slot is not None and slot.at <= until:
            newest = slot
            while empty_from - newest.at > TICK:
                middle = newest.at + (empty_from - newest.at) / 2
                slot = self.next(middle)
                if slot is not None and slot.at <= until:
                    newest = slot
                else:
                    empty_from = middle
            slot = self.next(newest.at)
        return newest

    def _next_around(self, quiet: Quiet, after: datetime) -> Slot | None:
        for _ in range(MOST_SKIPS):
            found = self._plan.next(after)
            if found is None:
                return None
            at, key = found
            due = at + self._stagger
            free = quiet.until(seconds(due))
            if free == seconds(due):
                return Slot(key=self._prefix + key, at=at, due=due)
            if self._plan.rule.quiet_mode is QuietMode.POSTPONE:
                return Slot(key=self._prefix + key, at=at, due=instant(free))
            # Jump to the end of the window: an every-second rule may have thousands of slots in it.
            after = max(at, instant(free) - self._stagger - TICK)
        return None


def _offset(jitter: timedelta, stagger: str) -> timedelta:
    span = jitter // _MILLISECOND
    if span == 0:
        return timedelta()
    digest = sha256(stagger.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest) % span * _MILLISECOND
