"""Todos: the list that Claude Code keeps of its own work, by which it tells how far it is."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from rota.agents.kit.lines import Json, items, mapping, string
from rota.agents.kit.text import LONGEST_NAME, one_line
from rota.model.said import Progress

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList"})
"""Those that are about the list: the first writes all of it, the others one task at a time."""
MOST_TODOS, MOST_CALLS = 1_000, 64


class _Todo(NamedTuple):
    subject: str
    status: str


class _Call(NamedTuple):
    name: str
    task: str
    todos: tuple[_Todo, ...]


class Todos:
    """What there is to do, from calls that were carried out: a refused one changes nothing."""

    def __init__(self) -> None:
        self._called: dict[str, _Call] = {}
        self._listed: dict[str, _Todo] = {}
        self._told: Progress | None = None

    def note(self, block: Json) -> bool:
        """Note a call until its result comes; return whether it is about the list."""
        name, given = _name(block, "name"), mapping(block, "input")
        if name not in TOOLS:
            return False
        todos = items(given, "todos") if name == "TodoWrite" else [given]
        call = _Call(name, _name(given, "taskId"), tuple(map(_todo, islice(todos, MOST_TODOS))))
        if len(self._called) < MOST_CALLS:
            self._called[_name(block, "id")] = call
        return True

    def results(self, record: Json) -> Iterator[Progress]:
        """Yield how far it is, if what a record brings back has changed that."""
        for block in items(record, "message", "content"):
            call = self._called.pop(_name(block, "tool_use_id"), None)
            if call is not None and block.get("is_error") is not True:
                self._change(call, mapping(record, "tool_use_result"))
                yield from self._progress()

    def _change(self, call: _Call, result: Json) -> None:
        match call.name:
            case "TodoWrite":
                self._listed = {str(nth): todo for nth, todo in enumerate(call.todos)}
            case "TaskCreate":
                self._put(_name(result, "task", "id"), *call.todos)
            case "TaskUpdate" if result.get("success") is True:
                self._put(call.task, *call.todos)
            case "TaskList":
                tasks = islice(items(result, "tasks"), MOST_TODOS)
                self._listed = {_name(task, "id"): _todo(task) for task in tasks}

    def _put(self, task: str, now: _Todo) -> None:
        """Put a task into the list; one of an earlier attempt counts once it is changed."""
        before = self._listed.get(task, _Todo("", ""))
        if now.status == "deleted":
            self._listed.pop(task, None)
        elif task in self._listed or len(self._listed) < MOST_TODOS:
            self._listed[task] = _Todo(now.subject or before.subject, now.status or before.status)

    def _progress(self) -> Iterator[Progress]:
        todos = self._listed.values()
        done = sum(todo.status == "completed" for todo in todos)
        now = next((todo.subject for todo in todos if todo.status == "in_progress"), "")
        progress = Progress(percent=100.0 * done / max(1, len(todos)), message=now)
        if todos and progress != self._told:
            self._told = progress
            yield progress


def _name(record: Json, *path: str) -> str:
    return string(record, *path, most=LONGEST_NAME)


def _todo(record: Json) -> _Todo:
    subject = one_line(string(record, "subject") or string(record, "content"))
    return _Todo(subject, _name(record, "status"))
