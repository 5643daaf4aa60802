"""When work happens: the rule of a schedule, and the slots it yields."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum


class RuleKind(StrEnum):
    """The five ways to say when."""

    ONCE = "once"
    CRON = "cron"
    INTERVAL = "interval"
    RRULE = "rrule"
    CALENDAR = "calendar"


class Gap(StrEnum):
    """What becomes of a wall-clock slot that the spring change leaves out."""

    SHIFT = "shift"
    SKIP = "skip"


class Fold(StrEnum):
    """Which pass of a repeated wall-clock hour a slot runs in."""

    FIRST = "first"
    SECOND = "second"
    BOTH = "both"


class QuietMode(StrEnum):
    """What becomes of a slot inside a quiet window."""

    POSTPONE = "postpone"
    SKIP = "skip"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A rule in canonical form; two equal rules yield the same slots.

    `expression` is the canonical text of its kind: a local or absolute ISO time (once), a cron
    line, an ISO 8601 duration (interval), RFC 5545 lines (rrule), or times and weekdays such as
    `07:00,17:30 mon-fri` (calendar). `anchor` is the instant intervals count from and rules
    without a DTSTART begin at.
    """

    kind: RuleKind
    expression: str
    timezone: str = "UTC"
    anchor: datetime | None = None
    gap: Gap = Gap.SHIFT
    fold: Fold = Fold.FIRST
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    excluded: tuple[str, ...] = ()
    quiet: tuple[str, ...] = ()
    quiet_mode: QuietMode = QuietMode.POSTPONE
    jitter: timedelta = field(default=timedelta())


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """One planned instant of a schedule.

    `key` names it for ever (nominal local time, zone and fold, or generation and index); `at` is
    its planned instant in UTC; `due` is when its run may start, after stagger and quiet windows.
    """

    key: str
    at: datetime
    due: datetime
