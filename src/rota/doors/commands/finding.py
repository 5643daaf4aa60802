"""Finding what a request means: a task by id or by name, in the caller's space if none is given."""

from __future__ import annotations

from rota.doors.commands.fields import LARGEST_ID
from rota.doors.kit.office import Office
from rota.errors import NotFound
from rota.flow.define.names import get_task
from rota.model.tasks import Task
from rota.rules.permission import check_space, may_act_for


def space_of(office: Office, space: str | None) -> str:
    """Return the space that is meant, which the caller may act for."""
    meant = space or office.caller.space
    check_space(office.caller, meant)
    return meant


async def task_of(office: Office, task: str, space: str | None) -> Task:
    """Return a task; a number is an id before it is a name."""
    if task.isascii() and task.isdigit():
        small = len(task) < len(str(LARGEST_ID))
        found = await office.store.get_tasks([int(task)]) if small else []
        seen = [one for one in found if one.deleted_at is None and _may_see(office, one, space)]
        if seen:
            return seen[0]
    try:
        return await get_task(office.store, office.caller, task, space_of(office, space))
    except NotFound as fault:
        if fault.noun == "space":
            raise NotFound("task", task, "see `rota task list`") from None
        raise


def _may_see(office: Office, task: Task, space: str | None) -> bool:
    return may_act_for(office.caller, task.space) and space in {None, task.space}
