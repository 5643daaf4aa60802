"""What a task is doing: running, waiting for an answer, standing in the queue, or nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rota.model.ids import TaskId
from rota.model.runs import Question, Run
from rota.model.states import Place, RunState
from rota.model.views import RunFilter
from rota.ports.store import Store

FREE = "free"
BY_WEIGHT = (RunState.RUNNING, RunState.WAITING, RunState.QUEUED)
"""What a task with several runs is said to do: the first of these that one of them does."""


@dataclass(frozen=True, slots=True)
class Activity:
    """What a task is doing, and with which run.

    `ahead` counts the ready runs of the same pool and space that go before a ready one; it is not
    known for one that waits for its time or for its lane.
    """

    state: str = FREE
    run: Run | None = None
    ahead: int | None = None
    question: Question | None = None


async def view_activity(store: Store, task_id: TaskId, counts: Mapping[str, int]) -> Activity:
    """Return what a task is doing; `counts` says how many of its runs stand in which state."""
    for state in BY_WEIGHT:
        if counts.get(state.value):
            found = await store.list_runs(RunFilter(task_id=task_id, state=state, limit=1))
            if found:
                return await _view_run(store, found[0])
    return Activity()


async def _view_run(store: Store, run: Run) -> Activity:
    ahead = question = None
    if run.place is Place.READY:
        ahead = await store.count_ahead(run.id)
    elif run.state is RunState.WAITING:
        asked = [q for q in await store.list_questions([run.id]) if q.answered_at is None]
        question = asked[-1] if asked else None
    return Activity(run.state.value, run, ahead, question)
