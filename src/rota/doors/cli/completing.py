"""What may come next on a command line: read from the help pages, names asked of the daemon."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from rota.doors.cli.misspelt import commands_of
from rota.doors.cli.words import DEEPEST, find_page, hoist

TASK = "TASK"
MOST_NAMES = 1_000
_OPTION = re.compile(r"^ +(?:(-[a-z]), )?(--?[a-z-]+)(?: ([A-Z]\S*))?", re.MULTILINE)
_PLACES = re.compile(r"\[OPTIONS\](.*)")


def candidates(argv: Sequence[str]) -> list[str]:
    """Return what the last word of a command line may become."""
    front, words = hoist(argv[:-1])
    begun = argv[-1] if argv else ""
    page, rest = _page_of(words)
    return sorted({word for word in _possible(page, rest, begun, front) if word.startswith(begun)})


def _page_of(words: list[str]) -> tuple[str, list[str]]:
    """Return the page of the command that words lead to, and the words after it."""
    for depth in range(min(len(words), DEEPEST), 0, -1):
        page = find_page([*words[:depth], "--help"])
        if page is not None and _usage(page, words[:depth]):
            return page, words[depth:]
    return find_page([]) or "", words


def _usage(page: str, words: list[str]) -> bool:
    return page.startswith(f"Usage: rota {' '.join(words)} ")


def _possible(page: str, rest: list[str], begun: str, front: list[str]) -> Iterator[str]:
    if begun.startswith("-"):
        yield from (option for _, option, _ in _options(page))
        return
    takes = {option: value for _, option, value in _options(page)}
    if rest and takes.get(rest[-1]):
        if takes[rest[-1]] == TASK:
            yield from _names(front)
        return
    commands = commands_of(page)
    if commands:
        yield from commands
        return
    given = sum(
        1
        for n, word in enumerate(rest)
        if not word.startswith("-") and not (n and takes.get(rest[n - 1]))
    )
    found = _PLACES.search(page.partition("\n\n")[0])
    places = (found[1] if found else "").split()
    if given < len(places) and TASK in re.split(r"[\[\]{}|]", places[given]):
        yield from _names(front)


def _options(page: str) -> list[tuple[str, str, str]]:
    return _OPTION.findall(page.partition("\nOptions:\n")[2].partition("\nCommands:")[0])


def _names(front: list[str]) -> Iterator[str]:
    """Yield the names of the tasks."""
    from rota.doors.cli.desk import Desk, Invocation  # noqa: PLC0415 - slow to load

    values = dict(pairwise(front))
    desk = Desk(
        Invocation(home=values.get("--home"), store=values.get("--store"), url=values.get("--url"))
    )
    try:
        for task in desk.call("GET", "/v1/tasks", {"limit": MOST_NAMES})["tasks"]:
            yield task["name"]
    finally:
        desk.close()
