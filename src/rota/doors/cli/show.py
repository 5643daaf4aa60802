"""What people see: aligned tables, plain when piped; times on the wall of a zone; JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

NOTHING = "-"
STYLES = {
    "succeeded": "green",
    "sent": "green",
    "failed": "red",
    "dead": "red",
    "expired": "yellow",
    "cancelled": "yellow",
    "unknown": "yellow",
    "running": "cyan",
    "waiting": "magenta",
    "disabled": "dim",
    "off": "dim",
}


class Output:
    """Writes the answer of a command to standard output."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json

    def line(self, text: str = "") -> None:
        """Write a line for people; nothing when the answer is JSON."""
        if not self.as_json:
            sys.stdout.write(f"{text}\n")

    def record(self, value: object) -> None:
        """Write the answer as JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], empty: str) -> None:
        """Write rows under their columns, or a sentence when there are none."""
        if self.as_json:
            return
        if not rows:
            self.line(empty)
        elif sys.stdout.isatty():
            _rich_table(columns, rows)
        else:
            _plain_table(columns, rows)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Write names and values below each other, leaving out what has no value."""
        shown = [(name, value) for name, value in pairs if value]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            first, *rest = value.splitlines() or [""]
            self.line(f"{name:<{width}}  {first}")
            for line in rest:
                self.line(f"{'':<{width}}  {line}")


def _plain_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    lines = [[name.upper() for name in columns], *rows]
    widths = [max(len(line[n]) for line in lines) for n in range(len(columns))]
    for line in lines:
        cells = (f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True))
        sys.stdout.write("  ".join(cells).rstrip() + "\n")


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to load
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    last = len(columns) - 1
    for n, name in enumerate(columns):
        table.add_column(name, no_wrap=n < last, overflow="fold" if n == last else "ellipsis")
    for row in rows:
        table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
    Console().print(table)


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def wall(instant: datetime | None, timezone: str) -> str:
    """Return an instant as the date and time of day in a zone, without naming the zone."""
    if instant is None:
        return NOTHING
    return instant.astimezone(_zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")


def wall_named(instant: datetime | None, timezone: str) -> str:
    """Return an instant with its weekday and the zone's abbreviation."""
    if instant is None:
        return NOTHING
    local = instant.astimezone(_zone(timezone))
    return f"{local:%a %Y-%m-%d %H:%M:%S} {local.tzname()}"


def iso(instant: datetime | None) -> str | None:
    """Return an instant as ISO 8601 in UTC."""
    return None if instant is None else instant.astimezone(UTC).isoformat()
