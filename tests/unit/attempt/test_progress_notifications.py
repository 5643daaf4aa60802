"""What people in a conversation hear of a run while it goes on: each thing once, and in bounds."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rota.flow.define.runs import enqueue
from rota.flow.define.tasks import put_task
from rota.flow.observe.verification import verify
from rota.flow.settle import settle_attempts
from rota.model.checks import SuppressionReason
from rota.model.notifications import DeliveryKind
from rota.model.tasks import OnLost, Policy, Retry, TaskKind
from rota.rules.notifications import MAX_ANSWERS, STARTED_PHRASES
from rota.rules.permissions import LOCAL
from rota.store.attempts import list_kept_attempts
from rota.store.plans import promote_delayed
from rota.store.threads import list_messages
from rota.store.views import list_deliveries
from tests.unit.attempt.test_conversation import HERE, TALK, claim, tell
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, line, said
from tests.unit.attempt.test_runner import wavering


async def talking(desk, **policy):
    """Return a task that answers in a thread, and tells people at a place."""
    await desk.worker("w1")
    await desk.space("main")
    desk.routes = ["agent"]
    told = {"deliver_to": "log:ann", "on_lost": OnLost.RETRY, **policy}
    return await put_task(
        desk.store, LOCAL, "talk", kind=TaskKind.AGENT, route="agent", thread=HERE,
        spec={**TALK, "answers": True, "session": "shared"}, policy=Policy(**told),
    )  # fmt: skip


async def heard(desk, *out, store=None, **facts):
    """Let a run of the conversation say something, and return what it was and came to."""
    if not await desk.store.read(list_messages, HERE, None, 1 << 62, 1):
        await tell(desk, "Well?")
    given = await claim(desk)
    yard = Trial(said(b"".join(out), **facts))
    report = await House(desk, yard, store).work.run(given)
    return given, report


async def settled(desk, given, report):
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert list((await verify(desk.store)).violations) == []


async def bodies(desk, given, kind=None):
    view = await desk.store.read(list_deliveries, given.lease.run_id, 1_000)
    return [one.body for one in sorted(view, key=lambda d: d.id) if kind in {None, one.kind}]


def results(*words):
    return b"".join(line("result", text=text) for text in words)


async def test_every_result_is_a_message_of_its_own_as_it_comes(desk):
    await talking(desk)
    given, report = await heard(desk, results("one", "two", "two", "three"))
    assert await bodies(desk, given) == ["one", "two", "two"], "before the run has ended"
    await settled(desk, given, report)
    assert await bodies(desk, given, DeliveryKind.RESULT) == ["one", "two", "two", "three"]
    run = await desk.run(given.lease.run_id)
    assert (run.result, run.suppressed) == ('"three"', None)


@pytest.mark.parametrize("after", [False, True])
async def test_what_is_told_while_the_store_wavers_is_told_once(desk, after):
    await talking(desk, acknowledge=True, progress=3)
    store = wavering(desk.store, after)
    out = line("tool", name="look") + results("one", "two")
    given, report = await heard(desk, out, store=store)
    await settled(desk, given, report)
    told = await bodies(desk, given)
    assert [told.count(word) for word in ("one", "two", "look")] == [1, 1, 0]
    assert len(told) == 3, "the step came right after the acknowledgement"


async def test_whoever_carries_an_attempt_on_tells_nothing_of_it_again(desk):
    await talking(desk)
    await tell(desk, "Well?")
    given = await claim(desk)
    first = results("one", "two")
    yard = Trial(said(first))
    await House(desk, yard).work.run(given)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    assert kept.out_offset == len(first)
    yard.end(results("three"))
    report = await House(desk, yard).work.run(given._replace(kept=kept))
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["one", "two", "three"]


@pytest.mark.parametrize("deaths", [0, 1, 2])
@pytest.mark.parametrize("more", [b"", results("three")])
async def test_answers_that_nobody_was_told_are_told_once_somebody_listens(desk, deaths, more):
    """The run began when its results went nowhere, or under a version that told nothing."""
    await talking(desk, progress=5)
    await tell(desk, "Well?")
    given = await claim(desk)
    yard = Trial(said(line("tool", name="look") + results("one", "two")))
    nowhere = replace(given.task, policy=replace(given.task.policy, deliver_to=None))
    await House(desk, yard).work.run(given._replace(task=nowhere))
    assert await bodies(desk, given) == []
    for _ in range(deaths):
        (kept,) = await desk.store.read(list_kept_attempts, yard.home)
        await House(desk, yard).work.run(given._replace(kept=kept))
        assert await bodies(desk, given) == ["one"]
    yard.end(more)
    (kept,) = await desk.store.read(list_kept_attempts, yard.home)
    report = await House(desk, yard).work.run(given._replace(kept=kept))
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["one", "two", *(["three"] if more else [])]


async def test_what_is_internal_or_silent_reaches_nobody(desk):
    await talking(desk)
    given, report = await heard(
        desk,
        results("<internal>hm</internal>", "a<internal>b</internal>", "NO_ACTION: quiet"),
        line("result", text="psst", silent=True),
        results(" ", "end <internal>of it</internal>"),
    )
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["a", "end"]


async def test_of_a_last_word_that_says_nothing_new_nothing_is_sent_twice(desk):
    await talking(desk)
    given, report = await heard(desk, results("one"), line("read", id=99))
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["one"]
    run = await desk.run(given.lease.run_id)
    assert (run.result, run.suppressed) == ('"one"', SuppressionReason.BY_RESULT)


async def test_who_is_tried_again_and_says_the_same_is_not_heard_twice(desk):
    await talking(desk, retry=Retry(attempts=2, base=timedelta(seconds=1)))
    given, report = await heard(desk, results("one", "two", "three"), code=1)
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["one", "two"]
    desk.clock.advance(timedelta(seconds=10))
    await desk.store.write(promote_delayed, 10)
    given, report = await heard(desk, results("one", "three", "four"))
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["one", "two", "three", "four"]


async def test_a_flood_of_results_is_bounded_and_its_last_word_is_heard(desk):
    await talking(desk)
    given, report = await heard(desk, results(*(f"r{n}" for n in range(500)), "last"))
    await settled(desk, given, report)
    told = await bodies(desk, given)
    assert told == [*(f"r{n}" for n in range(MAX_ANSWERS)), "last"]


async def test_who_delivers_nowhere_tells_nobody(desk):
    await talking(desk, deliver_to=None, acknowledge=True, progress=5)
    given, report = await heard(desk, line("tool", name="look"), results("one", "two"))
    await settled(desk, given, report)
    assert await bodies(desk, given) == []
    run = await desk.run(given.lease.run_id)
    assert (run.result, run.suppressed) == ('"two"', None)


@pytest.mark.parametrize("thread", [None, HERE])
async def test_outside_a_conversation_only_the_last_result_is_sent(desk, thread):
    await desk.worker("w1")
    await desk.space("main")
    task = await put_task(
        desk.store, LOCAL, "alone", kind=TaskKind.AGENT, route="agent", spec=TALK, thread=thread,
        policy=Policy(deliver_to="log:ann", acknowledge=True, progress=5),
    )  # fmt: skip
    desk.routes = ["agent"]
    await enqueue(desk.store, task, None)
    given = await claim(desk)
    out = line("tool", name="look") + results("one", "two")
    report = await House(desk, Trial(said(out))).work.run(given)
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["two"]


async def test_the_begin_of_work_is_acknowledged_once_and_on_no_retry(desk):
    await talking(desk, acknowledge=True, retry=Retry(attempts=2, base=timedelta(seconds=1)))
    given, report = await heard(desk, b"", code=1)
    (begun,) = await bodies(desk, given, DeliveryKind.NOTIFICATION)
    assert begun in STARTED_PHRASES
    await settled(desk, given, report)
    desk.clock.advance(timedelta(seconds=10))
    await desk.store.write(promote_delayed, 10)
    given, report = await heard(desk, DONE)
    await settled(desk, given, report)
    assert await bodies(desk, given) == [begun, "done"]


async def test_a_second_try_inside_an_attempt_acknowledges_nothing(desk):
    await talking(desk, acknowledge=True)
    await tell(desk, "Well?")
    given = await claim(desk)
    yard = Trial(said(OVERLOAD, code=1), said(DONE))
    report = await House(desk, yard).work.run(given)
    await settled(desk, given, report)
    assert len(yard.started) == 2
    assert len(await bodies(desk, given, DeliveryKind.NOTIFICATION)) == 1


async def test_nothing_is_acknowledged_that_nobody_has_written(desk):
    task = await talking(desk, acknowledge=True)
    await enqueue(desk.store, task, {"input": "look"})
    given = await claim(desk)
    report = await House(desk, Trial(said(DONE))).work.run(given)
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["done"]


async def test_of_a_burst_of_steps_one_is_told_and_no_text(desk):
    await talking(desk, progress=5)
    steps = b"".join(line("tool", name="read", summary=f"page {n}") for n in range(20))
    words = line("text", text="hm") + line("progress", percent=40, message="half <internal>x")
    given, report = await heard(desk, steps, words, DONE)
    assert await bodies(desk, given) == ["40 %: half"]
    await settled(desk, given, report)
    assert await bodies(desk, given) == ["40 %: half", "done"]
