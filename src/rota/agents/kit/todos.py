"""Todos: the list that an agent keeps of its own work, by which it tells how far it is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from rota.agents.kit.lines import Json, string
from rota.agents.kit.text import LONGEST_NAME, one_line
from rota.model.said import Progress

MOST_TODOS = 1_000


class Todo(NamedTuple):
    """One thing to do, and how it stands, by the agent's word for it."""

    subject: str
    status: str


def todo(record: Json) -> Todo:
    """Return what an entry of a list says."""
    subject = one_line(string(record, "subject") or string(record, "content"))
    return Todo(subject, string(record, "status", most=LONGEST_NAME))


class Todos:
    """What there is to do; tells how far that is only when it has changed."""

    def __init__(self) -> None:
        self._listed: dict[str, Todo] = {}
        self._told: Progress | None = None

    def put(self, name: str, now: Todo) -> None:
        """Put an entry into the list; what it does not say stays as it was."""
        before = self._listed.get(name, Todo("", ""))
        if now.status == "deleted":
            self._listed.pop(name, None)
        elif name in self._listed or len(self._listed) < MOST_TODOS:
            self._listed[name] = Todo(now.subject or before.subject, now.status or before.status)

    def put_all(self, named: Iterable[tuple[str, Todo]]) -> None:
        """Put a whole list in the place of this one."""
        self._listed = dict(islice(named, MOST_TODOS))

    def progress(self) -> Iterator[Progress]:
        """Yield how far it is, unless that is told already or nothing is listed."""
        todos = self._listed.values()
        done = sum(one.status == "completed" for one in todos)
        now = next((one.subject for one in todos if one.status == "in_progress"), "")
        progress = Progress(percent=100.0 * done / max(1, len(todos)), message=now)
        if todos and progress != self._told:
            self._told = progress
            yield progress
