"""Lookup of tasks and runs that a caller may see; rules for names."""

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
LINE_ADVICE = "write one line without control characters, invisible characters and direction marks"


def check_line(field: str, text: str) -> None:
    """Refuse text with invisible characters or characters that change the display."""
    if not LINE.fullmatch(text):
        raise Invalid(field, text, LINE_ADVICE)


def check_name(field: str, name: str) -> None:
    """Refuse a name that cannot be typed, listed or put in a path."""
    if not NAME.fullmatch(name):
        raise Invalid(field, name, NAME_ADVICE)


async def get_task(store: Store, caller: Caller, name: str, space: str = "main") -> Task:
    """Return a task by name."""
    check_space(caller, space)
    found = await store.read(find_task_in_space, space, name)
    if found is None:
        await store.read(find_space, space)  # raises NotFound for an unknown space
        raise NotFound("task", name, "see `rota task list`")
    return found


async def find_run(store: Store, caller: Caller, run_id: int) -> Run:
    """Return a run by id; runs of other spaces are not found."""
    run = await store.read(get_run, run_id)
    if run is None or not may_act_for(caller, run.space):
        raise run_not_found(run_id)
    return run


def run_not_found(run_id: int) -> NotFound:
    """Return the error for a run that does not exist or is not visible."""
    return NotFound("run", run_id, "see `rota runs`")
