"""Maintain: rescue lost runs, expire, prune, back up and restore.

A restore is a time machine: what happened since the backup is forgotten, and did happen. So slots
since then are not run again but recorded as not caught up, messages that waited are `unknown`, and
runs that were going on are lost to whoever worked on them. `as_it_stood` says that nobody has
worked on the original since the backup; then it goes on where it was.

Each step only changes what it still recognises: settlements carry the state and epoch that were
read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from rota.flow.settle import settle_runs
from rota.model.attempts import AttemptReport, Expired, Failed, Lost, Outcome
from rota.model.backups import Backup, RestoreResult
from rota.model.heartbeats import MissedHeartbeat
from rota.model.ids import RunId
from rota.model.instants import ALWAYS, from_micros
from rota.model.notifications import DeliveryState
from rota.model.runs import FINISHED, OpenRun, Question, RunState
from rota.model.settlement import Settlement
from rota.model.views import RunFilter
from rota.ports.clock import Random
from rota.ports.host import ArtifactFolder, ArtifactStore
from rota.rules.plans import plan_skipping_due
from rota.rules.settlement import answer_by_default
from rota.store.heartbeats import list_missed_heartbeats, record_missed_heartbeats
from rota.store.outbox import list_orphaned_deliveries, record_delivery
from rota.store.settlement import settle
from rota.store.store import Database, Store
from rota.store.views import list_questions, list_runs
from rota.store.workers import fence_workers, list_expired_runs, list_lost_runs, prune_runs

MAX_RESCUED = 500
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
        await store.write(fence_workers, now, watched)
    lost = await store.read(list_lost_runs, MAX_RESCUED, now if watched >= promise else NEVER)
    reports = [
        (run, AttemptReport(outcome=Lost(reason=RESTORED if run.restored else WORKER_GONE)))
        for run in lost
    ]
    settled = await settle_runs(store, reports, chance)
    for delivery in await store.read(list_orphaned_deliveries, MAX_RESCUED):
        await store.write(
            record_delivery, delivery, DeliveryState.UNKNOWN, SENDER_GONE, store.now()
        )
    return sum(settled)


async def note_missed_heartbeats(
    store: Store, patience: int, before: frozenset[MissedHeartbeat]
) -> frozenset[MissedHeartbeat]:
    """Note who has not been told of for two heartbeats, and why; return who is overdue now.

    Only who was overdue at the look before, and has not been heard of since, counts: a clock that
    leaps makes everybody overdue until the next beat. Nothing is ended here. A worker that renews
    its lease may be working, and a keeper may be alive until its home's promise ends; when neither
    can be, the run is lost, and rescue settles it.
    """
    found = frozenset(await store.read(list_missed_heartbeats, patience, MAX_RESCUED))
    silent = {each: why for each in found & before if (why := _silence(each)) is not None}
    if silent:
        await store.write(record_missed_heartbeats, silent)
    return found


def _silence(overdue: MissedHeartbeat) -> str | None:
    if overdue.trusted:
        return WORKER_BUSY
    return KEEPER_ALONE if overdue.kept else None


async def expire(store: Store, chance: Random) -> int:
    """End runs whose deadline or question has run out; return how many.

    A question that says what counts as its answer then gets that answer, and its run goes on.
    """
    runs = await store.read(list_expired_runs, MAX_RESCUED)
    waiting = [run.run_id for run in runs if run.state is RunState.WAITING]
    questions = await store.read(list_questions, waiting) if waiting else []
    newest = {question.run_id: question for question in questions}
    ended: list[tuple[OpenRun, AttemptReport]] = []
    answered: list[Settlement] = []
    for run in runs:
        asked = newest.get(run.run_id) if run.state is RunState.WAITING else None
        if asked is not None and asked.default is not None:
            now = store.now()
            answered.append(answer_by_default(run, asked, BY_DEFAULT, now))
        else:
            ended.append((run, AttemptReport(outcome=_out_of_time(run, asked))))
    going_on = await store.write(settle, answered) if answered else []
    return sum(going_on) + sum(await settle_runs(store, ended, chance))


def _out_of_time(run: OpenRun, asked: Question | None) -> Outcome:
    if run.state is not RunState.WAITING:
        return Expired(reason=OUT_OF_QUEUE_TIME)
    if asked is not None and asked.kind == "lost":
        return Failed(code="lost", message=NOBODY_DECIDED)
    return Expired(reason=OUT_OF_ANSWER_TIME, code=NO_ANSWER)


KEEP = timedelta(days=30)
MAX_PRUNED = 1_000


async def prune(store: Store, keep: timedelta = KEEP) -> bool:
    """Delete a batch of what ended longer ago than `keep`; true if there may be more."""
    before = store.now() - int(keep.total_seconds() * 1_000_000)
    return await store.write(prune_runs, before, MAX_PRUNED) == MAX_PRUNED


async def prune_artifacts(store: Store, artifacts: ArtifactStore, keep: timedelta = KEEP) -> int:
    """Delete the files of runs that have left the store; return how many folders went.

    A folder in which nothing was left goes as soon as its run has ended. One that is young stays,
    whatever the store says: it may be another one that was opened by mistake.
    """
    shelves = await asyncio.to_thread(artifacts.list_folders)
    before = from_micros(store.now()) - keep
    wanted = [shelf for shelf in shelves if shelf.empty or shelf.modified_at < before]
    ended = await _ended(store, wanted)
    gone = [
        shelf
        for shelf in wanted
        if (ended[shelf.run_id] is True and shelf.empty)
        or (ended[shelf.run_id] is None and shelf.modified_at < before)
    ][:MAX_PRUNED]
    for shelf in gone:
        await asyncio.to_thread(artifacts.delete_folder, shelf)
    return len(gone)


async def _ended(store: Store, shelves: Sequence[ArtifactFolder]) -> dict[int, bool | None]:
    """Return of each run whether it has ended; None if the store does not know it."""
    left = sorted({shelf.run_id for shelf in shelves}, reverse=True)
    ended: dict[int, bool | None] = dict.fromkeys(left)
    while left:
        page = await store.read(list_runs, RunFilter(before=RunId(left[0] + 1), limit=MAX_PRUNED))
        ended |= {run.id: run.state in FINISHED for run in page if run.id in ended}
        reached = page[-1].id if len(page) == MAX_PRUNED else 0
        left = [run_id for run_id in left if run_id < reached]
    return ended


async def back_up(store: Database, path: str, *, force: bool = False) -> Backup:
    """Write a backup of a store, while others go on working."""
    return await store.backup(path, force=force)


async def restore(
    store: Database, path: str, *, as_it_stood: bool = False, force: bool = False
) -> RestoreResult:
    """Put a backup in the place of a store that nobody has open."""
    return await store.restore(path, None if as_it_stood else plan_skipping_due, force=force)
