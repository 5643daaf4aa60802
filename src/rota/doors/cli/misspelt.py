"""Commands that do not exist: what is meant by them, told fast because only pages are read."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from types import MappingProxyType

from rota.doors.cli.words import find_page
from rota.errors import shown

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
