"""Rescue: what nobody works on any more goes back, and what ran out of time ends.

Each step only changes what it still recognises: settlements carry the state and epoch that were
read.
"""

from __future__ import annotations

from rota.flow.settle import settle_runs
from rota.model.beats import Overdue
from rota.model.deliveries import DeliveryState
from rota.model.instants import ALWAYS
from rota.model.outcomes import Expired, Failed, Lost, Outcome, Report
from rota.model.runs import OpenRun, Question
from rota.model.settlements import Settlement
from rota.model.states import RunState
from rota.ports.clock import Random
from rota.ports.store import Store
from rota.rules.settlement import answer_by_default

MOST = 500
NEVER = 0
"""An instant by which no promise has ended."""
RESTORED = "it was going on when the backup was taken that has been restored"
WORKER_GONE = "its worker stopped renewing its lease"
WORKER_BUSY = "its worker renews its lease but tells nothing of it: something may block its loop"
KEEPER_ALONE = "its worker is gone; its keeper may go on alone until its home comes back"
SENDER_GONE = "the sender vanished while sending"
OUT_OF_QUEUE_TIME = "it waited in the queue past its deadline"
OUT_OF_ANSWER_TIME = "nobody answered its question in time"
NO_ANSWER = "waiting_for_user_timeout"
"""The code of a run that nobody answered."""
BY_DEFAULT = "default"
"""Who has answered a question that nobody answered, and that said what counts then."""
NOBODY_DECIDED = "its worker was lost, and nobody said in time whether to run it again"


async def rescue(
    store: Store,
    chance: Random,
    *,
    fence: bool,
    now: int | None = None,
    watched: int = ALWAYS,
    promise: int = 0,
) -> int:
    """Give back the runs of workers that are gone; return how many.

    `fence` is false where a lock already tells who is alive. `watched` is for how many microseconds
    the time was seen to go evenly up to `now`: no longer lease is judged by it, and no promise of a
    home, which lasts for `promise`.
    """
    now = store.now() if now is None else now
    if fence:
        await store.fence(now, watched)
    lost = await store.lost_runs(MOST, now if watched >= promise else NEVER)
    reports = [
        (run, Report(outcome=Lost(reason=RESTORED if run.restored else WORKER_GONE)))
        for run in lost
    ]
    settled = await settle_runs(store, reports, chance)
    for delivery in await store.orphaned_deliveries(MOST):
        await store.mark_delivery(delivery, DeliveryState.UNKNOWN, SENDER_GONE, store.now())
    return sum(settled)


async def listen(store: Store, patience: int, before: frozenset[Overdue]) -> frozenset[Overdue]:
    """Note who has not been told of for two heartbeats, and why; return who is overdue now.

    Only who was overdue at the look before, and has not been heard of since, counts: a clock that
    leaps makes everybody overdue until the next beat. Nothing is ended here. A worker that renews
    its lease may be working, and a keeper may be alive until its home's promise ends; when neither
    can be, the run is lost, and rescue settles it.
    """
    found = frozenset(await store.overdue(patience, MOST))
    silent = {each: why for each in found & before if (why := _silence(each)) is not None}
    if silent:
        await store.note_silence(silent)
    return found


def _silence(overdue: Overdue) -> str | None:
    if overdue.trusted:
        return WORKER_BUSY
    return KEEPER_ALONE if overdue.kept else None


async def expire(store: Store, chance: Random) -> int:
    """End runs whose deadline or question has run out; return how many.

    A question that says what counts as its answer then gets that answer, and its run goes on.
    """
    runs = await store.expired_runs(MOST)
    waiting = [run.run_id for run in runs if run.state is RunState.WAITING]
    questions = await store.list_questions(waiting) if waiting else []
    newest = {question.run_id: question for question in questions}
    ended: list[tuple[OpenRun, Report]] = []
    answered: list[Settlement] = []
    for run in runs:
        asked = newest.get(run.run_id) if run.state is RunState.WAITING else None
        if asked is not None and asked.default is not None:
            now = store.now()
            answered.append(answer_by_default(run, asked, BY_DEFAULT, now))
        else:
            ended.append((run, Report(outcome=_out_of_time(run, asked))))
    going_on = await store.settle(answered) if answered else []
    return sum(going_on) + sum(await settle_runs(store, ended, chance))


def _out_of_time(run: OpenRun, asked: Question | None) -> Outcome:
    if run.state is not RunState.WAITING:
        return Expired(reason=OUT_OF_QUEUE_TIME)
    if asked is not None and asked.kind == "lost":
        return Failed(code="lost", message=NOBODY_DECIDED)
    return Expired(reason=OUT_OF_ANSWER_TIME, code=NO_ANSWER)
