"""Instants: aware datetimes in the API, whole microseconds in stores."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ALWAYS = 2**62
"""A span in microseconds that is longer than any real one."""
_MICROSECOND = timedelta(microseconds=1)


def to_micros(instant: datetime) -> int:
    """Return an aware datetime as microseconds since 1970."""
    if instant.tzinfo is None:
        message = f"an instant needs a time zone, got {instant.isoformat()}"
        raise ValueError(message)
    return (instant - EPOCH) // _MICROSECOND


def span_micros(span: timedelta) -> int:
    """Return a span as microseconds."""
    return span // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return the UTC instant that many microseconds after 1970."""
    return EPOCH + timedelta(microseconds=micros)


def maybe_micros(instant: datetime | None) -> int | None:
    """Return an instant in microseconds; None stays None."""
    return None if instant is None else to_micros(instant)


def maybe_instant(micros: int | None) -> datetime | None:
    """Return microseconds as an instant; None stays None."""
    return None if micros is None else from_micros(micros)
