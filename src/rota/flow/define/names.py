"""Names: what may be one, and the task that has one."""

from __future__ import annotations

import re

from rota.errors import Invalid, NotFound
from rota.model.tasks import Task
from rota.model.texts import CONTROLS, INVISIBLE
from rota.ports.store import Store
from rota.rules.permission import Caller, check_space

NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.:/-]{0,127}")
NAME_ADVICE = "write 1 to 128 letters, digits and _ . : / -, such as daily-report"

LINE = re.compile(rf"[^{CONTROLS}{INVISIBLE}]*")
LINE_ADVICE = (
    "write it in one line, without control characters and without what cannot be seen or turns "
    "text round"
)


def check_line(field: str, text: str) -> None:
    """Refuse what would not be seen as it is, or would hide what stands beside it."""
    if not LINE.fullmatch(text):
        raise Invalid(field, text, LINE_ADVICE)


def check_name(field: str, name: str) -> None:
    """Refuse what could not be typed, listed or put in a path."""
    if not NAME.fullmatch(name):
        raise Invalid(field, name, NAME_ADVICE)


def check_new_name(name: str) -> None:
    """Refuse a new task a name that stands for the id of another one."""
    if name.isdigit():
        raise Invalid("name", name, "add a letter: a number alone is the id of a task")


async def get_task(store: Store, caller: Caller, name: str, space: str = "main") -> Task:
    """Return a task by name."""
    check_space(caller, space)
    found = await store.task_named(space, name)
    if found is None:
        await store.find_space(space)  # which may be what is not there
        raise NotFound("task", name, "see `rota task list`")
    return found
