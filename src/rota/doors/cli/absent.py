"""A home or a database that is looked for and is not there: only what makes something makes it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

from rota.doors.cli.here import Here
from rota.errors import Unavailable
from rota.wiring.addresses import hidden_password
from rota.wiring.compose import database_exists
from rota.wiring.settings import Settings
from rota.wiring.surroundings import PREFIX, home_was_named

READS = "GET"


class Absence(NamedTuple):
    """What is not there, and whether somebody has named it."""

    sentence: str
    named: bool


def find_absence(settings: Settings, *, home: str | None, store: str | None) -> Absence | None:
    """Return what is not there of what was typed or set; None if there is a database."""
    if database_exists(settings):
        return None
    if "store" in settings.given:
        what = f"no database at {hidden_password(settings.store)}"
        name = "--store" if store else f"{PREFIX}STORE, or `store` in {settings.file}"
        return Absence(f"there is {what}: `rota up` makes one, or correct {name}", named=True)
    sentence = f"there is no Rota in {settings.home}: `rota up` makes one"
    if not home_was_named(home):
        return Absence(sentence, named=False)
    return Absence(f"{sentence}, or correct {'--home' if home else f'{PREFIX}HOME'}", named=True)


class Nothing(Here):
    """The usual home before there is one: nothing is in it, and nothing can be changed."""

    def __init__(self, settings: Settings, sentence: str) -> None:
        super().__init__(replace(settings, store="memory:"))
        self._sentence = sentence

    def call(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Carry out a command that reads; refuse any other."""
        if method != READS:
            raise Unavailable(self._sentence)
        return super().call(method, path, said, dry_run=dry_run)
