"""Help pages, suggestions and completion; loaded before Typer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from os import path
from types import MappingProxyType

from rota.errors import shown

WITH_VALUE = ("--home", "--store", "--url")
ALONE = frozenset({"--json", "--debug"})
HELP = frozenset({"--help", "-h"})
END = "--"
COMPLETE = "__complete"
"""What a shell asks with, to complete a command line."""
PAGES = path.join(path.dirname(__file__), "pages")  # noqa: PTH118, PTH120 - pathlib is slow to load
MAX_DEPTH = 2


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
    leading = [word for word in plain if not word.startswith("-")][:MAX_DEPTH]
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


USAGE = 2
MOST_MEANT = 3
LEAST_ALIKE = 0.7
"""How alike two words are at least, of which one may have been meant by the other."""
_COMMAND = re.compile(r"^  ([a-z-]+)(?:  |$)", re.MULTILINE)

MEANT = MappingProxyType(
    {
        "config": ("check",),
        "create": ("task create", "add"),
        "delete": ("task delete",),
        "edit": ("task edit",),
        "help": ("--help",),
        "history": ("runs",),
        "kill": ("cancel",),
        "list": ("ls",),
        "new": ("task create", "add"),
        "pause": ("task pause", "pause-all"),
        "ps": ("runs",),
        "remove": ("task delete",),
        "resume": ("task enable", "resume-all"),
        "rm": ("task delete",),
        "show": ("task show", "run"),
        "tail": ("logs -f",),
        "tasks": ("ls",),
    }
)
"""What is meant by words that other programs have."""
OTHER_WORDS = MappingProxyType(
    {
        "add": ("create", "set", "register"),
        "change": ("edit", "set"),
        "del": ("delete", "remove"),
        "delete": ("remove", "revoke"),
        "edit": ("set",),
        "get": ("show", "list"),
        "ls": ("list",),
        "new": ("create", "set"),
        "remove": ("delete", "revoke"),
        "resume": ("enable",),
        "rm": ("delete", "remove", "revoke"),
        "start": ("run",),
        "update": ("edit", "set"),
    }
)
"""What is meant by a word behind a noun, where the noun has it."""
OF_A_RUN = MappingProxyType({"stop": "cancel", "start": "run"})
"""Commands about the daemon that take no name, and what is meant by them with one."""


def refusal(words: Sequence[str]) -> str | None:
    """Return what to say of a command that does not exist; None if it does."""
    said = [word for word in words[:2] if not word.startswith("-")]
    if not said or words[0] != said[0]:
        return None
    first, *rest = said
    page = _page(first)
    if page is None:
        return _sentence(first, _meant(first))
    if first in OF_A_RUN and rest:
        return _sentence(" ".join(said), [f"{OF_A_RUN[first]} {rest[0]}"])
    below = commands_of(page)
    if not below or not rest or rest[0] in below:
        return None
    found = [word for word in OTHER_WORDS.get(rest[0], ()) if word in below][:1]
    return _sentence(
        " ".join(said), [f"{first} {each}" for each in found or _alike(rest[0], below)]
    )


def tell(error: dict[str, str], exit_code: int, *, as_json: bool) -> int:
    """Tell what went wrong in one sentence, and return the exit code."""
    if as_json:
        sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"rota: {error['message']}\n")
    return exit_code


def _sentence(said: str, meant: Sequence[str]) -> str:
    named = " or ".join(f"'rota {each}'" for each in meant[:MOST_MEANT])
    noun = said.partition(" ")[0] if " " in said else ""
    advice = f"did you mean {named}?" if named else f"see 'rota {noun}{noun and ' '}--help'"
    return f"no such command {shown(said)}: {advice}"


def _meant(word: str) -> Sequence[str]:
    """Return what may be meant by a command: by its meaning, its noun or its letters."""
    if word in MEANT:
        return MEANT[word]
    known = commands_of(_page() or "")
    below = [f"{noun} {word}" for noun in known if word in commands_of(_page(noun) or "")]
    return below or _alike(word, known)


def _alike(word: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - only for what is misspelt

    return get_close_matches(word, known, 1, LEAST_ALIKE)


def _page(*words: str) -> str | None:
    return find_page([*words, "--help"])


def commands_of(page: str) -> list[str]:
    """Return the commands that a page lists."""
    return _COMMAND.findall(page.partition("\nCommands:\n")[2])


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
    for depth in range(min(len(words), MAX_DEPTH), 0, -1):
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
    from rota.cli.context import CliContext, GlobalOptions  # noqa: PLC0415 - slow to load

    values = dict(pairwise(front))
    desk = CliContext(
        GlobalOptions(
            home=values.get("--home"), store=values.get("--store"), url=values.get("--url")
        )
    )
    try:
        for task in desk.call("GET", "/v1/tasks", {"limit": MOST_NAMES})["tasks"]:
            yield task["name"]
    finally:
        desk.close()
