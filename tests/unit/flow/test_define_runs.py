"""Runs: queue, run now, backfill, cancel, answer."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from rota.errors import Conflict, IllegalMove, Invalid, NotFound
from rota.flow.define.runs import (
    answer_question,
    backfill,
    cancel_run,
    check_key,
    encode_payload,
    make_template,
    queue,
    run_now,
)
from rota.flow.lookup import find_run
from rota.model.runs import MAX_PAYLOAD_BYTES, RunBatch, RunSource, RunState
from rota.model.spaces import SpaceRole
from rota.model.tasks import OnLost, Retry
from rota.rules.permissions import LOCAL, OWNER, Caller
from rota.store.settlement import disable_task, request_cancel
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import list_schedules
from rota.store.views import list_questions
from tests.tools.store_bench import MINUTE, Bench, failed

DEEP = "[" * 101 + "]" * 101
MEMBER = Caller(space="ann", role=SpaceRole.MEMBER, name="ann")


@pytest.mark.parametrize(
    "payload", [None, 1, 1.5, "x", [1, {"a": None}], {"ä": "€"}], ids=lambda p: type(p).__name__
)
def test_plain_json_values_are_payloads(payload):
    import json

    assert json.loads(encode_payload(payload)) == payload


@pytest.mark.parametrize(
    "payload",
    [float("nan"), float("inf"), {1, 2}, object(), b"x", {"a": MINUTE}, json.loads(DEEP)],
    ids=["nan", "inf", "set", "object", "bytes", "timedelta", "deep"],
)
def test_anything_else_is_refused(payload):
    with pytest.raises(Invalid, match="^payload .*plain JSON"):
        encode_payload(payload)


def test_a_payload_may_have_256_kib_and_no_more():
    fits = "x" * (MAX_PAYLOAD_BYTES - 2)
    assert len(encode_payload(fits)) == MAX_PAYLOAD_BYTES == 256 * 1024
    with pytest.raises(Invalid, match=r"262145 bytes, at most 262144 \(256 KiB\)") as refusal:
        encode_payload(fits + "x")
    assert len(str(refusal.value)) < 400


@pytest.mark.parametrize("key", ["", "k" * 257])
def test_a_bad_key_is_refused(key):
    with pytest.raises(Invalid, match="^key "):
        check_key(key)


async def test_a_key_that_means_something_else_is_a_conflict(desk):
    task = await desk.task()

    def batch(payload):
        text = encode_payload(payload)
        template = make_template(task, RunSource.ENQUEUE, desk.store.now())
        return RunBatch(template=template, payloads=[text], keys=["k"])

    ((first,),) = await queue(desk.store, [batch(1)])
    ((again,),) = await queue(desk.store, [batch(1)])
    assert again.run_id == first.run_id
    with pytest.raises(Conflict, match=f"'k' belongs to run {first.run_id}"):
        await queue(desk.store, [batch(2)])


async def test_run_now_runs_a_disabled_task_and_moves_no_schedule(desk):
    task = await desk.task()
    stored = await desk.planned(task, every="1h")
    await desk.store.write(disable_task, task, "off", None, [])
    run_id = (await run_now(desk.store, LOCAL, "job", payload={"a": 1})).run_id
    assert await desk.claim_ids() == [run_id]
    assert (await desk.run(run_id)).source is RunSource.MANUAL
    (standing,) = await desk.store.read(list_schedules, [task.id])
    assert (standing.cursor, standing.next_at) == (stored.cursor, stored.next_at)


async def test_a_member_sees_only_its_own_runs(desk):
    (run_id,) = await desk.queue(await desk.task())
    with pytest.raises(NotFound):
        await find_run(desk.store, MEMBER, run_id)
    with pytest.raises(NotFound, match="999"):
        await find_run(desk.store, LOCAL, 999)


async def test_backfill_makes_the_runs_of_a_span_once(desk):
    task = await desk.task()
    await desk.planned(task, cron="0 * * * *")
    end = desk.clock.now()
    start = end - timedelta(hours=5)
    ids = await backfill(desk.store, LOCAL, "job", start=start, end=end)
    assert len(ids) == 5
    runs = await desk.slots(task)
    assert [run.source for run in runs] == [RunSource.BACKFILL] * 5
    assert [run.slot_at.hour for run in runs] == [8, 9, 10, 11, 12]
    assert await backfill(desk.store, LOCAL, "job", start=start, end=end) == []


async def test_backfill_leaves_slots_alone_that_ran(desk):
    task = await desk.task()
    await desk.planned(task, cron="0 * * * *")
    begun = desk.clock.now()
    desk.clock.advance(hours=1)
    await desk.plan()
    desk.clock.advance(hours=1)
    ids = await backfill(desk.store, LOCAL, "job", start=begun, end=desk.clock.now())
    assert len(ids) == 1
    assert len(await desk.slots(task)) == 2


@pytest.mark.parametrize(
    ("back", "ahead", "words"),
    [(0, 0, "later than"), (-1, 0, "later than"), (1, 1, "future"), (2_000, 0, "more than 1000")],
)
async def test_backfill_refuses_spans_that_make_no_sense(desk, back, ahead, words):
    task = await desk.task()
    await desk.planned(task, cron="0 * * * *")
    now = desk.clock.now()
    with pytest.raises(Invalid, match=words):
        await backfill(
            desk.store,
            LOCAL,
            "job",
            start=now - timedelta(hours=back),
            end=now + timedelta(hours=ahead),
        )
    assert await desk.slots(task) == []


async def test_cancelling_a_queued_run_ends_it(desk, chance):
    (run_id,) = await desk.queue(await desk.task())
    run = await cancel_run(desk.store, LOCAL, run_id, chance)
    assert (run.state, run.error) == (RunState.CANCELLED, f"cancelled by {OWNER}")
    with pytest.raises(IllegalMove, match="ended already"):
        await cancel_run(desk.store, LOCAL, run_id, chance)


async def test_cancelling_a_waiting_run_closes_its_question(desk, chance):
    await desk.queue(await desk.task())
    lease = await desk.claim_one()
    question = await desk.ask(lease)
    await cancel_run(desk.store, LOCAL, lease.run_id, chance)
    with pytest.raises(IllegalMove, match="closed"):
        await answer_question(desk.store, LOCAL, question, "yes")


class RacingStore(MemoryDatabase):
    """Lets something happen between a look at a run and the request to stop it."""

    meanwhile = None

    async def write(self, operation, *args, **kwargs):
        if operation is request_cancel and self.meanwhile is not None:
            happen, self.meanwhile = self.meanwhile, None
            await happen()
        return await super().write(operation, *args, **kwargs)


async def test_a_run_that_goes_back_to_the_queue_while_it_is_cancelled_is_cancelled(
    clock, chance, runner
):
    store = RacingStore(clock)
    await store.open()
    bench = Bench(store, clock)
    retry = Retry(attempts=3, base=MINUTE)
    await bench.queue(await bench.task(retry=retry))
    lease = await bench.claim_one()

    async def fail_meanwhile():
        await bench.end(lease, failed())

    store.meanwhile = fail_meanwhile
    run = await cancel_run(store, LOCAL, lease.run_id, chance)
    assert run.state is RunState.CANCELLED
    await store.close()


async def test_an_answer_is_checked_against_the_options(desk):
    await desk.queue(await desk.task())
    question = await desk.ask(await desk.claim_one(), options=("yes", "no"))
    for text in ("maybe", "", "x" * 20_000):
        with pytest.raises(Invalid, match="^answer "):
            await answer_question(desk.store, LOCAL, question, text)
    run = await answer_question(desk.store, LOCAL, question, "yes")
    assert run.state is RunState.QUEUED
    with pytest.raises(IllegalMove, match="closed"):
        await answer_question(desk.store, LOCAL, question, "no")


async def test_a_question_of_another_space_does_not_exist(desk):
    await desk.queue(await desk.task())
    question = await desk.ask(await desk.claim_one())
    with pytest.raises(NotFound):
        await answer_question(desk.store, MEMBER, question, "yes")
    with pytest.raises(NotFound, match="999"):
        await answer_question(desk.store, LOCAL, 999, "yes")


@pytest.mark.parametrize(("text", "state"), [("retry", "queued"), ("fail", "failed")])
async def test_a_person_decides_about_a_lost_run(desk, chance, text, state):
    from rota.flow.maintain import rescue

    await desk.queue(await desk.task(on_lost=OnLost.ASK))
    lease = await desk.claim_one(worker="dead")
    await rescue(desk.store, chance, fence=True)
    (question,) = await desk.store.read(list_questions, [lease.run_id])
    run = await answer_question(desk.store, LOCAL, question.id, text)
    assert run.state.value == state
    if state == "queued":
        claimed = await desk.claimed()
        assert claimed.leases[0].cause == "lost"
        assert claimed.answers == {}
