"""What people see: aligned tables, plain when piped; times on the wall of a zone; JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from zoneinfo import ZoneInfo

import typer

from rota.doors.cli.output import painted
from rota.doors.cli.tables import NOTHING, in_lines, rich_table
from rota.model.texts import visible_coloured


class Output:
    """Writes the answer of a command to standard output."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_open = False
        """Whether the last line may go on."""

    def line(
        self,
        text: str = "",
        *,
        opened: bool = False,
        goes_on: bool = False,
        coloured: bool = False,
    ) -> None:
        """Write a line for people; nothing when the answer is JSON.

        An `opened` one is not whole yet; what comes next begins a new one unless it `goes_on`.
        The colours of a `coloured` one stay.
        """
        if not self.as_json:
            begin = "\n" if self.is_open and not goes_on else ""
            out = painted(sys.stdout) if coloured else sys.stdout
            shown = visible_coloured(text) if coloured else text
            out.write(f"{begin}{shown}{'' if opened else chr(10)}")
            self.is_open = opened

    def words(self, text: str, indent: int = 0) -> None:
        """Write a sentence; a terminal is shown it in lines that no word is broken by."""
        if sys.stdout.isatty() and not self.as_json:
            text = in_lines(text, indent)
        self.line(text)

    def record(self, value: object) -> None:
        """Write the answer as JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def entry(self, value: object) -> None:
        """Write one of many answers as a line of JSON, if that was asked for."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")

    def talk(self, text: str) -> None:
        """Say something beside the answer."""
        if not self.as_json:
            sys.stderr.write(f"{text}\n")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask before something is deleted; nobody is asked who cannot answer."""
        if yes or self.as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            return
        sys.stderr.write(f"{question} [y/N] ")
        sys.stderr.flush()
        if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
            raise typer.Abort

    def table(
        self,
        columns: Sequence[str],
        rows: Sequence[Sequence[str]],
        empty: str,
        *,
        every: bool = False,
    ) -> None:
        """Write rows under their columns, or a sentence when there are none.

        A terminal is shown the columns in which something stands, or `every` one.
        """
        if self.as_json:
            return
        if not rows:
            self.line(empty)
        elif sys.stdout.isatty():
            _rich_table(columns, rows, every=every)
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


def _rich_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, every: bool) -> None:
    from rich.console import Console  # noqa: PLC0415 - slow to load

    table = rich_table(columns, rows, every=every)
    Console(file=painted(sys.stdout)).print(table, soft_wrap=True)


@cache
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def instant(value: str | datetime) -> datetime:
    """Return an instant as records write it."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def wall(value: str | datetime | None, timezone: str) -> str:
    """Return an instant as the date and time of day in a zone, without naming the zone."""
    if value is None:
        return NOTHING
    return instant(value).astimezone(_zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")


def wall_named(value: str | datetime | None, timezone: str) -> str:
    """Return an instant with its weekday and the zone's abbreviation."""
    if value is None:
        return NOTHING
    local = instant(value).astimezone(_zone(timezone))
    return f"{local:%a %Y-%m-%d %H:%M:%S} {local.tzname()}"


def iso(value: datetime | None) -> str | None:
    """Return an instant as ISO 8601 in UTC."""
    return None if value is None else value.astimezone(UTC).isoformat()


def compact(value: object) -> str:
    """Return a JSON value on one line."""
    return json.dumps(value, ensure_ascii=False)
