"""Wake-ups between processes, and what happens when connections die."""

from __future__ import annotations

import asyncio

import pytest

from rota.store.postgres.listener import TOPICS, DatabaseClock
from rota.store.settlement import disable_task
from rota.store.views import list_spaces

TERMINATE = """
select count(pg_terminate_backend(pid)) from pg_stat_activity
where datname = current_database() and pid <> pg_backend_pid()
"""


async def record(bench):
    """Return a queue of every topic but `events` that a working process announces from now on."""
    topics = asyncio.Queue()
    await bench.store.take_roles()
    bench.store.subscribe(lambda topic: topic == "events" or topics.put_nowait(topic))
    return topics


async def test_a_commit_wakes_other_stores(open_bench):
    one, two = await open_bench(), await open_bench()
    heard = await record(two)
    await one.queue(await one.task())
    assert await heard.get() == "runs"


async def test_a_store_announces_its_own_commits_once(open_bench):
    one, two = await open_bench(), await open_bench()
    own, others = await record(one), await record(two)
    task = await one.task()
    for _ in range(3):
        await one.queue(task)
    await two.queue(task)
    for _ in range(4):
        assert await others.get() == "runs"
    assert [await own.get() for _ in range(4)] == ["runs"] * 4
    assert own.empty()


async def test_a_store_that_takes_no_roles_does_not_listen(open_bench, connection):
    one = await open_bench()
    await one.queue(await one.task())
    listening = "select count(*) from pg_stat_activity where query ilike 'listen%' and datname = $1"
    database = await connection.fetchval("select current_database()")
    assert await connection.fetchval(listening, database) == 0


async def test_a_commit_that_has_nothing_to_tell_stays_silent(open_bench):
    one, two = await open_bench(), await open_bench()
    heard = await record(two)
    await one.queue(await one.task())
    assert await heard.get() == "runs"
    for lease in await one.claim():
        await one.end(lease)
    await one.queue(await one.task())
    assert await heard.get() == "runs"
    assert heard.empty()


async def test_a_listener_that_was_cut_off_comes_back_and_announces_everything(
    open_bench, connection
):
    one, two = await open_bench(), await open_bench()
    heard = await record(two)
    await connection.execute("select pg_terminate_backend($1)", two.store._watch.pid)
    wanted = set(TOPICS) - {"events"}
    assert {await heard.get() for _ in wanted} == wanted
    await one.queue(await one.task())
    assert await heard.get() == "runs"


async def test_a_store_goes_on_after_every_connection_was_cut(open_bench, connection):
    one, two = await open_bench(), await open_bench()
    task = await one.task()
    two.routes = one.routes
    first = await one.queue(task, 3)
    await asyncio.gather(*(one.store.read(list_spaces) for _ in range(5)))
    heard = await record(one)
    await connection.execute(TERMINATE)
    while await heard.get() != "cancels":
        pass
    second = await one.queue(task, 3)
    assert await two.claim_ids() == [*first, *second]
    await two.queue(task)
    while await heard.get() != "runs":
        pass


async def test_a_write_cut_in_its_middle_is_undone_and_the_store_goes_on(bench, connection):
    task = await bench.task()

    async def cut(session, run_id):
        await session.rows("lock_runs", ids=[run_id])
        await session.run("prune_runs", ids=[run_id])
        await connection.execute(TERMINATE)
        await session.rows("lock_runs", ids=[run_id])

    (run_id,) = await bench.queue(task)
    with pytest.raises(Exception, match="cannot reach the database") as caught:
        await bench.store.write(cut, run_id)
    assert caught.type.__name__ == "Unavailable"
    assert await bench.claim_ids() == [run_id]


async def test_a_cancelled_write_leaves_no_transaction_behind(bench):
    task = await bench.task()
    entered = asyncio.Event()

    async def wait(session):
        await session.enter_claim()
        entered.set()
        await asyncio.Event().wait()

    writing = asyncio.get_running_loop().create_task(bench.store.write(wait))
    await entered.wait()
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    (run_id,) = await bench.queue(task)
    assert await bench.claim_ids() == [run_id]


async def test_reads_that_ask_twice_see_one_state(bench, connection):
    asked = []

    async def ask_twice(session):
        asked.append(1)
        before = await session.rows("list_spaces")
        if len(asked) > 1:
            await connection.execute(
                "insert into rota.spaces (name, role, timezone, created_at)"
                " values ('new', 'member', 'UTC', 1)"
            )
        return before == await session.rows("list_spaces")

    assert await bench.store.read(ask_twice)
    assert len(asked) == 2


async def test_text_that_postgres_cannot_hold_is_kept_as_far_as_possible(bench):
    task = await bench.task("job", space="main")
    strange = "a\0b \ud800 \N{GRINNING FACE} \\u0000"
    (outcome,) = (await bench.enqueue(bench.batch(task, [1], ["k\0"])))[0]
    assert (await bench.run(outcome.run_id)).key == "k\N{REPLACEMENT CHARACTER}"
    await bench.store.write(disable_task, task, strange, None, [])
    reason = (await bench.task_of(task)).disabled_reason
    assert reason == "a\N{REPLACEMENT CHARACTER}b ? \N{GRINNING FACE} \\u0000"


class Ticking:
    """A monotonic clock in a test's hands."""

    def __init__(self):
        self.seconds = 100.0

    def now(self):
        raise AssertionError

    def monotonic(self):
        return self.seconds


class Answering:
    """A connection that answers with given times after given delays."""

    def __init__(self, clock, *answers):
        self._clock = clock
        self._answers = list(answers)

    async def fetchval(self, _sql):
        delay, micros = self._answers.pop(0)
        self._clock.seconds += delay
        return micros


async def test_the_clock_follows_the_reading_with_the_shortest_round_trip():
    ticking = Ticking()
    clock = DatabaseClock(ticking)
    readings = [(0.5, 7_000_000), (0.002, 7_501_000), (0.5, 9_000_000)]
    await clock.set_by(Answering(ticking, *readings))
    assert clock.now() == 7_502_000 + 500_000


async def test_the_clock_never_goes_back():
    ticking = Ticking()
    clock = DatabaseClock(ticking)
    await clock.set_by(Answering(ticking, *[(0.0, 5_000_000)] * 3))
    assert clock.now() == 5_000_000
    await clock.set_by(Answering(ticking, *[(0.0, 1_000_000)] * 3))
    assert clock.now() == 5_000_000
    ticking.seconds += 6
    assert clock.now() == 7_000_000


async def test_the_stores_time_is_the_databases(bench, connection):
    read = "select (extract(epoch from clock_timestamp()) * 1000000)::bigint"
    before = await connection.fetchval(read)
    now = bench.store.now()
    after = await connection.fetchval(read)
    assert before - 100_000 <= now <= after + 100_000
