"""The library end to end: declare, queue, work, look."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from rota.errors import Conflict, Invalid, NotFound, Unavailable
from rota.library.rota import Rota
from rota.model.runs import RunState
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import Retry
from rota.store.views import list_attempts, list_questions, view_queue
from rota.testing.fakes import RecordingChannel, VirtualClock


@pytest.fixture(params=["memory", "sqlite"])
def make(request, tmp_path, clock):
    """Make a Rota on the virtual clock, on each kind of store."""

    def make_rota(**options):
        address = "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/rota.db"
        return Rota(address, **{"clock": clock, **options})

    return make_rota


async def test_coroutines_and_functions_are_tasks(make):
    rota = make()

    @rota.task("later")
    async def later(run):
        return {"got": run.payload, "task": run.task, "attempt": run.attempt}

    @rota.task("plain")
    def plain(run):
        return [run.payload, run.key]

    async with rota:
        one = await rota.enqueue("later", {"day": 1})
        two = await rota.enqueue("plain", "x", key="k")
        await rota.work(until_idle=True)
        first, second = await rota.run(one), await rota.run(two)
        assert first.state is second.state is RunState.SUCCEEDED
        assert json.loads(first.result) == {"got": {"day": 1}, "task": "later", "attempt": 1}
        assert json.loads(second.result) == ["x", "k"]


async def test_many_runs_are_queued_in_order_and_all_run(make):
    rota = make()
    seen = []

    @rota.task("job")
    async def job(run):
        seen.append(run.payload)

    async with rota:
        ids = await rota.enqueue_many("job", range(200))
        assert ids == sorted(set(ids))
        assert await rota.enqueue_many("job", []) == []
        await rota.work(until_idle=True)
        assert sorted(seen) == list(range(200))


async def test_a_task_is_tried_until_it_succeeds(make, clock):
    rota = make()
    tries = []

    @rota.task("job", retry=Retry(attempts=3, base=timedelta(seconds=10), jitter=0))
    async def job(run):
        tries.append(run.attempt)
        if len(tries) < 3:
            raise ConnectionError("not yet")
        return "done"

    async with rota:
        run_id = await rota.enqueue("job")
        for wait in (10, 20, 0):
            await rota.work(until_idle=True)
            clock.advance(seconds=wait)
        run = await rota.run(run_id)
        assert (run.state, run.result, run.retries) == (RunState.SUCCEEDED, '"done"', 2)
        assert tries == [1, 2, 3]
        attempts = await rota.store.read(list_attempts, run_id)
        assert [a.outcome for a in attempts] == ["failed", "failed", "succeeded"]


async def test_a_failure_keeps_its_sentence_and_its_trace(make):
    rota = make()

    @rota.task("job")
    async def job(run):
        raise ValueError("the day has no data")

    async with rota:
        run_id = await rota.enqueue("job")
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert (run.state, run.error_code) == (RunState.FAILED, "exception")
        assert run.error.startswith("ValueError: the day has no data")
        assert "async def job" in run.error or "raise ValueError" in run.error


@pytest.mark.parametrize(
    "result",
    [{1, 2}, object(), float("nan"), "x" * 300_000, json.loads("[" * 300 + "]" * 300)],
    ids=["set", "object", "nan", "long", "deep"],
)
async def test_a_result_that_cannot_be_kept_fails_the_run(make, result):
    rota = make()

    @rota.task("job", retry=3)
    async def job(run):
        return result

    async with rota:
        run_id = await rota.enqueue("job")
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert (run.state, run.error_code, run.retries) == (RunState.FAILED, "bad_result", 0)


async def test_a_key_makes_a_run_once(make):
    rota = make()
    calls = []

    @rota.task("job")
    async def job(run):
        calls.append(run.payload)

    async with rota:
        first = await rota.enqueue("job", 1, key="k")
        assert await rota.enqueue("job", 1, key="k") == first
        await rota.work(until_idle=True)
        assert await rota.enqueue("job", 1, key="k") == first
        with pytest.raises(Conflict, match="another payload"):
            await rota.enqueue("job", 2, key="k")
        await rota.work(until_idle=True)
        assert calls == [1]


async def test_bad_input_is_refused_and_queues_nothing(make):
    rota = make()

    @rota.task("job")
    async def job(run):
        pass

    async with rota:
        for call, words in (
            (lambda: rota.enqueue("job", "x" * 300_000), "256 KiB"),
            (lambda: rota.enqueue("job", {1}), "plain JSON"),
            (lambda: rota.enqueue("job", key=""), "key"),
            (lambda: rota.enqueue_many("job", [1, 2], keys=["a"]), "keys"),
            (lambda: rota.enqueue_many("job", [1], keys=["a", "b"]), "keys"),
        ):
            with pytest.raises(Invalid, match=words):
                await call()
        with pytest.raises(NotFound, match="nothing"):
            await rota.enqueue("nothing")
        assert (await rota.store.read(view_queue)).ready == 0


def test_a_bad_declaration_is_refused_by_name():
    rota = Rota()
    for options, words in (
        ({"retrys": 3}, "retrys"),
        ({"timeout": "soon"}, "timeout"),
        ({"pool": "deep"}, "pool"),
        ({"retry": "often"}, "retry"),
    ):
        with pytest.raises(Invalid, match=words):
            rota.task("job", **options)
    rota.task("job")(lambda run: None)
    with pytest.raises(Conflict, match="twice"):
        rota.task("job")(lambda run: None)
    with pytest.raises(Invalid, match="store"):
        Rota("mysql://x")


async def test_a_rota_that_is_not_open_says_so():
    rota = Rota()
    rota.task("job")(lambda run: None)
    with pytest.raises(Unavailable, match="not open"):
        await rota.work(until_idle=True)
    with pytest.raises(Unavailable, match="not open"):
        await rota.enqueue("job")


async def test_a_chain_passes_its_result_on(make):
    rota = make()
    told = []

    @rota.task("load")
    async def load(run):
        return {"rows": 3}

    @rota.task("report", after="load")
    async def report(run):
        told.append(run.payload["after"])

    @rota.task("alarm", after="load", on="failure")
    async def alarm(run):
        told.append("alarm")

    async with rota:
        run_id = await rota.enqueue("load")
        await rota.work(until_idle=True)
        assert told == [
            {"run": run_id, "task": "load", "state": "succeeded", "result": {"rows": 3}}
        ]


async def test_a_question_waits_and_its_answer_goes_on(make):
    rota = make()
    steps = []

    @rota.task("order")
    async def order(run):
        size = await run.ask("How many?", options=("1", "2"))
        steps.append(size)
        sure = await run.ask("Sure?")
        return [size, sure]

    async with rota:
        run_id = await rota.enqueue("order")
        for answer in ("2", "yes"):
            await rota.work(until_idle=True)
            assert (await rota.run(run_id)).state is RunState.WAITING
            question = (await rota.store.read(list_questions, [run_id]))[-1]
            await rota.answer(question.id, answer)
        await rota.work(until_idle=True)
        run = await rota.run(run_id)
        assert (run.state, json.loads(run.result)) == (RunState.SUCCEEDED, ["2", "yes"])
        assert steps == ["2", "2"]


async def test_messages_go_out_after_success_only(make):
    channel = RecordingChannel("chat")
    rota = make(channels=[channel])

    @rota.task("job", retry=Retry(attempts=2, base=timedelta(seconds=1), jitter=0))
    async def job(run):
        run.send(f"try {run.attempt}", to="chat:ann")
        if run.attempt == 1:
            raise ValueError

    async with rota:
        await rota.enqueue("job")
        await rota.work(until_idle=True)
        assert channel.sent == []
        rota._clock.advance(seconds=2)
        await rota.work(until_idle=True)
        assert [d.body for d in channel.sent] == ["try 2"]


async def test_a_schedule_fires_and_is_declared_once(make, clock):
    rota = make()
    slots = []

    @rota.task("report")
    async def report(run):
        slots.append(run.slot_at)

    async with rota:
        wish = {"cron": "0 7 * * mon-fri", "timezone": "Europe/Berlin", "catch_up": "latest"}
        first = await rota.schedule("report", **wish)
        assert await rota.schedule("report", **wish) == first
        for day in (3, 4):
            clock.set(datetime(2026, 3, day, 6, 0, 1, tzinfo=UTC))
            await rota.work(until_idle=True)
        assert slots == [datetime(2026, 3, day, 6, 0, tzinfo=UTC) for day in (3, 4)]


async def test_limits_and_rates_hold_in_a_program(make):
    now = most = 0
    rota = make(limits=[Limit(scope=LimitScope.GROUP, key="api", cap=2)])

    @rota.task("call", group="api")
    async def call(run):
        import asyncio

        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    async with rota:
        ids = await rota.enqueue_many("call", range(30))
        await rota.work(until_idle=True)
        assert most <= 2
        assert {(await rota.run(i)).state for i in ids} == {RunState.SUCCEEDED}


async def test_delayed_runs_wait_for_their_time(make, clock):
    rota = make()
    calls = []

    @rota.task("job")
    async def job(run):
        calls.append(run.payload)

    async with rota:
        await rota.enqueue("job", "delay", delay=timedelta(minutes=5))
        await rota.enqueue("job", "at", at=clock.now() + timedelta(minutes=1))
        await rota.work(until_idle=True)
        assert calls == []
        clock.advance(minutes=2)
        await rota.work(until_idle=True)
        assert calls == ["at"]
        clock.advance(minutes=5)
        await rota.work(until_idle=True)
        assert calls == ["at", "delay"]


async def test_a_closed_rota_can_be_opened_again(tmp_path):
    rota = Rota(f"sqlite:///{tmp_path}/rota.db", clock=VirtualClock())
    calls = []

    @rota.task("plain")
    def plain(run):
        calls.append(run.id)

    for _ in range(2):
        async with rota:
            await rota.open()
            await rota.enqueue("plain")
            await rota.work(until_idle=True)
    assert len(calls) == 2
