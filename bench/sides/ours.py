"""Rota, through its library wherever that is possible."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import signal
import time
from datetime import UTC, datetime, timedelta
from typing import Any

from bench import fill
from bench.kit import Marks, Tally, percentile, rss_mb, serve
from rota.flow.define.schedules import ScheduleSpec, build_rule
from rota.flow.plan import plan
from rota.library.rota import Rota
from rota.model.instants import to_micros
from rota.model.runs import Lease, RunState
from rota.model.settlement import PLAIN_SUCCESS, Settlement
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Pool
from rota.runtime.event_loop import run_async
from rota.store.claims import claim_runs, set_limits
from rota.store.queue import rebuild_queue_heads
from rota.store.settlement import settle
from rota.store.tasks import find_space, find_task
from rota.store.transactions import QueryRows, Transaction
from rota.store.views import count_runs, list_tasks, list_workers
from rota.store.workers import register_worker
from rota.timing.rule_builders import to_record
from rota.timing.timetable import timetable

CHUNK = 10_000
POOLS = (Pool.FOREGROUND.value, Pool.BACKGROUND.value)


def counting(address: str) -> tuple[Rota, Tally]:
    rota, tally = Rota(address), Tally()

    @rota.task("noop")
    async def noop(run: Any) -> None:  # noqa: ARG001
        tally.hit()

    return rota, tally


async def _succeeded(rota: Rota) -> int:
    space = await rota.store.read(find_space, "main")
    task = await rota.store.read(find_task, space.id, "noop")
    return (await rota.store.read(count_runs, task.id)).get("succeeded", 0) if task else 0


def drain(address: str, n: int) -> dict[str, Any]:
    return run_async(_drain(address, n))


async def _drain(address: str, n: int) -> dict[str, Any]:
    rota, tally = counting(address)
    async with rota:
        before = await _succeeded(rota)
        for begin in range(0, n, CHUNK):
            await rota.enqueue_many("noop", range(begin, min(n, begin + CHUNK)))
        await fill.vacuum(address)
        await rota.work(until_idle=True)
        seconds = time.monotonic() - tally.first
        done = await _succeeded(rota) - before
    if done != n or tally.count != n:
        raise RuntimeError(f"{tally.count} handlers ran and {done} runs succeeded, of {n}")
    return {"rate": n / seconds}


def history(address: str, what: str, count: int) -> dict[str, Any]:
    run_async(fill.history(address, what, count))
    return {}


def bulk(address: str, n: int, batch: int) -> dict[str, Any]:
    return run_async(_bulk(address, n, batch))


async def _bulk(address: str, n: int, batch: int) -> dict[str, Any]:
    rota, _ = counting(address)
    async with rota:
        await rota.enqueue("noop", 0)
        began = time.perf_counter()
        for begin in range(0, n, batch):
            ids = await rota.enqueue_many("noop", range(begin, begin + batch))
        seconds = time.perf_counter() - began
    if len(ids) != batch:
        raise RuntimeError("ids are missing")
    return {"rate": n / seconds}


def single(address: str, n: int, callers: int) -> dict[str, Any]:
    return run_async(_single(address, n, callers))


async def _single(address: str, n: int, callers: int) -> dict[str, Any]:
    rota, _ = counting(address)
    waits: list[float] = []

    async def caller(count: int) -> None:
        for number in range(count):
            began = time.perf_counter()
            await rota.enqueue("noop", number)
            waits.append(time.perf_counter() - began)

    async with rota:
        await rota.enqueue("noop", 0)
        began = time.perf_counter()
        await asyncio.gather(*(caller(n // callers) for _ in range(callers)))
        seconds = time.perf_counter() - began
    return {"rate": len(waits) / seconds, "p99_ms": percentile(waits, 99) * 1e3}


def worker(address: str, marks: str = "") -> None:
    run_async(_worker(address, marks))


async def _worker(address: str, marks: str) -> None:
    rota = Rota(address)
    board = Marks(marks) if marks else None

    @rota.task("noop")
    async def noop(run: Any) -> None:
        if board is not None:
            board.mark(run.payload)

    async with rota:
        working = asyncio.ensure_future(rota.work())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, working.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await working


def pickup_other(address: str, marks: str, count: int, gap: float) -> dict[str, Any]:
    return run_async(_pickup_other(address, marks, count, gap))


async def _pickup_other(address: str, marks: str, count: int, gap: float) -> dict[str, Any]:
    rota, _ = counting(address)
    board = Marks(marks)
    async with rota:
        await rota.enqueue("noop", 0)
        await asyncio.to_thread(board.wait, 0, 30)
        await asyncio.sleep(1)
        returned = [await _enqueue_paced(rota, number, gap) for number in range(1, count + 1)]
        picked = [await asyncio.to_thread(board.wait, number, 30) for number in range(1, count + 1)]
    return _latency(returned, picked)


async def _enqueue_paced(rota: Rota, number: int, gap: float) -> int:
    await asyncio.sleep(gap)
    await rota.enqueue("noop", number)
    return time.monotonic_ns()


def _latency(returned: list[int], picked: list[int]) -> dict[str, Any]:
    waits = [(after - before) / 1e6 for before, after in zip(returned, picked, strict=True)]
    return {"p50": percentile(waits, 50), "p99": percentile(waits, 99)}


def pickup_same(address: str, count: int, gap: float) -> dict[str, Any]:
    return run_async(_pickup_same(address, count, gap))


async def _pickup_same(address: str, count: int, gap: float) -> dict[str, Any]:
    rota = Rota(address)
    picked: dict[int, int] = {}

    @rota.task("noop")
    async def noop(run: Any) -> None:
        picked[run.payload] = time.monotonic_ns()

    async with rota:
        working = asyncio.ensure_future(rota.work())
        await asyncio.sleep(1)
        await rota.enqueue("noop", 0)
        await asyncio.sleep(0.5)
        returned = [await _enqueue_paced(rota, number, gap) for number in range(1, count + 1)]
        await asyncio.sleep(1)
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    return _latency(returned, [picked[number] for number in range(1, count + 1)])


# schedules


async def _insert_schedules(session: Transaction, rows: list[dict[str, object]], now: int) -> None:
    for begin in range(0, len(rows), CHUNK):
        await session.run("insert_schedules", rows=QueryRows(rows[begin : begin + CHUNK]), now=now)


def _schedule_rows(
    tasks: list[int], count: int, name: str, wish: ScheduleSpec, now: datetime
) -> list[dict[str, object]]:
    """Rows as put_schedule would write them, for schedules that share one rule."""
    rule = build_rule(wish, "UTC", now, now)
    slot = timetable(rule).next(now)
    if slot is None:
        raise RuntimeError("the rule has no slot")
    record = {
        "rule": json.dumps(to_record(rule)),
        "generation": 1,
        "cursor": to_micros(now),
        "next_at": to_micros(slot.due),
    }
    return [
        {"task_id": tasks[n % len(tasks)], "name": f"{name}-{n // len(tasks)}", **record}
        for n in range(count)
    ]


def scheduled(address: str, tasks: int) -> tuple[Rota, list[float]]:
    """A Rota with many tasks; a handler notes how late it began, in ms."""
    rota, late = Rota(address), []

    async def noop(run: Any) -> None:
        late.append((time.time() - run.slot_at.timestamp()) * 1e3)

    for number in range(tasks):
        rota.task(f"task-{number}")(noop)
    return rota, late


async def _add_idle(rota: Rota, tasks: int, count: int) -> list[int]:
    space = await rota.store.read(find_space, "main")
    ids = [task.id for task in await rota.store.read(list_tasks, space.id)][:tasks]
    now = datetime.now(UTC)
    for hour in range(10):
        wish = ScheduleSpec(
            cron=f"{hour * 5} 3 {(now.day + 14) % 27 + 1} * *", timezone="Europe/Berlin"
        )
        rows = _schedule_rows(ids, count // 10, f"idle-{hour}", wish, now)
        await rota.store.write(_insert_schedules, rows, rota.store.now())
    return ids


def lateness(address: str, schedules: int, due: int) -> dict[str, Any]:
    return run_async(_lateness(address, schedules, due))


async def _lateness(address: str, schedules: int, due: int) -> dict[str, Any]:
    rota, late = scheduled(address, due)
    async with rota:
        ids = await _add_idle(rota, due, schedules - due)
        await fill.vacuum(address)
        working = asyncio.ensure_future(rota.work())
        await asyncio.sleep(2)
        now = datetime.now(UTC)
        anchor = now.replace(microsecond=0) + timedelta(seconds=5) - timedelta(hours=1)
        rows = _schedule_rows(ids, due, "due", ScheduleSpec(every="1h", anchor=anchor), now)
        await rota.store.write(_insert_schedules, rows, rota.store.now())
        rota.crew.planner.wake()
        for _ in range(2400):
            await asyncio.sleep(0.01)
            if len(late) >= due:
                break
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    if len(late) != due:
        raise RuntimeError(f"{len(late)} of {due} due slots ran")
    return {"p50": percentile(late, 50), "p99": percentile(late, 99), "max": max(late)}


IDLE_TASKS = 100


def prepare_idle(address: str, schedules: int) -> dict[str, Any]:
    run_async(_prepare_idle(address, schedules))
    return {}


async def _prepare_idle(address: str, schedules: int) -> None:
    rota, _ = scheduled(address, IDLE_TASKS)
    async with rota:
        await _add_idle(rota, IDLE_TASKS, schedules)
        await fill.vacuum(address)


def idle(address: str, seconds: float) -> dict[str, Any]:
    return run_async(_idle(address, seconds))


async def _idle(address: str, seconds: float) -> dict[str, Any]:
    rota, _ = scheduled(address, IDLE_TASKS)
    async with rota:
        working = asyncio.ensure_future(rota.work())
        await asyncio.sleep(3)
        cpu, began = time.process_time(), time.monotonic()
        await asyncio.sleep(seconds)
        per_minute = (time.process_time() - cpu) / (time.monotonic() - began) * 60
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
        steps = []
        for _ in range(100):
            began = time.perf_counter()
            await plan(rota.store)
            steps.append((time.perf_counter() - began) * 1e3)
    return {"cpu_s_per_min": per_minute, "step_ms": percentile(steps, 50), "rss_mb": rss_mb()}


# claiming under limits

LIMITS = (
    Limit(scope=LimitScope.POOL, key="background", cap=500),
    Limit(scope=LimitScope.SPACE, key="background", cap=2),
    Limit(scope=LimitScope.GROUP, key="mail", cap=50),
)


def prepare_claims(address: str, spaces: int, queued: int) -> dict[str, Any]:
    run_async(fill.spaces(address, spaces, queued // spaces))
    return {}


def claims(address: str, samples: int, want: int = 5, held: int = 20) -> dict[str, Any]:
    return run_async(_claims(address, samples, want, held))


async def _claims(address: str, samples: int, want: int, held: int) -> dict[str, Any]:
    """Claim and settle in turn, with `held` batches always running."""
    took: dict[str, list[float]] = {"claim": [], "settle": [], "both": []}
    running: list[list[Lease]] = []
    async with Rota(address) as rota:
        store = rota.store
        await store.write(set_limits, LIMITS)
        await store.write(rebuild_queue_heads)
        record = {
            "id": "bench-0", "home": "", "host": "", "pid": 0, "roles": "worker", "routes": "[]",
            "slots": 500, "lease_until": store.now() + fill.DAY,
        }  # fmt: skip
        if "bench-0" not in {known.id for known in await store.read(list_workers)}:
            await store.write(register_worker, record)
        for sample in range(samples + held):
            began = time.perf_counter()
            claimed = await store.write(claim_runs, "bench-0", POOLS, [fill.ROUTE], want)
            middle = time.perf_counter()
            if len(claimed.leases) != want:
                raise RuntimeError(f"a claim of {want} brought {len(claimed.leases)}")
            running.append(claimed.leases)
            if sample < held:
                continue
            done = [_success(lease) for lease in running.pop(0)]
            began_settling = time.perf_counter()
            await store.write(settle, done)
            end = time.perf_counter()
            took["claim"].append((middle - began) * 1e3)
            took["settle"].append((end - began_settling) * 1e3)
            took["both"].append((middle - began + end - began_settling) * 1e3)
        await store.write(settle, [_success(lease) for batch in running for lease in batch])
    return {
        f"{name}_p{percent}": percentile(times, percent)
        for name, times in took.items()
        for percent in (50, 99)
    }


def _success(lease: Lease) -> Settlement:
    done = RunState.SUCCEEDED
    return Settlement(
        lease.run_id, lease.epoch, lease.task_id, RunState.RUNNING, done, done.value, PLAIN_SUCCESS
    )


# memory


def growth(address: str, first: int, last: int) -> dict[str, Any]:
    return run_async(_growth(address, first, last))


async def _growth(address: str, first: int, last: int) -> dict[str, Any]:
    rota, tally = counting(address)
    seen: dict[int, tuple[float, int]] = {}
    async with rota:
        working = asyncio.ensure_future(rota.work())
        sent = 0
        while sent < last:
            await rota.enqueue_many("noop", range(5_000))
            sent += 5_000
            while tally.count < sent:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            if sent in {first, last}:
                await asyncio.sleep(1)
                gc.collect()
                seen[sent] = (rss_mb(), len(gc.get_objects()))
        working.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await working
    (rss_first, objects_first), (rss_last, objects_last) = seen[first], seen[last]
    return {
        "first_mb": rss_first,
        "last_mb": rss_last,
        "grown_mb": rss_last - rss_first,
        "grown_objects": objects_last - objects_first,
    }


def queue(address: str, task: str, n: int) -> dict[str, Any]:
    return run_async(_queue(address, task, n))


async def _queue(address: str, task: str, n: int) -> dict[str, Any]:
    async with Rota(address) as rota:
        for begin in range(0, n, CHUNK):
            await rota.enqueue_many(task, range(begin, min(n, begin + CHUNK)))
    return {"queued": n}


if __name__ == "__main__":
    serve(
        drain, history, bulk, single, worker, pickup_other, pickup_same, lateness, prepare_idle, idle,
        prepare_claims, claims, growth, queue,
    )  # fmt: skip
