"""How a bug is planted: a query, a function or the schema is replaced while a test looks.

The engine has no switches for bugs. Whatever is replaced here is put back when the look is over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from rota.rules import plans
from rota.store.sqlite.queries import load_sqlite_queries
from rota.timing import timetable, zones
from tests.tools.simulation import database

Plant = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bug:
    """A bug that others had, or Rota itself before it was found here."""

    name: str
    seen_at: str
    says: str
    plant: Plant
    check: Callable[[], str | None] | None = None
    """What catches it where that is not the simulation: says what is wrong, or None."""
    caught_by: str = "simulation"
    rare: bool = False
    """Whether finding it took more than 30 seeds: the short form leaves it to the whole one."""


BUGS: list[Bug] = []


def bug(
    name: str, seen_at: str, says: str, **more: Any
) -> Callable[[Callable[[], Iterator[None]]], Plant]:
    """Keep a bug in the zoo; the function that follows plants it."""

    def keep(function: Callable[[], Iterator[None]]) -> Plant:
        plant = contextmanager(function)
        BUGS.append(Bug(name=name, seen_at=seen_at, says=says, plant=plant, **more))
        return plant

    return keep


@contextmanager
def replaced(holder: object, name: str, value: object) -> Iterator[None]:
    """Put something in the place of an attribute."""
    kept = getattr(holder, name)
    setattr(holder, name, value)
    try:
        yield
    finally:
        setattr(holder, name, kept)


@contextmanager
def queries(**changed: str | tuple[str, str]) -> Iterator[None]:
    """Give queries another text, or another text in a part of them."""

    def load() -> Mapping[str, str]:
        found = dict(load_sqlite_queries())
        for name, change in changed.items():
            if isinstance(change, tuple):
                if change[0] not in found[name]:
                    message = f"the query {name} has no {change[0]!r} any more"
                    raise LookupError(message)
                found[name] = found[name].replace(*change)
            else:
                found[name] = change
        return found

    with replaced(database, "load_sqlite_queries", load):
        yield


@contextmanager
def schema(*statements: str) -> Iterator[None]:
    """Change the schema of every simulated database."""
    connected = database._connected

    def changed() -> Any:
        connection = connected()
        for statement in statements:
            connection.execute(statement)
        return connection

    with replaced(database, "_SPARE", []), replaced(database, "_connected", changed):
        yield


@contextmanager
def several(*plants: AbstractContextManager[None]) -> Iterator[None]:
    """Plant what only together makes the bug."""
    with ExitStack() as stack:
        for plant in plants:
            stack.enter_context(plant)
        yield


@contextmanager
def time_forgotten() -> Iterator[None]:
    """Let timing compute everything anew, before and after."""
    _forget()
    try:
        yield
    finally:
        _forget()


def _forget() -> None:
    for remembered in (
        timetable.timetable,
        timetable.slot_source,
        zones.zone_clock,
        plans._read_rule,
        plans._first_slots_between,
        plans._all_slots_between,
        plans._next_after,
    ):
        remembered.cache_clear()
