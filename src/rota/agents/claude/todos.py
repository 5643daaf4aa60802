"""The calls by which Claude Code keeps the list of its work."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from rota.agents.kit.lines import Json, items, mapping, string
from rota.agents.kit.text import LONGEST_NAME
from rota.agents.kit.todos import MOST_TODOS, Todo, Todos, todo
from rota.model.said import Progress

TOOLS = frozenset({"TodoWrite", "TaskCreate", "TaskUpdate", "TaskList"})
"""Those that are about the list: the first writes all of it, the others one task at a time."""
MOST_CALLS = 64


class _Call(NamedTuple):
    name: str
    task: str
    todos: tuple[Todo, ...]


class TodoCalls:
    """What there is to do, from calls that were carried out: a refused one changes nothing."""

    def __init__(self) -> None:
        self._called: dict[str, _Call] = {}
        self._todos = Todos()

    def note(self, block: Json) -> bool:
        """Note a call until its result comes; return whether it is about the list."""
        name, given = _name(block, "name"), mapping(block, "input")
        if name not in TOOLS:
            return False
        todos = items(given, "todos") if name == "TodoWrite" else [given]
        call = _Call(name, _name(given, "taskId"), tuple(map(todo, islice(todos, MOST_TODOS))))
        if len(self._called) < MOST_CALLS:
            self._called[_name(block, "id")] = call
        return True

    def results(self, record: Json) -> Iterator[Progress]:
        """Yield how far it is, if what a record brings back has changed that."""
        for block in items(record, "message", "content"):
            call = self._called.pop(_name(block, "tool_use_id"), None)
            if call is not None and block.get("is_error") is not True:
                self._change(call, mapping(record, "tool_use_result"))
                yield from self._todos.progress()

    def _change(self, call: _Call, result: Json) -> None:
        """Change the list; a task of an earlier attempt counts once it is changed."""
        match call.name:
            case "TodoWrite":
                self._todos.put_all((str(nth), one) for nth, one in enumerate(call.todos))
            case "TaskCreate":
                self._todos.put(_name(result, "task", "id"), *call.todos)
            case "TaskUpdate" if result.get("success") is True:
                self._todos.put(call.task, *call.todos)
            case "TaskList":
                tasks = items(result, "tasks")
                self._todos.put_all((_name(task, "id"), todo(task)) for task in tasks)


def _name(record: Json, *path: str) -> str:
    return string(record, *path, most=LONGEST_NAME)
