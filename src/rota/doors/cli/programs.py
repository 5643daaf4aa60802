"""Programs that tasks name and that are not to be found; nothing is started to find out."""

from __future__ import annotations

import shutil
from pathlib import Path

from rota.errors import RotaError
from rota.model.spaces import Role
from rota.model.tasks import Task, TaskKind
from rota.ports.store import Store
from rota.rules.programs import is_call
from rota.rules.sites import site_of

PROGRAM = "command"
"""The agent that is any program."""


async def programs_missing(
    store: Store, home: Path, usual: str, path: str
) -> dict[str, list[Task]]:
    """Return which programs cannot be found, each with the enabled tasks that name it.

    What runs behind walls has another view of the machine, and is left out.
    """
    roles = {space.name: space.role for space in await store.list_spaces()}
    found: dict[str, list[Task]] = {}
    for task in await store.list_tasks(None):
        program = _program(task, usual) if task.enabled else None
        if program is None or _walled(task, roles.get(task.space, Role.MEMBER)):
            continue
        folder = home / "spaces" / task.space / "work" / str(task.spec.get("folder") or ".")
        if shutil.which(program, path=path) is None and not (folder / program).is_file():
            found.setdefault(program, []).append(task)
    return found


def _program(task: Task, usual: str) -> str | None:
    """Return the name that is looked up; None for what is none, or is said by a path."""
    words = task.spec.get("command")
    named = str(words[0]) if isinstance(words, list | tuple) and words else ""
    if task.kind is TaskKind.AGENT:
        agent = str(task.spec.get("agent") or usual)
        named = named if agent == PROGRAM else agent
    elif task.kind is TaskKind.PYTHON or task.spec.get("shell") or is_call(named):
        return None
    return named if named and "/" not in named else None


def _walled(task: Task, role: Role) -> bool:
    try:
        return site_of(task.spec, role).isolated
    except RotaError:  # its runs are refused with the reason
        return True
