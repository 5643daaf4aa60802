"""Finding what a request means: a task by name or by id, in the caller's space if none is given."""

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
    """Return a task; a number is its id, unless a task has it for a name."""
    try:
        return await get_task(office.store, office.caller, task, space_of(office, space))
    except NotFound as fault:
        found = await _by_id(office, task, space)
        if found is not None:
            return found
        if fault.noun == "space":
            raise NotFound("task", task, "see `rota task list`") from None
        raise


async def _by_id(office: Office, task: str, space: str | None) -> Task | None:
    if not (task.isascii() and task.isdigit() and len(task) < len(str(LARGEST_ID))):
        return None
    for found in await office.store.get_tasks([int(task)]):
        seen = may_act_for(office.caller, found.space) and space in {None, found.space}
        if found.deleted_at is None and seen:
            return found
    return None
