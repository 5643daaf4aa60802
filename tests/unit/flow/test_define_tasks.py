"""Tasks: create, change, enable, disable, pause, delete."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.errors import Conflict, Invalid, NotFound
from rota.flow.define.tasks import delete_task, disable_task, enable_task, put_task
from rota.model.runs import RunState
from rota.model.spaces import SpaceRole
from rota.model.tasks import After, Overlap, Policy, Retry
from rota.rules.permissions import LOCAL, Caller
from rota.store.tasks import add_thread, find_task, list_schedules
from rota.store.views import list_tasks
from tests.tools.store_bench import MINUTE, failed


async def put(desk, name="job", **options):
    return await put_task(desk.store, LOCAL, name, route=f"python:{name}", **options)


@pytest.fixture
def main(desk, runner):
    runner.run(desk.space())
    return desk


async def test_a_name_is_taken_once(main):
    first = await put(main)
    with pytest.raises(Conflict, match="'job' already"):
        await put(main)
    assert await put(main, replace=True) == first


async def test_a_task_of_a_program_is_changed_by_that_program_only(main):
    declared = await put(main, origin="code", policy=Policy(priority=1))
    with pytest.raises(Conflict, match="declared by a program"):
        await put(main, replace=True, policy=Policy(priority=2))
    assert await main.task_of(declared) == declared
    changed = await put(main, origin="code", replace=True, policy=Policy(priority=3))
    assert changed.policy.priority == 3


async def test_other_doors_may_switch_and_schedule_a_programs_task(main):
    declared = await put(main, origin="code")
    await disable_task(main.store, LOCAL, "job")
    await enable_task(main.store, LOCAL, "job")
    await main.planned(declared, every="1h")
    assert len(await main.store.read(list_schedules, [declared.id])) == 1


@pytest.mark.parametrize("name", ["", " ", "a b", "-a", "a" * 129, "ä", "a\n", "../x", "a;b"])
async def test_a_bad_name_is_refused_in_one_sentence(main, name):
    with pytest.raises(Invalid, match="^name "):
        await put(main, name)
    assert await main.store.read(list_tasks, None) == []


@pytest.mark.parametrize(
    "sign",
    [
        "\u202e",
        "\u2066",
        "\u2069",
        "\x9b",
        "\x1b",
        "\x7f",
        "\n",
        "\u200b",
        "\u200f",
        "\ufeff",
        "\u2028",
    ],
)
async def test_a_title_that_hides_something_is_refused_in_one_sentence(main, sign):
    with pytest.raises(Invalid, match="^title .*: write one line without [^.]*$") as refusal:
        await put(main, title=f"Daily{sign}report")
    assert refusal.value.field == "title"
    assert await main.store.read(list_tasks, None) == []


async def test_a_title_of_any_language_is_taken_and_stays(main):
    title = "Grüße 👩‍👩‍👧 می‌خواهم हिन्दी"
    assert (await put(main, title=title)).title == title
    assert (await put(main, title=title, replace=True)).title == title


async def test_a_new_task_has_no_number_for_a_name(main):
    with pytest.raises(Invalid, match="^name.*12.*is the id of a task$"):
        await put(main, "12")
    await main.task("12")
    assert (await put(main, "12", replace=True, title="An old one")).title == "An old one"


@pytest.mark.parametrize(
    ("policy", "field"),
    [
        (Policy(retry=Retry(attempts=0)), "retry.attempts"),
        (Policy(retry=Retry(base=timedelta(seconds=-1))), "retry.base"),
        (Policy(retry=Retry(factor=0.5)), "retry.factor"),
        (Policy(timeout=timedelta()), "timeout"),
        (Policy(idle_timeout=timedelta(seconds=1)), "idle_timeout"),
        (Policy(grace=timedelta(seconds=1)), "grace"),
        (Policy(deadline=timedelta(days=9_999)), "deadline"),
        (Policy(priority=10**9), "priority"),
        (Policy(lane=""), "lane"),
        (Policy(group="a\n"), "group"),
        (Policy(deliver_to=":x"), "deliver_to"),
        (Policy(disable_after=-1), "disable_after"),
        (Policy(progress=21), "progress"),
    ],
)
async def test_a_policy_that_makes_no_sense_is_refused_by_field(main, policy, field):
    with pytest.raises(Invalid) as refusal:
        await put(main, policy=policy)
    assert refusal.value.field == field
    assert await main.store.read(list_tasks, None) == []


async def test_an_unknown_space_or_task_is_not_found(main):
    with pytest.raises(NotFound, match="nowhere"):
        await put(main, space="nowhere")
    for verb in (enable_task, disable_task, delete_task):
        with pytest.raises(NotFound, match="nothing"):
            await verb(main.store, LOCAL, "nothing")


async def test_a_member_cannot_touch_another_space(main):
    await put(main)
    member = Caller(space="ann", role=SpaceRole.MEMBER, name="ann")
    for call in (
        put_task(main.store, member, "x", route="r"),
        disable_task(main.store, member, "job"),
        delete_task(main.store, member, "job"),
    ):
        with pytest.raises(NotFound):
            await call
    assert (await main.store.read(find_task, 1, "job")).enabled


async def test_a_task_cannot_follow_itself_or_nobody(main):
    await put(main, "a")
    await put(main, "b", after=After(task="a"))
    with pytest.raises(Invalid, match="itself"):
        await put(main, "a", after=After(task="a"), replace=True)
    with pytest.raises(Invalid, match="cycle"):
        await put(main, "a", after=After(task="b"), replace=True)
    with pytest.raises(NotFound, match="missing"):
        await put(main, "c", after=After(task="missing"))


async def test_disabling_cancels_what_was_planned_and_has_not_begun(main):
    task = await put(main)
    main.routes.append(task.route)
    await main.planned(task, every="1m")
    main.clock.advance(MINUTE)
    await main.plan()
    (asked_for,) = await main.queue(task)
    found = await disable_task(main.store, LOCAL, "job", reason="holiday")
    assert (found.enabled, found.disabled_reason) == (False, "holiday")
    assert [run.state for run in await main.slots(task)] == [RunState.CANCELLED]
    assert await main.state(asked_for) is RunState.QUEUED


async def test_disabling_leaves_alone_what_has_begun(main):

    retry = Retry(attempts=3, base=timedelta(hours=1), jitter=0)
    task = await put(main, policy=Policy(retry=retry, overlap=Overlap.ALLOW))
    main.routes.append(task.route)
    await main.planned(task, every="1m")
    for number in range(3):
        main.clock.advance(MINUTE)
        await main.plan()
        lease = await main.claim_one()
        if number == 0:
            await main.ask(lease)
        if number == 1:
            await main.end(lease, failed())
    await disable_task(main.store, LOCAL, "job")
    states = [run.state for run in await main.slots(task)]
    assert states == [RunState.WAITING, RunState.QUEUED, RunState.RUNNING]


async def test_a_pause_needs_an_end_to_come(main):
    task = await put(main)
    with pytest.raises(Invalid, match="past"):
        await disable_task(main.store, LOCAL, "job", until=main.clock.now())
    assert (await main.task_of(task)).paused_until is None
    until = main.clock.now() + MINUTE
    assert (await disable_task(main.store, LOCAL, "job", until=until)).paused_until == until


async def test_enabling_forgets_failures(main):
    task = await put(main, policy=Policy(disable_after=1))
    main.routes.append(task.route)
    await main.queue(task)
    await main.end(await main.claim_one(), failed())
    assert not (await main.task_of(task)).enabled
    found = await enable_task(main.store, LOCAL, "job")
    assert (found.enabled, found.failures, found.disabled_reason) == (True, 0, None)


async def test_deleting_is_soft_and_cancels(main):
    task = await put(main)
    main.routes.append(task.route)
    await main.planned(task, every="1m")
    await main.worker("w1")
    ids = await main.queue(task, 3)
    running, asking = await main.claim(2)
    await main.ask(asking)
    deleted = await delete_task(main.store, LOCAL, "job")
    assert deleted.task.id == task.id
    assert deleted.stopping == [running.run_id]
    assert sorted(deleted.cancelled) == sorted([asking.run_id, ids[2]])
    assert await main.state(asking.run_id) is RunState.CANCELLED
    assert await main.state(ids[2]) is RunState.CANCELLED
    assert (await main.run(running.run_id)).cancel_requested_at is not None
    main.clock.advance(hours=1)
    await main.plan()
    assert await main.slots(task) == []
    assert (await put(main)).id != task.id


async def test_a_place_that_nothing_leads_to_is_refused_and_stays_where_it_stands(main):
    async def deliver(to, **more):
        return await put(main, policy=Policy(deliver_to=to), **more)

    await deliver("pigeon:a")  # by somebody who knew a channel of that name
    known = {"channels": ("log",), "replace": True}
    assert (await deliver("pigeon:a", title="Still", **known)).policy.deliver_to == "pigeon:a"
    with pytest.raises(Invalid, match=r"^deliver_to .*there is no channel 'pigeon': use log$"):
        await deliver("pigeon:b", **known)
    await main.store.write(add_thread, (await main.space()).id, "pigeon:b")
    for to in ("pigeon:b", "log:home", None):
        assert (await deliver(to, **known)).policy.deliver_to == to
