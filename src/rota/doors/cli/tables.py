"""Tables on a terminal: nothing is broken within a word, and what is long gets room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rota.model.texts import visible

if TYPE_CHECKING:
    from rich.text import Text

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
