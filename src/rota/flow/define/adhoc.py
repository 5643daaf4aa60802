"""Work that is done once: runs of a task that every space has for each kind."""

from __future__ import annotations

from rota.errors import Conflict
from rota.flow.define.tasks import put_task
from rota.model.tasks import Policy, Pool, Task, TaskKind
from rota.ports.store import Store
from rota.rules.permission import Caller

ORIGIN = "rota"
"""The origin of tasks that Rota brings along."""

NAMES = {TaskKind.AGENT: "once-agent", TaskKind.SCRIPT: "once-script"}


async def task_for(store: Store, caller: Caller, kind: TaskKind, space: str) -> Task:
    """Return the task whose runs are a space's work of one kind that is done once."""
    name = NAMES[kind]
    owner = await store.find_space(space)
    found = await store.find_task(owner.id, name)
    if found is None:
        return await put_task(
            store,
            caller,
            name,
            space=space,
            title=f"What is done once by {'an agent' if kind is TaskKind.AGENT else 'a program'}",
            kind=kind,
            route=kind.value,
            policy=Policy(pool=Pool.FOREGROUND),
            origin=ORIGIN,
        )
    if found.origin != ORIGIN:
        message = f"the task {name!r} has a name that Rota uses itself: rename it"
        raise Conflict(message)
    return found
