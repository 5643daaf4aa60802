"""Tasks that are named by their id, told by their name."""

from __future__ import annotations

from rota.doors.cli.desk import Desk
from rota.doors.cli.values import maybe_run


def real_name(desk: Desk, task: str, space: str | None) -> str:
    """Return the name of the task that a word stands for."""
    if maybe_run(task) is None:
        return task
    return str(desk.task("GET", task, said={"space": space})["name"])
