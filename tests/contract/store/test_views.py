"""Views: what people see, by filter and page; a read never writes."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from rota.model.ids import TaskId
from rota.model.instants import to_micros
from rota.model.runs import RunSource, RunState
from rota.model.views import RunFilter, RunView
from rota.store.outbox import list_orphaned_deliveries, next_delivery
from rota.store.plans import list_due_schedules, next_due
from rota.store.tasks import find_schedule, find_task, get_tasks, list_schedules
from rota.store.views import (
    count_runs,
    get_question,
    get_run,
    list_attempts,
    list_deliveries,
    list_events,
    list_ledger_rows,
    list_limits,
    list_questions,
    list_run_events,
    list_run_output,
    list_runs,
    list_slot_runs,
    list_spaces,
    list_successors,
    list_tasks,
    list_workers,
    view_queue,
    view_run,
)
from rota.store.workers import (
    get_open_runs,
    list_expired_runs,
    list_lost_runs,
    list_queued_runs,
    list_running_runs,
)
from tests.tools.store_bench import MINUTE, Bench, failed


class TestViews:
    """Lists, pages and counts."""

    async def test_runs_are_listed_newest_first(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(), 5)
        assert [run.id for run in await bench.store.read(list_runs, RunFilter())] == ids[::-1]

    async def test_a_list_goes_on_after_its_last_id(self, bench: Bench) -> None:
        ids = await bench.queue(await bench.task(), 7)
        seen: list[int] = []
        before = None
        while page := await bench.store.read(list_runs, RunFilter(limit=3, before=before)):
            seen += [run.id for run in page]
            before = page[-1].id
        assert seen == ids[::-1]

    async def test_runs_are_found_by_task_space_and_state(self, bench: Bench) -> None:
        one = await bench.task("one", space="a")
        two = await bench.task("two", space="a")
        three = await bench.task("three", space="b")
        for task in (one, two, three):
            await bench.queue(task, 2)
        await bench.end(await bench.claim_one())

        async def count(**wanted: Any) -> int:
            return len(await bench.store.read(list_runs, RunFilter(**wanted)))

        assert await count(task_id=two.id) == 2
        assert await count(space_id=one.space_id) == 4
        assert await count(task_id=three.id, space_id=one.space_id) == 0
        assert await count(state=RunState.SUCCEEDED) == 1
        assert await count(state=RunState.QUEUED) == 5
        assert await count(state=RunState.QUEUED, task_id=two.id, limit=1) == 1
        assert await count(state=RunState.FAILED) == 0

    async def test_what_does_not_exist_is_none(self, bench: Bench) -> None:
        space = await bench.space()
        assert await bench.store.read(get_run, 12345) is None
        assert await bench.store.read(get_question, 12345) is None
        assert await bench.store.read(find_task, space.id, "nothing") is None
        assert await bench.store.read(find_schedule, 12345, "default") is None
        assert await bench.store.read(get_tasks, []) == []
        assert await bench.store.read(get_open_runs, []) == []
        assert await bench.store.read(list_questions, []) == []
        assert await bench.store.read(list_attempts, 12345) == []
        assert await bench.store.read(count_runs, 12345) == {}

    async def test_events_are_read_in_order_from_a_cursor(self, bench: Bench) -> None:
        await bench.queue(await bench.task(), 3)
        for _ in range(3):
            await bench.end(await bench.claim_one())
        everything = await bench.store.read(list_events, 0, 100)
        ids = [event.id for event in everything]
        assert ids == sorted(ids)
        assert await bench.store.read(list_events, ids[1], 2) == everything[2:4]
        assert await bench.store.read(list_events, ids[-1], 10) == []

    async def test_slot_runs_are_found_by_their_instant(self, bench: Bench) -> None:
        task = await bench.task()
        stored = await bench.schedule(task, bench.every(MINUTE))
        base = to_micros(bench.clock.now())
        for number in (3, 1, 2):
            at = base + number * 60_000_000
            await bench.queue(
                task,
                source=RunSource.BACKFILL,
                schedule_id=stored.id,
                slot_key=f"k{number}",
                slot_at=at,
            )
        await bench.queue(task)
        found = await bench.store.read(list_slot_runs, task.id, base, base + 120_000_000)
        assert [run.slot_key for run in found] == ["k1", "k2"]
        assert found[0].slot_at == bench.clock.now() + MINUTE

    async def test_a_run_is_seen_with_everything_that_belongs_to_it(self, bench: Bench) -> None:
        (run_id,) = await bench.queue(await bench.task(deliver_to="log:"))
        await bench.worker("w1")
        await bench.ask(await bench.claim_one())
        store = bench.store
        assert await store.read(view_run, run_id, 10, 10) == RunView(
            run=await bench.run(run_id),
            attempts=await store.read(list_attempts, run_id),
            events=await store.read(list_run_events, run_id),
            output=await store.read(list_run_output, run_id, 10),
            deliveries=await store.read(list_deliveries, run_id, 10),
            questions=await store.read(list_questions, [run_id]),
            heartbeat=None,
        )
        assert await store.read(view_run, 12345, 10, 10) is None

    async def test_a_run_is_seen_as_it_stands_at_one_instant(self, bench: Bench) -> None:
        await bench.worker("w1")
        await bench.queue(await bench.task(), 20)
        for lease in await bench.claim(20):
            ending = asyncio.ensure_future(bench.end(lease))
            looks = (bench.store.read(view_run, lease.run_id, 10, 10) for _ in range(5))
            for view in await asyncio.gather(*looks):
                assert view is not None
                ended = [attempt.outcome for attempt in view.attempts]
                assert ended == ([] if view.run.state is RunState.RUNNING else ["succeeded"])
            assert await ending

    async def test_the_queue_view_counts_every_place(self, bench: Bench) -> None:
        task, laned = await bench.task(), await bench.task("laned", lane="L")
        begun = bench.clock.now()
        await bench.queue(task, 4)
        await bench.queue(laned, 3)
        await bench.queue(task, at=begun + timedelta(hours=1))
        await bench.schedule(task, bench.every(MINUTE))
        await bench.worker("w1")
        running, asking = await bench.claim(2, routes=[task.route])
        bench.clock.advance(seconds=5)
        await bench.ask(asking)
        view = await bench.store.read(view_queue)
        assert (view.ready, view.later, view.held) == (3, 1, 2)
        assert (view.running, view.waiting, view.stuck) == (1, 1, 0)
        assert (view.schedules, view.quarantined) == (1, 0)
        assert view.oldest_ready == view.oldest_running == begun
        assert view.oldest_waiting == bench.clock.now()
        assert (await bench.run(running.run_id)).started_at == begun

    async def test_an_empty_queue_view_is_empty(self, bench: Bench) -> None:
        view = await bench.store.read(view_queue)
        assert (view.ready, view.running, view.oldest_ready, view.unserved_routes) == (
            0,
            0,
            None,
            (),
        )

    async def test_runs_are_counted_by_state(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 3)
        await bench.end(await bench.claim_one())
        await bench.end(await bench.claim_one(), failed())
        assert await bench.store.read(count_runs, task.id) == {
            "succeeded": 1,
            "failed": 1,
            "queued": 1,
        }

    async def test_workers_are_listed_with_what_they_hold(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 3)
        await bench.worker("w1")
        await bench.claim(2, worker="w1")
        (view,) = await bench.store.read(list_workers)
        assert (view.id, view.host, view.pid, view.slots) == ("w1", "here", 1, 10)
        assert (view.routes, view.running, view.fenced) == ((task.route,), 2, False)
        assert view.started_at == view.seen_at == bench.clock.now()
        assert view.lease_until == bench.clock.now() + timedelta(seconds=30)

    async def test_reading_changes_nothing(self, bench: Bench) -> None:
        task = await bench.task(lane="L")
        ids = await bench.queue(task, 3)
        await bench.schedule(task, bench.every(MINUTE))
        await bench.worker("w1")
        lease = await bench.claim_one()
        question = await bench.ask(lease)
        bench.clock.advance(hours=1)
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        first = await _read_all(bench, task.id, ids[0], question)
        assert await _read_all(bench, task.id, ids[0], question) == first
        assert heard == []


async def _read_all(bench: Bench, task_id: int, run_id: int, question: int) -> list[object]:
    store = bench.store
    now = store.now()
    return [
        await store.read(list_tasks, None),
        await store.read(list_spaces),
        await store.read(list_runs, RunFilter()),
        await store.read(list_runs, RunFilter(task_id=TaskId(task_id))),
        await store.read(get_run, run_id),
        await store.read(view_run, run_id, 10, 10),
        await store.read(list_attempts, run_id),
        await store.read(list_questions, [run_id]),
        await store.read(get_question, question),
        await store.read(list_events, 0, 100),
        await store.read(list_run_events, run_id),
        await store.read(list_slot_runs, task_id, 0, now),
        await store.read(list_ledger_rows, task_id, 0, now),
        await store.read(list_deliveries, None, 100),
        await store.read(list_limits),
        await store.read(count_runs, task_id),
        await store.read(list_workers),
        await store.read(view_queue),
        await store.read(list_due_schedules, 10),
        await store.read(next_due),
        await store.read(next_delivery),
        await store.read(list_lost_runs, 10),
        await store.read(list_expired_runs, 10),
        await store.read(list_orphaned_deliveries, 10),
        await store.read(get_open_runs, [run_id]),
        await store.read(list_queued_runs, task_id, planned_only=False),
        await store.read(list_running_runs, task_id),
        await store.read(list_successors, [task_id]),
        await store.read(list_schedules, [task_id]),
    ]
