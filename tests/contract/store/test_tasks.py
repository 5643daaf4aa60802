"""Spaces, tasks and schedules, and what changing them does in the same step."""

from __future__ import annotations

from collections.abc import Awaitable
from datetime import timedelta

from rota.errors import NotFound
from rota.model.attempts import Cancelled
from rota.model.runs import RunSource, RunState
from rota.model.schedules import ScheduleState
from rota.model.spaces import SpaceRole
from rota.model.tasks import After, AfterOn, CatchUp, CatchUpMode, NewTask, Overlap, Policy, Retry
from rota.model.threads import ThreadFilter
from rota.store.plans import next_due
from rota.store.settlement import delete_task, disable_task
from rota.store.tasks import (
    add_space,
    add_thread,
    drop_schedule,
    enable_task,
    find_schedule,
    find_space,
    find_task,
    get_tasks,
    list_schedules,
    put_task,
    set_space,
)
from rota.store.threads import list_threads
from rota.store.views import list_events, list_spaces, list_successors, list_tasks
from rota.store.workers import list_queued_runs, list_running_runs, renew_worker
from tests.tools.store_bench import MINUTE, Bench, failed


class TestSpaces:
    """Spaces and threads."""

    async def test_a_space_is_made_once(self, bench: Bench) -> None:
        first = await bench.store.write(add_space, "ann", SpaceRole.MEMBER, "Europe/Berlin")
        again = await bench.store.write(add_space, "ann", SpaceRole.MAIN, "UTC")
        assert first == again
        assert (first.role, first.timezone) == (SpaceRole.MEMBER, "Europe/Berlin")
        assert await bench.store.read(find_space, "ann") == first
        assert await bench.store.read(list_spaces) == [first]

    async def test_a_spaces_zone_can_change(self, bench: Bench) -> None:
        await bench.store.write(add_space, "ann", SpaceRole.MEMBER, "UTC")
        assert (await bench.store.write(set_space, "ann", "Asia/Tokyo")).timezone == "Asia/Tokyo"
        assert (await bench.store.read(find_space, "ann")).timezone == "Asia/Tokyo"

    async def test_an_unknown_space_is_not_found(self, bench: Bench) -> None:
        for call in (
            bench.store.read(find_space, "nobody"),
            bench.store.write(set_space, "nobody", "UTC"),
        ):
            assert "nobody" in str(await _refusal(call))

    async def test_a_thread_may_be_added_again(self, bench: Bench) -> None:
        space = await bench.space()
        await bench.store.write(add_thread, space.id, "cli:default")
        await bench.store.write(add_thread, space.id, "cli:default")
        (found,) = await bench.store.read(list_threads, ThreadFilter())
        assert (found.space, found.key, found.title) == ("main", "cli:default", "")

    async def test_threads_are_listed_newest_first_of_one_space_or_of_all(
        self, bench: Bench
    ) -> None:
        ann, bob = await bench.space("ann"), await bench.space("bob")
        for owner, key in ((ann, "web:1"), (bob, "web:2"), (ann, "web:3")):
            await bench.store.write(add_thread, owner.id, key)
        every = await bench.store.read(list_threads, ThreadFilter())
        assert [(one.space, one.key) for one in every] == [
            ("ann", "web:3"), ("bob", "web:2"), ("ann", "web:1"),
        ]  # fmt: skip
        assert await bench.store.read(list_threads, ThreadFilter(limit=2)) == every[:2]
        assert await bench.store.read(list_threads, ThreadFilter(before=every[0].id)) == every[1:]
        assert await bench.store.read(list_threads, ThreadFilter(ann.id)) == [every[0], every[2]]


class TestTasks:
    """Tasks: create, change, switch, delete."""

    async def test_a_task_comes_back_as_it_was_put(self, bench: Bench) -> None:
        owner = await bench.space()
        policy = Policy(
            retry=Retry(attempts=4, base=timedelta(seconds=1.5), max_age=timedelta(hours=2)),
            timeout=timedelta(minutes=10),
            priority=7,
            lane="L",
            group="g",
            metered=False,
            overlap=Overlap.SKIP,
            catch_up=CatchUp(mode=CatchUpMode.ALL, window=timedelta(hours=3), cap=9),
            deadline=timedelta(hours=1),
            disable_after=5,
            deliver_to="log:me",
        )
        wanted = NewTask(
            space_id=owner.id,
            name="job",
            title="A job",
            route="python:job",
            spec={"call": "a:b", "n": [1, 2]},
            policy=policy,
            origin="code",
        )
        task = await bench.store.write(put_task, wanted, None)
        assert (task.name, task.title, task.route) == ("job", "A job", "python:job")
        assert (task.spec, task.policy, task.origin) == (wanted.spec, policy, "code")
        assert (task.enabled, task.failures, task.after) == (True, 0, None)
        assert task.enabled_since == task.created_at == bench.clock.now()
        assert await bench.store.read(find_task, owner.id, "job") == task
        assert await bench.store.read(get_tasks, [task.id]) == [task]

    async def test_an_unchanged_task_stays_untouched(self, bench: Bench) -> None:
        first = await bench.task(priority=1)
        bench.clock.advance(MINUTE)
        assert await bench.task(priority=1) == first
        names = [event.name.value for event in await bench.store.read(list_events, 0, 10)]
        assert names == ["task.created"]

    async def test_a_changed_task_keeps_its_id_and_its_switch(self, bench: Bench) -> None:
        first = await bench.task(priority=1)
        await bench.store.write(disable_task, first, "off", None, [])
        bench.clock.advance(MINUTE)
        second = await bench.task(priority=2)
        assert (second.id, second.policy.priority) == (first.id, 2)
        assert (second.enabled, second.disabled_reason) == (False, "off")
        assert second.updated_at == bench.clock.now()
        assert second.created_at == first.created_at

    async def test_a_task_knows_what_it_follows(self, bench: Bench) -> None:
        first = await bench.task("first")
        second = await bench.task("second", after=After(task="first", on=AfterOn.FAILURE))
        assert second.after == After(task="first", on=AfterOn.FAILURE)
        assert await bench.store.read(list_successors, [first.id, second.id]) == {
            first.id: [second]
        }

    async def test_spaces_do_not_share_names(self, bench: Bench) -> None:
        one = await bench.task("job", space="a")
        two = await bench.task("job", space="b")
        assert one.id != two.id
        assert await bench.store.read(list_tasks, one.space_id) == [one]
        assert await bench.store.read(list_tasks, None) == [one, two]

    async def test_disabling_ends_queued_runs_in_one_step(self, bench: Bench) -> None:
        task = await bench.task()
        (run_id,) = await bench.queue(task, source=RunSource.SLOT)
        (facts,) = await bench.store.read(list_queued_runs, task.id, planned_only=True)
        ends = [await bench.decide(facts, Cancelled(reason="off"))]
        await bench.store.write(disable_task, task, "because", None, ends)
        found = await bench.task_of(task)
        assert (found.enabled, found.disabled_reason) == (False, "because")
        assert await bench.state(run_id) is RunState.CANCELLED
        since = bench.clock.now()
        bench.clock.advance(MINUTE)
        await bench.store.write(disable_task, task, "once more", None, [])
        assert (await bench.task_of(task)).disabled_at == found.disabled_at == since

    async def test_a_pause_is_a_disabling_with_an_end(self, bench: Bench) -> None:
        task = await bench.task()
        until = bench.store.now() + 60_000_000
        await bench.store.write(disable_task, task, "lunch", until, [])
        found = await bench.task_of(task)
        assert found.enabled
        assert found.paused_until == bench.clock.now() + MINUTE

    async def test_enabling_starts_from_now_and_forgets_failures(self, bench: Bench) -> None:
        task = await bench.task(disable_after=1)
        await bench.queue(task)
        await bench.end(await bench.claim_one(), failed())
        assert (await bench.task_of(task)).disabled_at == bench.clock.now()
        bench.clock.advance(MINUTE)
        await bench.store.write(enable_task, task)
        found = await bench.task_of(task)
        assert (found.enabled, found.failures, found.disabled_reason) == (True, 0, None)
        assert found.disabled_at is None
        assert (found.paused_until, found.enabled_since) == (None, bench.clock.now())

    async def test_deleting_ends_the_queued_and_stops_the_running(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.schedule(task, bench.every(MINUTE))
        await bench.worker("w1")
        running, queued = await bench.queue(task, 2)
        await bench.claim(1)
        assert await bench.store.read(list_running_runs, task.id) == [running]
        (facts,) = await bench.store.read(list_queued_runs, task.id, planned_only=False)
        ends = [await bench.decide(facts, Cancelled(reason="gone"))]
        await bench.store.write(delete_task, task, ends, [running])
        assert await bench.store.read(find_task, task.space_id, task.name) is None
        assert await bench.store.read(list_tasks, None) == []
        assert await bench.store.read(list_schedules, [task.id]) == []
        assert await bench.store.read(next_due) is None
        assert await bench.state(queued) is RunState.CANCELLED
        assert (await bench.store.write(renew_worker, "w1", bench.store.now())).cancels == (
            running,
        )

    async def test_a_deleted_task_keeps_its_history_and_frees_its_name(self, bench: Bench) -> None:
        task = await bench.task()
        (run_id,) = await bench.queue(task)
        await bench.end(await bench.claim_one())
        await bench.store.write(delete_task, task, [], [])
        assert (await bench.run(run_id)).task == "job"
        assert (await bench.task_of(task)).deleted_at == bench.clock.now()
        again = await bench.task()
        assert again.id != task.id

    async def test_queued_runs_of_a_task_are_those_that_wait(self, bench: Bench) -> None:
        task, other = await bench.task(), await bench.task("other")
        slot, asked = [
            (await bench.queue(task, source=source))[0]
            for source in (RunSource.SLOT, RunSource.MANUAL)
        ]
        await bench.queue(other)
        found = await bench.store.read(list_queued_runs, task.id, planned_only=False)
        assert [run.run_id for run in found] == [slot, asked]
        planned = await bench.store.read(list_queued_runs, task.id, planned_only=True)
        assert [run.run_id for run in planned] == [slot]
        await bench.claim()
        assert await bench.store.read(list_queued_runs, task.id, planned_only=False) == []
        assert await bench.store.read(list_running_runs, task.id) == [slot, asked]


class TestSchedules:
    """Schedules as they are put and dropped."""

    async def test_a_schedule_comes_back_as_it_was_put(self, bench: Bench) -> None:
        task = await bench.task()
        stored = await bench.schedule(task, bench.every(MINUTE), name="quick", generation=3)
        assert (stored.task_id, stored.task, stored.space) == (task.id, "job", "main")
        assert (stored.name, stored.generation, stored.state) == ("quick", 3, ScheduleState.ACTIVE)
        assert (stored.cursor, stored.next_at) == (
            bench.clock.now(),
            bench.clock.now() + MINUTE,
        )
        assert await bench.store.read(find_schedule, task.id, "quick") == stored
        assert await bench.store.read(list_schedules, [task.id]) == [stored]

    async def test_a_schedule_of_the_same_name_is_replaced(self, bench: Bench) -> None:
        task = await bench.task()
        first = await bench.schedule(task, bench.every(MINUTE))
        bench.clock.advance(MINUTE)
        second = await bench.schedule(task, bench.every("1h"), generation=2)
        assert (second.id, second.generation) == (first.id, 2)
        assert second.created_at == first.created_at
        assert second.next_at == bench.clock.now() + timedelta(hours=1)
        assert len(await bench.store.read(list_schedules, [task.id])) == 1

    async def test_a_dropped_schedule_is_gone_and_its_name_free(self, bench: Bench) -> None:
        task = await bench.task()
        first = await bench.schedule(task, bench.every(MINUTE))
        await bench.store.write(drop_schedule, first)
        assert await bench.store.read(find_schedule, task.id, "default") is None
        assert await bench.store.read(list_schedules, [task.id]) == []
        second = await bench.schedule(task, bench.every(MINUTE))
        assert second.id != first.id

    async def test_schedules_of_no_task_are_none(self, bench: Bench) -> None:
        assert await bench.store.read(list_schedules, []) == []

    async def test_a_change_wakes_the_planner(self, bench: Bench) -> None:
        task = await bench.task()
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.schedule(task, bench.every(MINUTE))
        await bench.store.write(enable_task, task)
        assert heard.count("schedules") == 2


async def _refusal(call: Awaitable[object]) -> NotFound:
    try:
        await call
    except NotFound as refusal:
        return refusal
    message = "this should have been refused"
    raise AssertionError(message)
