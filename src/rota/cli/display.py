"""Tables, times and JSON on the terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import typer

from rota.cli.terminal_filter import painted
from rota.model.text import visible, visible_coloured

if TYPE_CHECKING:
    from rich.text import Text


class Display:
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


def wall_time(value: str | datetime | None, timezone: str) -> str:
    """Return an instant as the date and time of day in a zone, without naming the zone."""
    if value is None:
        return NOTHING
    return instant(value).astimezone(_zone(timezone)).strftime("%Y-%m-%d %H:%M:%S")


def wall_time_with_zone(value: str | datetime | None, timezone: str) -> str:
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


NOTHING = "-"
EMPTY = frozenset({"", NOTHING})
GAP = "  "
ROOM = 40
"""How many characters a last column has beside the others, or else a line of its own."""
NARROWEST = 8
SHORT = 12
"""A last column of so many characters keeps its place beside the others."""
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
    """Return rows under their columns, with the colours of states, as wide as the terminal.

    Columns in which nothing stands are left out, unless `every` one is wanted.
    What the last one has no room for stands below.
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
    below = widths[-1] > left < ROOM and len(widths) > 1
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
    """Return how wide each column is: words are shortened, if they must be, and numbers never."""
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
    """Return a sentence in lines as wide as the terminal; those after the first are indented."""
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
