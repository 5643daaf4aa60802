"""Commands by name: their help pages, suggestions and completion; loaded before Typer."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType

from rota.cli.help_cache import read_page, write_pages
from rota.errors import shown

WITH_VALUE = ("--home", "--store", "--url")
FLAGS = frozenset({"--json", "--debug"})
HELP = frozenset({"--help", "-h"})
END = "--"
COMPLETE = "__complete"
"""The hidden command for shell completion."""
MAX_DEPTH = 2
COMMANDS = MappingProxyType(
    {
        "up": "daemon",
        "once": "daemon",
        "add": "tasks",
        "ls": "tasks",
        "run": "runs",
        "logs": "logs",
        "attach": "attach",
        "artifacts": "runs",
        "why": "schedules",
        "status": "status",
        "watch": "status",
        "task": "tasks",
        "apply": "tasks",
        "runs": "runs",
        "cancel": "runs",
        "retry": "runs",
        "backfill": "runs",
        "questions": "runs",
        "answer": "runs",
        "say": "threads",
        "messages": "threads",
        "session": "sessions",
        "thread": "threads",
        "next": "schedules",
        "schedule": "schedules",
        "state": "task_state",
        "seen": "task_state",
        "space": "spaces",
        "key": "keys",
        "secret": "secrets",
        "limit": "spaces",
        "notification": "notifications",
        "budget": "budgets",
        "worker": "status",
        "machine": "status",
        "audit": "keys",
        "events": "logs",
        "sql": "database",
        "mcp": "mcp",
        "open": "daemon",
        "pause-all": "daemon",
        "resume-all": "daemon",
        "stop": "daemon",
        "start": "daemon",
        "check": "doctor",
        "verify": "database",
        "backup": "database",
        "restore": "database",
        "service": "installation",
        "doctor": "doctor",
        "completion": "installation",
    }
)
"""Every command with the module of this folder that holds it, in the order of the help."""
GROUPS = frozenset(
    {
        *("task", "session", "thread", "schedule", "state", "seen", "space", "key", "secret"),
        *("limit", "notification", "budget", "worker", "machine", "service"),
    }
)
"""The commands that only group others."""


def hoist(argv: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate the global options from the rest of a command line, up to `--`."""
    front: list[str] = []
    rest: list[str] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == END:
            rest += [word, *words]
            break
        if word in FLAGS or word.startswith(tuple(f"{name}=" for name in WITH_VALUE)):
            front.append(word)
        elif word in WITH_VALUE:
            front += [word, *words[:1]]
            del words[:1]
        else:
            rest.append(word)
    return front, rest


Renderer = Callable[[str], Mapping[str, str]]
"""Returns the pages of a command and those below it, or of all for an empty name."""


def find_page(words: Sequence[str], render: Renderer) -> str | None:
    """Return the help page that a command line requests, if it exists."""
    plain = words[: words.index(END)] if END in words else words
    leading = [word for word in plain if not word.startswith("-")][:MAX_DEPTH]
    asked = not HELP.isdisjoint(plain)
    if not asked and (len(words) > 1 or leading != list(words)):
        return None
    if leading and leading[0] not in (COMMANDS if asked else GROUPS):
        return None
    page = load_page(leading, render) if leading[1:] and leading[0] in GROUPS else None
    return page or load_page(leading[:1], render)


def load_page(words: Sequence[str], render: Renderer) -> str | None:
    """Return the page of a command, from the cache or else rendered; None if there is none."""
    found = read_page(_typed(words))
    if found is None and read_page(_typed(words[:1])) is None:
        pages = render(words[0] if words else "")
        write_pages(pages)
        return pages.get(_typed(words))
    return found


def _typed(words: Sequence[str]) -> str:
    return " ".join(["rota", *words])


USAGE = 2
MAX_SUGGESTIONS = 3
MIN_SIMILARITY = 0.7
"""Similarity from which a command is suggested for an unknown word."""
_COMMAND = re.compile(r"^  ([a-z-]+)(?:  |$)", re.MULTILINE)

SUGGESTIONS = MappingProxyType(
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
"""Suggestions for commands of other programs."""
VERB_SUGGESTIONS = MappingProxyType(
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
"""Suggestions for verbs after a noun."""
RUN_SUGGESTIONS = MappingProxyType({"stop": "cancel", "start": "run"})
"""Suggestions for commands about the daemon that are used with the name of a run or task."""


def refusal(words: Sequence[str], render: Renderer, *, cached: bool = False) -> str | None:
    """Return the error about a command that does not exist; None if it does.

    With `cached`, a command of a group is assumed to exist if the group's page is not cached.
    """
    typed = [word for word in words[:2] if not word.startswith("-")]
    if not typed or words[0] != typed[0]:
        return None
    first, *rest = typed
    if first not in COMMANDS:
        return _sentence(first, _suggest(first, render))
    if first in RUN_SUGGESTIONS and rest:
        return _sentence(" ".join(typed), [f"{RUN_SUGGESTIONS[first]} {rest[0]}"])
    if first not in GROUPS or not rest:
        return None
    page = read_page(_typed([first])) if cached else load_page([first], render)
    below = commands_of(page or "")
    if not below or rest[0] in below:
        return None
    found = [word for word in VERB_SUGGESTIONS.get(rest[0], ()) if word in below][:1]
    return _sentence(
        " ".join(typed), [f"{first} {each}" for each in found or _similar(rest[0], below)]
    )


def report_error(error: dict[str, str], exit_code: int, *, as_json: bool) -> int:
    """Write an error to standard error, and return the exit code."""
    if as_json:
        sys.stderr.write(json.dumps({"error": error}, ensure_ascii=False) + "\n")
    else:
        sys.stderr.write(f"rota: {error['message']}\n")
    return exit_code


def _sentence(typed: str, suggested: Sequence[str]) -> str:
    named = " or ".join(f"'rota {each}'" for each in suggested[:MAX_SUGGESTIONS])
    noun = typed.partition(" ")[0] if " " in typed else ""
    advice = f"did you mean {named}?" if named else f"see 'rota {noun}{noun and ' '}--help'"
    return f"no such command {shown(typed)}: {advice}"


def _suggest(word: str, render: Renderer) -> Sequence[str]:
    """Return suggestions for an unknown command: by meaning, by noun, or by similarity."""
    if word in SUGGESTIONS:
        return SUGGESTIONS[word]
    groups = [noun for noun in COMMANDS if noun in GROUPS]
    pages = {noun: read_page(_typed([noun])) for noun in groups}
    if None in pages.values():
        rendered = render("")
        write_pages(rendered)
        pages = {noun: rendered[_typed([noun])] for noun in groups}
    below = [f"{noun} {word}" for noun in groups if word in commands_of(pages[noun] or "")]
    return below or _similar(word, list(COMMANDS))


def _similar(word: str, known: Sequence[str]) -> list[str]:
    from difflib import get_close_matches  # noqa: PLC0415 - only for what is misspelt

    return get_close_matches(word, known, 1, MIN_SIMILARITY)


def commands_of(page: str) -> list[str]:
    """Return the commands listed on a page."""
    return _COMMAND.findall(page.partition("\nCommands:\n")[2])


TASK = "TASK"
MAX_NAMES = 1_000
_OPTION = re.compile(r"^ +(?:(-[a-z]), )?(--?[a-z-]+)(?: ([A-Z]\S*))?", re.MULTILINE)
_PLACES = re.compile(r"\[OPTIONS\](.*)")


def candidates(argv: Sequence[str], render: Renderer) -> list[str]:
    """Return completions of the last word of a command line."""
    front, words = hoist(argv[:-1])
    prefix = argv[-1] if argv else ""
    page, rest = _page_of(words, render)
    return sorted(
        {word for word in _possible(page, rest, prefix, front) if word.startswith(prefix)}
    )


def _page_of(words: list[str], render: Renderer) -> tuple[str, list[str]]:
    """Return the page of the command in some words, and the words after it."""
    for depth in range(min(len(words), MAX_DEPTH), 0, -1):
        page = find_page([*words[:depth], "--help"], render)
        if page is not None and _usage(page, words[:depth]):
            return page, words[depth:]
    return find_page([], render) or "", words


def _usage(page: str, words: list[str]) -> bool:
    return page.startswith(f"Usage: rota {' '.join(words)} ")


def _possible(page: str, rest: list[str], prefix: str, front: list[str]) -> Iterator[str]:
    if prefix.startswith("-"):
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
    cli = CliContext(
        GlobalOptions(
            home=values.get("--home"), store=values.get("--store"), url=values.get("--url")
        )
    )
    try:
        for task in cli.call("GET", "/v1/tasks", {"limit": MAX_NAMES})["tasks"]:
            yield task["name"]
    finally:
        cli.close()
