"""Instants and lengths of time as sentences say them."""

from __future__ import annotations

from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from rota.model.beats import Heartbeat
from rota.model.texts import clean


def span(length: timedelta) -> str:
    """Return a length in its two largest units: `3 ms`, `4.2 s`, `2 min 5 s`, `3 d 4 h`."""
    total = max(0.0, length.total_seconds())
    if total < 1:
        return f"{total * 1_000:.0f} ms"
    if total < 60:  # noqa: PLR2004 - a minute
        return f"{total:.1f} s".replace(".0 s", " s")
    parts: list[str] = []
    rest = round(total)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        count, rest = divmod(rest, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def wall(instant: datetime, zone: ZoneInfo) -> str:
    """Return an instant as date and time of day in a zone, seconds only when there are any."""
    local = instant.astimezone(zone)
    return f"{local:%a %Y-%m-%d} {clock(instant, zone)}"


def clock(instant: datetime, zone: ZoneInfo) -> str:
    """Return the time of day of an instant in a zone, seconds only when there are any."""
    local = instant.astimezone(zone)
    return f"{local:%H:%M:%S}" if local.second else f"{local:%H:%M}"


def heard_of(heard: Heartbeat, now: datetime) -> str:
    """Return when an attempt was last heard of, and what is wrong with it."""
    ago = f"last heard of {span(now - heard.at)} ago"
    if heard.silence is not None:
        return f"{ago}: {heard.silence}"
    sign = heard.sign
    state = "" if sign.state == "running" and sign.alive else f" ({sign.state})"
    return f"{ago}{state}" + (f': "{sign.last_line}"' if sign.last_line else "")


def whole_line(text: str | None) -> str:
    """Return the first line of a text, whole; an error says there what happened and what to do."""
    return clean((text or "").strip().partition("\n")[0]).partition("\n")[0].strip()


def first_line(text: str | None, most: int = 120) -> str:
    """Return the first line of a text, shortened for a cell of a table."""
    line = whole_line(text)
    return line if len(line) <= most else line[: most - 1] + "…"


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: `1 run`, `3 runs`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
