"""Queueing: runs come to stand in the queue, and a ping tells claiming where to look."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from rota.model.ids import RunId
from rota.model.runs import Enqueued, NewRun, RunBatch
from rota.model.states import Place
from rota.stores.kit.session import Row, Rows, Session

RUNS = "runs"
"""The topic of runs that may be claimed."""
LATER = "later"
"""The topic of runs that may be claimed at an instant to come."""


def place_of(run: NewRun, now: int) -> Place:
    """Return where a new run stands: a laned one waits until claiming makes it its lane's head."""
    if run.available_at is not None and run.available_at > now:
        return Place.LATER
    return Place.READY if run.lane is None else Place.HELD


async def enqueue(
    session: Session, batches: Sequence[RunBatch], now: int, *, last_of_all: bool = False
) -> list[list[Enqueued]]:
    """Queue batches of runs; each run's outcome stands where its payload stood.

    `last_of_all` says that nothing else happens in this transaction.
    """
    if len(batches) == 1 and len(batches[0].payloads) == 1 and not _is_named(batches[0]):
        return [[await _enqueue_one(session, batches[0], now, last=last_of_all)]]
    results: list[list[Enqueued]] = [[] for _ in batches]
    alike: dict[NewRun, list[int]] = {}
    named: list[int] = []
    for number, batch in enumerate(batches):
        if not batch.payloads:
            continue
        if _is_named(batch):
            named.append(number)
        else:
            alike.setdefault(batch.template, []).append(number)
    await ping(session, [*alike, *(batches[number].template for number in named)], now)
    for template, numbers in alike.items():
        payloads = [payload for number in numbers for payload in batches[number].payloads]
        last = last_of_all and len(alike) == 1 and not named
        ids = iter(await _insert_alike(session, template, payloads, now, last=last))
        for number in numbers:
            size = len(batches[number].payloads)
            results[number] = [Enqueued(run_id=RunId(i)) for i in islice(ids, size)]
    if named:
        await _insert_named(session, batches, named, results, now)
    return results


def _is_named(batch: RunBatch) -> bool:
    return bool(batch.keys) or batch.template.slot_key is not None


async def _enqueue_one(session: Session, batch: RunBatch, now: int, *, last: bool) -> Enqueued:
    """Queue a single run, with less ceremony: that is what a caller waits for most often."""
    run = batch.template
    if place_of(run, now) is Place.LATER:
        session.wake(LATER)
    else:
        record = ping_record(run.pool, run.space_id, run.route, run.group, run.metered, run.lane)
        await session.run("insert_ping", **record)
        session.wake(RUNS)
    common = _template(run, now)
    ids = await session.insert("insert_one", 1, last=last, payload=batch.payloads[0], **common)
    return Enqueued(run_id=RunId(ids[0]))


async def _insert_alike(
    session: Session, template: NewRun, payloads: list[str], now: int, *, last: bool
) -> Sequence[int]:
    return await session.insert(
        "insert_like", len(payloads), last=last, payloads=payloads, **_template(template, now)
    )


async def _insert_named(
    session: Session,
    batches: Sequence[RunBatch],
    named: list[int],
    results: list[list[Enqueued]],
    now: int,
) -> None:
    items = [
        (batches[number].template, payload, batches[number].key(index))
        for number in named
        for index, payload in enumerate(batches[number].payloads)
    ]
    outcomes = iter(await _insert_general(session, items, now))
    for number in named:
        results[number] = list(islice(outcomes, len(batches[number].payloads)))


async def ping(session: Session, runs: Iterable[NewRun], now: int) -> None:
    """Tell claiming that such runs may have become ready, and wake who waits for them."""
    seen: dict[tuple[object, ...], dict[str, object]] = {}
    later = False
    for run in runs:
        if place_of(run, now) is Place.LATER:
            later = True
            continue
        record = ping_record(run.pool, run.space_id, run.route, run.group, run.metered, run.lane)
        seen[tuple(record.values())] = record
    if seen:
        await session.run("insert_pings", rows=Rows(seen.values()))
        session.wake(RUNS)
    if later:
        session.wake(LATER)


def ping_record(
    pool: str, space_id: int, route: str, group: str, metered: bool, lane: str | None
) -> dict[str, object]:
    """Return a ping for a head, or for a lane when the run has one."""
    if lane is not None:
        return {
            "pool": pool,
            "space_id": space_id,
            "route": None,
            "grp": None,
            "metered": None,
            "lane": lane,
        }
    return {
        "pool": pool,
        "space_id": space_id,
        "route": route,
        "grp": group,
        "metered": int(metered),
        "lane": None,
    }


def _template(run: NewRun, now: int) -> dict[str, object]:
    return {
        "space_id": run.space_id,
        "task_id": run.task_id,
        "route": run.route,
        "pool": run.pool.value,
        "priority": run.priority,
        "lane": run.lane,
        "grp": run.group,
        "metered": int(run.metered),
        "source": run.source.value,
        "place": place_of(run, now).value,
        "available_at": now if run.available_at is None else run.available_at,
        "expires_at": run.expires_at,
        "upstream_id": run.upstream_id,
        "depth": run.depth,
        "thread": run.thread,
        "created_at": now,
    }


async def _insert_general(
    session: Session, items: Sequence[tuple[NewRun, str, str | None]], now: int
) -> list[Enqueued]:
    """Insert runs of which each may stand there already, by its key or its slot.

    A second pass finds what stood twice in the batch, and what another transaction wrote or pruned
    in between.
    """
    outcomes: list[Enqueued | None] = [None] * len(items)
    while None in outcomes:
        await _match_existing(session, items, outcomes)
        await _insert_missing(session, items, outcomes, now)
    return [outcome for outcome in outcomes if outcome is not None]


async def _insert_missing(
    session: Session,
    items: Sequence[tuple[NewRun, str, str | None]],
    outcomes: list[Enqueued | None],
    now: int,
) -> None:
    missing: list[int] = []
    seen: set[tuple[object, ...]] = set()
    for index, (run, _, key) in enumerate(items):
        identity = _identity(run, key) or ("alone", index)
        if outcomes[index] is None and identity not in seen:
            seen.add(identity)
            missing.append(index)
    if not missing:
        return
    rows = Rows(
        {
            **_template(items[index][0], now),
            "n": n,
            "payload": items[index][1],
            "key": items[index][2],
            "schedule_id": items[index][0].schedule_id,
            "slot_key": items[index][0].slot_key,
            "slot_at": items[index][0].slot_at,
        }
        for n, index in enumerate(missing)
    )
    ids = await session.insert("insert_runs", len(missing), rows=rows)
    for index, run_id in zip(missing, ids, strict=True):
        if run_id:
            outcomes[index] = Enqueued(run_id=RunId(run_id))


async def count_new(session: Session, batches: Sequence[RunBatch]) -> int:
    """Return how many runs of batches with keys are not there yet."""
    items = [
        (batch.template, payload, batch.key(index))
        for batch in batches
        for index, payload in enumerate(batch.payloads)
    ]
    outcomes: list[Enqueued | None] = [None] * len(items)
    await _match_existing(session, items, outcomes)
    new = [(run, key) for (run, _, key), there in zip(items, outcomes, strict=True) if not there]
    named = {_identity(run, key) for run, key in new} - {None}
    return len(named) + sum(_identity(run, key) is None for run, key in new)


def _identity(run: NewRun, key: str | None) -> tuple[object, ...] | None:
    if key is not None:
        return ("key", run.task_id, key)
    if run.slot_key is not None:
        return ("slot", run.schedule_id, run.slot_key)
    return None


async def _match_existing(
    session: Session,
    items: Sequence[tuple[NewRun, str, str | None]],
    outcomes: list[Enqueued | None],
) -> None:
    open_items = [
        (index, run, payload, key)
        for index, (run, payload, key) in enumerate(items)
        if outcomes[index] is None and (key is not None or run.slot_key is not None)
    ]
    if not open_items:
        return
    rows = Rows(
        {
            "task_id": run.task_id,
            "key": key,
            "schedule_id": run.schedule_id,
            "slot_key": run.slot_key,
        }
        for _, run, _, key in open_items
    )
    found: dict[tuple[object, ...], Row] = {}
    for row in await session.rows("existing_runs", rows=rows):
        run_id, task_id, key, schedule_id, slot_key, payload = row
        if key is not None:
            found["key", task_id, key] = (run_id, payload)
        if slot_key is not None:
            found["slot", schedule_id, slot_key] = (run_id, payload)
    for index, run, payload, key in open_items:
        match = found.get(_identity(run, key) or ())
        if match is not None:
            conflict = key is not None and match[1] != payload
            outcomes[index] = Enqueued(run_id=RunId(match[0]), created=False, conflict=conflict)
