"""Runs as people look at them."""

from __future__ import annotations

from rota.flow.define.names import get_task
from rota.flow.define.runs import no_run
from rota.model.ids import RunId
from rota.model.runs import Question, Run
from rota.model.states import RunState
from rota.model.views import RunFilter, RunView
from rota.ports.store import Store
from rota.rules.permission import Caller, may_act_for, seen_space

MOST_OPEN = 1_000
MOST_OUTPUT = 200
MOST_DELIVERIES = 100


async def list_runs(
    store: Store,
    caller: Caller,
    *,
    task: str | None = None,
    space: str | None = None,
    state: RunState | None = None,
    before: RunId | None = None,
    limit: int = 50,
    quiet: bool = True,
) -> list[Run]:
    """Return runs, newest first; a task is looked up in the space, `main` if none is given.

    Those whose gate woke nobody are left out unless they are wanted.
    """
    space = seen_space(caller, space)
    owner = None if space is None else (await store.find_space(space)).id
    task_id = None
    if task is not None:
        task_id = (await get_task(store, caller, task, space or "main")).id
    wanted = RunFilter(
        task_id=task_id, space_id=owner, state=state, before=before, limit=limit, quiet=quiet
    )
    return await store.list_runs(wanted)


async def view_run(store: Store, caller: Caller, run_id: int) -> RunView:
    """Return one run with everything that belongs to it; one of another space is not there."""
    view = await store.view_run(run_id, MOST_OUTPUT, MOST_DELIVERIES)
    if view is None or not may_act_for(caller, view.run.space):
        raise no_run(run_id)
    return view


async def open_questions(store: Store, caller: Caller) -> list[tuple[Question, Run]]:
    """Return the questions nobody has answered yet, oldest first, each with its run."""
    waiting = await list_runs(store, caller, state=RunState.WAITING, limit=MOST_OPEN)
    runs = {run.id: run for run in waiting}
    asked = await store.list_questions(list(runs))
    return [(q, runs[q.run_id]) for q in asked if q.answered_at is None]
