"""Tables, times and JSON on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from zoneinfo import ZoneInfo

import typer

from rota.cli.terminal_filter import painted
from rota.model.text import visible, visible_coloured

if TYPE_CHECKING:
    from rich.text import Text


class Column(NamedTuple):
    """A column of a list: its heading, and a field of the record or a function of it."""

    heading: str
    value: str | Callable[[dict[str, Any]], object]
    is_time: bool = False

    def title(self, zone: str) -> str:
        """Return the heading, with the time zone of times."""
        return f"{self.heading} ({zone})" if self.is_time else self.heading

    def text(self, record: dict[str, Any], zone: str) -> str:
        """Return the cell of a record."""
        value = record[self.value] if isinstance(self.value, str) else self.value(record)
        if self.is_time:
            return wall_time(value if isinstance(value, str | datetime) else None, zone)
        if isinstance(value, bool):
            return "yes" if value else ""
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return "" if value is None else str(value)


class Display:
    """Writes the answer of a command to standard output."""

    def __init__(self, *, as_json: bool) -> None:
        self.as_json = as_json
        self.is_open = False
        """Whether the last line is not complete."""

    def line(
        self,
        text: str = "",
        *,
        opened: bool = False,
        goes_on: bool = False,
        coloured: bool = False,
    ) -> None:
        """Write a line, unless the output is JSON.

        An `opened` line is not complete: the next text starts a new line unless it `goes_on`.
        Terminal colors are kept if it is `coloured`.
        """
        if not self.as_json:
            begin = "\n" if self.is_open and not goes_on else ""
            out = painted(sys.stdout) if coloured else sys.stdout
            shown = visible_coloured(text) if coloured else text
            out.write(f"{begin}{shown}{'' if opened else chr(10)}")
            self.is_open = opened

    def words(self, text: str, indent: int = 0) -> None:
        """Write a sentence, wrapped to the width of a terminal."""
        if sys.stdout.isatty() and not self.as_json:
            text = in_lines(text, indent)
        self.line(text)

    def record(self, value: object) -> None:
        """Write the response, if the output is JSON."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")

    def entry(self, value: object) -> None:
        """Write one of several records as a line, if the output is JSON."""
        if self.as_json:
            sys.stdout.write(json.dumps(value, ensure_ascii=False) + "\n")

    def talk(self, text: str) -> None:
        """Write a line to standard error, unless the output is JSON."""
        if not self.as_json:
            sys.stderr.write(f"{text}\n")

    def confirm(self, question: str, *, yes: bool) -> None:
        """Ask for confirmation on a terminal; do nothing elsewhere."""
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
        """Write rows under their columns, or a sentence if there are none.

        On a terminal, empty columns are left out unless `every` one is wanted.
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
        """Write names with their values, without empty values."""
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
    """Return an instant from its text in a record."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def wall_time(value: str | datetime | None, timezone: str) -> str:
    """Return an instant as date and time in a zone."""
    if value is None:
        return NOTHING
    return instant(value).astimezone(_zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")


def wall_time_with_zone(value: str | datetime | None, timezone: str) -> str:
    """Return an instant as weekday, date, time and abbreviated zone."""
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


NOTHING = "-"
EMPTY = frozenset({"", NOTHING})
GAP = "  "
MIN_LAST_COLUMN = 40
"""Minimum width of a long last column; if there is less room, it moves to the next line."""
NARROWEST = 8
SHORT = 12
"""Maximum width of a last column that always stays on the same line."""
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


def rich_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int = 0, *, every: bool = False
) -> Text:
    """Return rows under their columns with colored states, as wide as the terminal.

    Empty columns are left out, unless `every` one is wanted. A last column without room moves to
    the next line.
    """
    import shutil  # noqa: PLC0415 - slow to load
    import textwrap  # noqa: PLC0415

    from rich.text import Text  # noqa: PLC0415

    width = width or shutil.get_terminal_size().columns
    lines = [[visible(cell) for cell in line] for line in (columns, *rows)]
    shown = [n for n in range(len(columns)) if every or any(row[n] not in EMPTY for row in rows)]
    lines = [[line[n] for n in shown] for line in lines]
    widths = _widths(lines, width)
    left = width - sum(widths[:-1]) - len(GAP) * len(widths[:-1])
    below = widths[-1] > left < MIN_LAST_COLUMN and len(widths) > 1
    text = Text(no_wrap=True)
    for number, line in enumerate(lines):
        *cells, last = line
        for cell, most in zip(cells, widths[:-1], strict=True):
            part = cell if len(cell) <= most else f"{cell[: most - 1]}…"
            text.append(
                f"{part:<{most}}{GAP}", style="dim" if number == 0 else STYLES.get(cell, "")
            )
        if below and number == 0:
            text.append(last if len(last) <= left else "", style="dim")
        elif below:
            if last not in EMPTY:
                text.append("\n" + textwrap.indent(_wrapped(last, width - 4), "    "))
        else:
            style = "dim" if number == 0 else STYLES.get(last, "")
            indent = " " * (width - left)
            text.append(_wrapped(last, left).replace("\n", f"\n{indent}"), style=style)
        text.append("\n")
    text.rstrip()
    return text


def _widths(lines: Sequence[Sequence[str]], width: int) -> list[int]:
    """Return the width of each column; texts are shortened if needed, numbers never."""
    widths = [max(len(line[n]) for line in lines) for n in range(len(lines[0]))]
    words = [any(c.isalpha() for line in lines[1:] for c in line[n]) for n in range(len(widths))]
    beside = widths[-1] if widths[-1] <= SHORT else 0
    while sum(widths[:-1]) + len(GAP) * (len(widths) - 1) + beside > width:
        of_words = [n for n in range(len(widths) - 1) if words[n] and widths[n] > NARROWEST]
        if not of_words:
            break
        widths[max(of_words, key=widths.__getitem__)] -= 1
    return widths


def _wrapped(text: str, width: int) -> str:
    import textwrap  # noqa: PLC0415 - slow to load

    return "\n".join(textwrap.wrap(text, max(width, NARROWEST), break_on_hyphens=False))


def in_lines(text: str, indent: int, width: int = 0) -> str:
    """Return a sentence wrapped to the width of the terminal, with indented later lines."""
    import shutil  # noqa: PLC0415 - slow to load
    import textwrap  # noqa: PLC0415

    return textwrap.fill(
        text,
        width or shutil.get_terminal_size().columns,
        subsequent_indent=" " * indent,
        replace_whitespace=False,
        drop_whitespace=True,
        break_long_words=False,
        break_on_hyphens=False,
    )
