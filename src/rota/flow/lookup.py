"""Find a task or a run that a caller may see; rules for names."""

from __future__ import annotations

import re

from rota.errors import Invalid, NotFound
from rota.model.runs import Run
from rota.model.tasks import Task
from rota.model.text import CONTROLS, INVISIBLE
from rota.rules.permissions import Caller, check_space, may_act_for
from rota.store.store import Store
from rota.store.tasks import find_space, find_task_in_space
from rota.store.views import get_run

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
    found = await store.read(find_task_in_space, space, name)
    if found is None:
        await store.read(find_space, space)  # which may be what is not there
        raise NotFound("task", name, "see `rota task list`")
    return found


async def find_run(store: Store, caller: Caller, run_id: int) -> Run:
    """Return a run by id; one of another space is not there at all."""
    run = await store.read(get_run, run_id)
    if run is None or not may_act_for(caller, run.space):
        raise run_not_found(run_id)
    return run


def run_not_found(run_id: int) -> NotFound:
    """Return what is said of a run that is not there, or not for the caller."""
    return NotFound("run", run_id, "see `rota runs`")
