"""Maintain: rescue lost runs, expire, prune, back up and restore.

Each step changes only what it still recognizes: settlements carry the state and epoch that were
read.

A restore treats the time since the backup as unknown: slots since then are recorded as not caught
up, waiting messages become `unknown`, and running runs are lost. `as_it_stood` states that nobody
has used the original since the backup; then nothing of this applies.
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
"""An instant at which no lease of a keeper home has ended."""
RESTORED = "it was running when the restored backup was taken"
WORKER_GONE = "its worker stopped renewing its lease"
WORKER_BUSY = (
    "its worker renews its lease but sends no heartbeat: something may block its event loop"
)
KEEPER_ALONE = (
    "its worker is gone; its keeper may continue until another process takes over its home"
)
SENDER_GONE = "the sender died while sending"
OUT_OF_QUEUE_TIME = "it waited in the queue past its deadline"
OUT_OF_ANSWER_TIME = "nobody answered its question in time"
NO_ANSWER = "waiting_for_user_timeout"
"""The error code of a run whose question was not answered."""
BY_DEFAULT = "default"
"""`answered_by` of a question that got its default answer."""
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
    """Settle the runs of dead workers; return how many.

    `fence` is false where a lock already proves who is alive. `watched` is for how many
    microseconds the clock was seen to run evenly up to `now`: leases longer than that are not
    judged. A lease of a keeper home lasts for `promise`.
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
    """Record attempts without a heartbeat for two intervals; return those that are overdue now.

    Only attempts that were overdue at the previous call as well count, because a clock that jumps
    makes every attempt overdue until its next heartbeat. Nothing is ended here: the worker may be
    working, or the keeper may be alive. When neither can be, `rescue` settles the run.
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
    """Expire runs whose deadline or question has passed; return how many.

    A question with a default gets it as its answer instead, and its run continues.
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
    """Delete a batch of rows older than `keep`; return whether there may be more."""
    before = store.now() - int(keep.total_seconds() * 1_000_000)
    return await store.write(prune_runs, before, MAX_PRUNED) == MAX_PRUNED


async def prune_artifacts(store: Store, artifacts: ArtifactStore, keep: timedelta = KEEP) -> int:
    """Delete artifacts of runs that are no longer stored; return the number of folders.

    An empty folder is deleted as soon as its run has ended. A recent folder is kept even if its run
    is unknown, because the database may be the wrong one.
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
    """Return for each run whether it has ended; None if the store does not know it."""
    left = sorted({shelf.run_id for shelf in shelves}, reverse=True)
    ended: dict[int, bool | None] = dict.fromkeys(left)
    while left:
        page = await store.read(list_runs, RunFilter(before=RunId(left[0] + 1), limit=MAX_PRUNED))
        ended |= {run.id: run.state in FINISHED for run in page if run.id in ended}
        reached = page[-1].id if len(page) == MAX_PRUNED else 0
        left = [run_id for run_id in left if run_id < reached]
    return ended


async def back_up(store: Database, path: str, *, force: bool = False) -> Backup:
    """Write a backup of a store in use."""
    return await store.backup(path, force=force)


async def restore(
    store: Database, path: str, *, as_it_stood: bool = False, force: bool = False
) -> RestoreResult:
    """Replace a store that nobody uses with a backup."""
    return await store.restore(path, None if as_it_stood else plan_skipping_due, force=force)
