"""Instants as whole numbers: the arithmetic beneath every rule.

Instants and nominal local times are both counted in seconds since 1970-01-01T00:00, the former in
UTC, the latter on the wall. A nominal time travels in a datetime tagged UTC when it needs one;
the tag then only means "not yet placed in a zone".
"""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

from rota.errors import Invalid

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EARLIEST = datetime(1900, 1, 1, tzinfo=UTC)
LATEST = datetime(2199, 12, 31, 23, 59, 59, tzinfo=UTC)
"""No rule begins before EARLIEST and no slot lies after LATEST: every search ends."""

DAY = 86_400
UNIX_DAY_ONE = EPOCH.toordinal()
TICK = timedelta(microseconds=1)


def seconds(moment: datetime) -> int:
    """Return the whole second an aware instant lies in."""
    since = moment - EPOCH
    return since.days * DAY + since.seconds


LAST_SECOND = seconds(LATEST)


def instant(count: int) -> datetime:
    """Return the UTC instant, or the unplaced wall time, of a count of seconds."""
    return EPOCH + timedelta(0, count)


def day_number(day: date) -> int:
    """Return a calendar day as days since 1970-01-01."""
    return day.toordinal() - UNIX_DAY_ONE


def calendar_day(number: int) -> date:
    """Return the calendar day that lies so many days after 1970-01-01."""
    return date.fromordinal(number + UNIX_DAY_ONE)


def as_utc(moment: datetime, field: str) -> datetime:
    """Return an aware instant in UTC, within the years Rota computes in, or refuse it."""
    if moment.tzinfo is None or moment.utcoffset() is None:
        raise Invalid(field, moment.isoformat(), "give it a time zone, for example +00:00")
    try:
        placed = moment.astimezone(UTC)
    except OverflowError:
        raise out_of_range(field, moment.isoformat()) from None
    if not EARLIEST <= placed <= LATEST:
        raise out_of_range(field, moment.isoformat())
    return placed


def out_of_range(field: str, value: str) -> Invalid:
    """Return the refusal of a time outside the years Rota computes in."""
    return Invalid(field, value, "use a time between the years 1900 and 2199")
