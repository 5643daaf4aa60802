"""The words of a command line, before anything heavy is loaded."""

from __future__ import annotations

from collections.abc import Sequence
from os import path

WITH_VALUE = ("--home", "--store", "--url")
ALONE = frozenset({"--json", "--debug"})
HELP = frozenset({"--help", "-h"})
END = "--"
COMPLETE = "__complete"
"""What a shell asks with, to complete a command line."""
PAGES = path.join(path.dirname(__file__), "pages")  # noqa: PTH118, PTH120 - pathlib is slow to load
DEEPEST = 2


def hoist(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Part the options that may stand anywhere from the rest of a command line.

    What comes after a lone `--` is left as it is.
    """
    front: list[str] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == END:
            rest += [word, *words]
            break
        if word in ALONE or word.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            front.append(word)
        elif word in WITH_VALUE:
            front += [word, *words[:1]]
            del words[:1]
        else:
            rest.append(word)
    return front, rest


def page_name(path_words: Sequence[str]) -> str:
    """Return the name of the page of a command."""
    return "-".join(["rota", *path_words]) + ".txt"


def find_page(words: Sequence[str]) -> str | None:
    """Return the help page that a command line asks for, if it asks for one that exists."""
    plain = words[: words.index(END)] if END in words else words
    leading = [word for word in plain if not word.startswith("-")][:DEEPEST]
    asked = not HELP.isdisjoint(plain)
    if not asked and (len(words) > 1 or leading != list(words)):
        return None
    for depth in range(len(leading), -1, -1):
        page = _read(page_name(leading[:depth]))
        if page is not None:
            unknown = depth == 0 and leading
            return None if unknown or not (asked or _is_group(page)) else page
    return None


def _is_group(page: str) -> bool:
    return "\nCommands:\n" in page


def _read(name: str) -> str | None:
    if "/" in name or "\0" in name:
        return None
    try:
        with open(path.join(PAGES, name), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            return file.read()
    except OSError:
        return None
