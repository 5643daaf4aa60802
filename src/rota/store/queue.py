"""Queue runs; queue heads and claim hints.

`heads` names the combinations of pool, space, route and group that may have ready runs, with the
turn of their space. It is a cache: a head without ready runs is dropped when a claim finds it
empty, and whatever can make a run ready leaves a ping in its own transaction, which the next claim
absorbs. All of this happens inside claims, which happen one at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from rota.model.ids import RunId
from rota.model.runs import Enqueued, NewRun, QueueState, RunBatch
from rota.store.transactions import QueryRows, Row, Transaction

RUNS = "runs"
"""The topic of runs that may be claimed."""
LATER = "later"
"""The topic of runs that may be claimed at an instant to come."""


def place_of(run: NewRun, now: int) -> QueueState:
    """Return where a new run stands: a laned one waits until claiming makes it its lane's head."""
    if run.available_at is not None and run.available_at > now:
        return QueueState.LATER
    return QueueState.READY if run.lane is None else QueueState.HELD


async def queue_runs(
    tx: Transaction, batches: Sequence[RunBatch], now: int, *, last_of_all: bool = False
) -> list[list[Enqueued]]:
    """Queue batches of runs; each run's outcome stands where its payload stood.

    `last_of_all` says that nothing else happens in this transaction.
    """
    if len(batches) == 1 and len(batches[0].payloads) == 1 and not _is_named(batches[0]):
        return [[await _enqueue_one(tx, batches[0], now, last=last_of_all)]]
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
    await add_claim_hints(tx, [*alike, *(batches[number].template for number in named)], now)
    for template, numbers in alike.items():
        payloads = [payload for number in numbers for payload in batches[number].payloads]
        last = last_of_all and len(alike) == 1 and not named
        ids = iter(await _insert_alike(tx, template, payloads, now, last=last))
        for number in numbers:
            size = len(batches[number].payloads)
            results[number] = [Enqueued(run_id=RunId(i)) for i in islice(ids, size)]
    if named:
        await _insert_named(tx, batches, named, results, now)
    return results


def _is_named(batch: RunBatch) -> bool:
    return bool(batch.keys) or batch.template.slot_key is not None


async def _enqueue_one(tx: Transaction, batch: RunBatch, now: int, *, last: bool) -> Enqueued:
    """Queue a single run, with less ceremony: that is what a caller waits for most often."""
    run = batch.template
    if place_of(run, now) is QueueState.LATER:
        tx.wake(LATER)
    else:
        record = claim_hint(run.pool, run.space_id, run.route, run.group, run.metered, run.lane)
        await tx.run("insert_ping", **record)
        tx.wake(RUNS)
    common = _template(run, now)
    ids = await tx.insert("insert_one", 1, last=last, payload=batch.payloads[0], **common)
    return Enqueued(run_id=RunId(ids[0]))


async def _insert_alike(
    tx: Transaction, template: NewRun, payloads: list[str], now: int, *, last: bool
) -> Sequence[int]:
    return await tx.insert(
        "insert_like", len(payloads), last=last, payloads=payloads, **_template(template, now)
    )


async def _insert_named(
    tx: Transaction,
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
    outcomes = iter(await _insert_general(tx, items, now))
    for number in named:
        results[number] = list(islice(outcomes, len(batches[number].payloads)))


async def add_claim_hints(tx: Transaction, runs: Iterable[NewRun], now: int) -> None:
    """Tell claiming that such runs may have become ready, and wake who waits for them."""
    seen: dict[tuple[object, ...], dict[str, object]] = {}
    later = False
    for run in runs:
        if place_of(run, now) is QueueState.LATER:
            later = True
            continue
        record = claim_hint(run.pool, run.space_id, run.route, run.group, run.metered, run.lane)
        seen[tuple(record.values())] = record
    if seen:
        await tx.run("insert_pings", rows=QueryRows(seen.values()))
        tx.wake(RUNS)
    if later:
        tx.wake(LATER)


def claim_hint(
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
    tx: Transaction, items: Sequence[tuple[NewRun, str, str | None]], now: int
) -> list[Enqueued]:
    """Insert runs of which each may stand there already, by its key or its slot.

    A second pass finds what stood twice in the batch, and what another transaction wrote or pruned
    in between.
    """
    outcomes: list[Enqueued | None] = [None] * len(items)
    while None in outcomes:
        await _match_existing(tx, items, outcomes)
        await _insert_missing(tx, items, outcomes, now)
    return [outcome for outcome in outcomes if outcome is not None]


async def _insert_missing(
    tx: Transaction,
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
    rows = QueryRows(
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
    ids = await tx.insert("insert_runs", len(missing), rows=rows)
    for index, run_id in zip(missing, ids, strict=True):
        if run_id:
            outcomes[index] = Enqueued(run_id=RunId(run_id))


async def count_new(tx: Transaction, batches: Sequence[RunBatch]) -> int:
    """Return how many runs of batches with keys are not there yet."""
    items = [
        (batch.template, payload, batch.key(index))
        for batch in batches
        for index, payload in enumerate(batch.payloads)
    ]
    outcomes: list[Enqueued | None] = [None] * len(items)
    await _match_existing(tx, items, outcomes)
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
    tx: Transaction,
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
    rows = QueryRows(
        {
            "task_id": run.task_id,
            "key": key,
            "schedule_id": run.schedule_id,
            "slot_key": run.slot_key,
        }
        for _, run, _, key in open_items
    )
    found: dict[tuple[object, ...], Row] = {}
    for row in await tx.rows("existing_runs", rows=rows):
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


MOST_PINGS = 2_000

Head = tuple[int, str, str, int]
"""A head inside one pool: space, route, group, metered."""

FreshHead = tuple[str, int, str, str, int]
"""A head that may not have been written yet: its pool, then a head inside that."""


async def take_pings(tx: Transaction, worker: str) -> list[Row] | None:
    """Return the pings that have come, or None for a worker that may not claim.

    A fenced worker may not, and nobody may while everything is paused. Their pings stay.
    """
    pings = await tx.rows("take_pings", most=MOST_PINGS, worker=worker)
    if not pings and await tx.rows("is_barred", worker=worker):
        return None
    return pings


async def apply_claim_hints(tx: Transaction, pings: Sequence[Row]) -> tuple[set[FreshHead], bool]:
    """Take up pings: choose lane heads, and return the heads that may have ready runs.

    The second part says whether the queue was quiet: no other head is open, and nothing is limited.
    """
    fresh = {(r[0], r[1], r[2], r[3], r[4]) for r in pings if r[5] is None and r[2] is not None}
    reopen = {(r[0], r[1]) for r in pings if r[5] is None and r[2] is None}
    lanes = {(r[1], r[5]) for r in pings if r[5] is not None}
    if lanes:
        fresh |= await _turn_lanes(tx, sorted(lanes))
    if reopen:
        rows = QueryRows({"pool": pool, "space_id": space} for pool, space in sorted(reopen))
        await tx.run("reopen_heads", rows=rows)
    return fresh, bool(pings) and not reopen and bool(pings[0][6])


async def open_new_heads(tx: Transaction, heads: set[FreshHead], now: int) -> None:
    """Note that heads may have ready runs."""
    rows = QueryRows(
        {"pool": h[0], "space_id": h[1], "route": h[2], "grp": h[3], "metered": h[4]}
        for h in sorted(heads)
    )
    await tx.run("open_new_heads", rows=rows, now=now)


async def _turn_lanes(tx: Transaction, lanes: list[tuple[int, str]]) -> set[FreshHead]:
    """Make the best waiting run of each free lane its head; return the heads that have one."""
    rows = QueryRows({"space_id": space, "lane": lane} for space, lane in lanes)
    held: list[int] = []
    ready: list[int] = []
    for _, _, busy, current, best in await tx.rows("view_lanes", rows=rows):
        if current is not None and (busy or current != best):
            held.append(current)
        if best is not None and not busy and best != current:
            ready.append(best)
    if held:
        await tx.run("hold_runs", ids=held)
    if not ready:
        return set()
    made = await tx.rows("ready_runs", ids=ready)
    missed = set(ready) - {row[0] for row in made}
    if missed:
        # Another transaction holds the row; look at its lane again once that has ended.
        again = await tx.rows("lanes_of", ids=sorted(missed))
        await tx.run(
            "insert_pings",
            rows=QueryRows(
                claim_hint(pool, space, "", "", False, lane) for pool, space, lane in again
            ),
        )
    return {(row[1], row[2], row[3], row[4], row[5]) for row in made}


async def rebuild_queue_heads(tx: Transaction) -> int:
    """Open a head for every combination that has ready runs, and look at every waiting lane.

    Needed only if the caches were lost or a transaction vanished between a look and its ping.
    """
    now = tx.now()
    await tx.enter_claim()
    found = await tx.rows("find_heads")
    if found:
        await open_new_heads(tx, {(r[0], r[1], r[2], r[3], r[4]) for r in found}, now)
    lanes = await tx.rows("find_lanes")
    if lanes:
        pings = QueryRows(claim_hint(r[0], r[1], "", "", False, r[2]) for r in lanes)
        await tx.run("insert_pings", rows=pings)
    return len(found) + len(lanes)
