"""A backup is whole or not there, and what is restored is what was backed up."""

from __future__ import annotations

import asyncio
import hashlib
import stat
from datetime import timedelta

import pytest

from rota.errors import Busy, Conflict, Invalid, Unavailable
from rota.flow.maintain import back_up, rescue, restore
from rota.flow.observe.verification import verify
from rota.flow.observe.why import explain
from rota.flow.observe.why_facts import WhySpan, load_facts
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.tasks import NewTask, TaskKind
from rota.model.threads import MessageFile, NewFile, NewMessage
from rota.model.views import RunFilter
from rota.store.outbox import claim_deliveries
from rota.store.sqlite.database import MemoryDatabase
from rota.store.tasks import put_task
from rota.store.threads import add_message, list_messages, read_message_file
from rota.store.views import (
    get_run,
    list_deliveries,
    list_questions,
    list_runs,
    list_tasks,
    list_workers,
)
from rota.store.workers import prune_runs, renew_worker
from rota.testing.fakes import FixedChance
from rota.timing.zones import zone
from tests.tools.store_bench import Bench

DAY = timedelta(days=1)


@pytest.fixture
def filled(place, clock, opened_at, make_busy, runner, tmp_path):
    """A busy database, a backup of it, and what stood in it then."""

    async def fill():
        store = await opened_at()
        await make_busy(Bench(store, clock)).fill()
        made = await back_up(store, str(tmp_path / "backup.zip"))
        await store.close()
        return made, await place.rows()

    return runner.run(fill())


async def test_what_is_restored_as_it_stood_is_what_was_backed_up(place, filled, opened_at):
    backup, rows = filled
    done = await restore(place.store("two"), backup.path, as_it_stood=True)
    assert done.backup == backup
    assert done.incarnation not in {"", backup.incarnation}
    found = await place.rows("two")
    sending = [row for row in rows.pop("deliveries") if "sending" in row]
    assert len(sending) == done.passage.messages == 1
    del found["deliveries"]
    assert [row[2] for row in found["events"][len(rows["events"]) :]] == [
        "delivery.unknown",
        "store.restored",
    ]
    found["events"] = found["events"][: len(rows["events"])]
    assert found == rows
    store = await opened_at("two")
    assert store.database.incarnation == done.incarnation
    assert (await verify(store)).clean
    ids = {run.id for run in await store.read(list_runs, RunFilter(limit=1_000))}
    bench = Bench(store, None)
    (task, *_) = await store.read(list_tasks, None)
    assert (await bench.queue(task))[0] == max(ids) + 1


async def test_files_of_messages_come_back_byte_for_byte(place, opened_at, clock, tmp_path):
    store = await opened_at()
    space = await Bench(store, clock).space()
    content = bytes(range(256)) * 300 + b"\\N\t\n"
    facts = MessageFile("a.png", "image/png", len(content), hashlib.sha256(content).hexdigest())
    files = (NewFile(facts, content), NewFile(facts._replace(name="b", size=0), b""))
    said = await store.write(
        add_message, NewMessage(space.id, "cli:default", "ann", "", files=files), None
    )
    made = await back_up(store, str(tmp_path / "backup.zip"))
    await store.close()
    assert made.rows["message_files"] == 2
    await restore(place.store("two"), made.path)
    store = await opened_at("two")
    (found,) = await store.read(list_messages, "cli:default", None, 1 << 62, 10)
    assert found.files == said.files
    assert [await store.read(read_message_file, said.id, at) for at in range(3)] == [
        content,
        b"",
        None,
    ]
    clock.advance(timedelta(days=1))
    await store.write(prune_runs, store.now(), 100)
    assert await store.read(read_message_file, said.id, 0) is None


async def test_after_a_restore_nothing_since_the_backup_is_done_again(
    place, filled, opened_at, clock
):
    backup, rows = filled
    clock.advance(DAY)
    done = await restore(place.store("two"), backup.path)
    store = await opened_at("two")
    assert (await verify(store)).violations == ()
    assert done.passage.slots > 8_640  # every ten seconds of a day, and every five minutes
    assert done.passage.messages == 2
    states = {d.state for d in await store.read(list_deliveries, None, 100)}
    assert states == {DeliveryState.SENT, DeliveryState.DEAD, DeliveryState.UNKNOWN}
    assert await store.write(claim_deliveries, "w1", 10) == []
    await Bench(store, clock).plan()
    (task,) = [task for task in await store.read(list_tasks, None) if task.name == "ticking"]
    assert {row[0] for row in rows["runs"]} == {row[0] for row in (await place.rows("two"))["runs"]}
    span = WhySpan(start=clock.now() - timedelta(minutes=5), end=clock.now())
    story = explain(await load_facts(store, task, span), zone("UTC")).stories[0]
    assert story.outcome == "unknown"
    assert "not caught up: it is unknown what ran between a backup and its" in story.sentence


async def test_slots_after_the_restore_run_again(place, opened_at, clock, tmp_path):
    store = await opened_at()
    bench = Bench(store, clock)
    task = await bench.task()
    await bench.planned(task, every="1h")
    backup = await store.backup(str(tmp_path / "backup.zip"))
    clock.advance(hours=3, minutes=30)
    await restore(place.store("two"), backup.path)
    bench = Bench(await opened_at("two"), clock)
    await bench.plan()
    assert await bench.slots(task) == []
    clock.advance(hours=1)
    await bench.plan()
    assert [run.slot_key for run in await bench.slots(task)] == ["g1:4"]
    assert await bench.ledger(task) == [("restored", 3)]


async def test_with_catch_up_the_policy_decides_about_slots(place, opened_at, clock, tmp_path):
    store = await opened_at()
    bench = Bench(store, clock)
    task = await bench.task()
    await bench.planned(task, every="1h")
    backup = await store.backup(str(tmp_path / "backup.zip"))
    clock.advance(hours=3, minutes=30)
    done = await restore(place.store("two"), backup.path, as_it_stood=True)
    assert done.passage.slots == 0
    bench = Bench(await opened_at("two"), clock)
    await bench.plan()
    assert [run.slot_key for run in await bench.slots(task)] == ["g1:3"]
    assert await bench.ledger(task) == [("coalesced", 2)]


async def test_what_was_running_is_given_back_and_old_leases_count_no_more(
    place, filled, opened_at, clock
):
    backup, _ = filled
    old = await opened_at()
    leases = {run.id: run for run in await old.read(list_runs, RunFilter(state=RunState.RUNNING))}
    assert leases
    await old.close()
    clock.advance(2 * DAY)
    done = await restore(place.store(), backup.path, force=True)
    store = await opened_at()
    assert done.passage.running == len(leases)
    assert await store.read(list_workers) == []
    assert not (await store.write(renew_worker, "w1", store.now() + 1)).alive
    assert await rescue(store, FixedChance(), fence=True) == len(leases)
    for run_id, was in leases.items():
        run = await store.read(get_run, run_id)
        assert (run.state, run.epoch, run.cause) == (RunState.QUEUED, was.epoch, "lost")
    assert (await verify(store)).clean


async def test_an_agent_that_was_running_may_have_been_begun_and_is_asked_about(
    place, opened_at, clock, tmp_path
):
    store = await opened_at()
    bench = Bench(store, clock)
    bench.routes.append("agent")
    space = await bench.space()
    (run_id,) = await bench.queue(
        await store.write(
            put_task,
            NewTask(space_id=space.id, name="look", route="agent", kind=TaskKind.AGENT),
            None,
        )
    )
    await bench.claim_one()
    made = await back_up(store, str(tmp_path / "backup.zip"))
    await store.close()
    await restore(place.store(), made.path, force=True)
    store = await opened_at()
    assert await rescue(store, FixedChance(), fence=True) == 1
    assert (await store.read(get_run, run_id)).state is RunState.WAITING
    (question,) = await store.read(list_questions, [run_id])
    assert (question.question, question.context) == (
        "This run was lost while it was running. Run it again?",
        "it was running when the restored backup was taken",
    )


async def test_ids_that_were_given_out_since_are_not_given_again(place, filled, opened_at, clock):
    backup, rows = filled
    clock.advance(DAY)
    await restore(place.store("two"), backup.path)
    store = await opened_at("two")
    bench = Bench(store, clock)
    (task, *_) = await store.read(list_tasks, None)
    (run_id,) = await bench.queue(task)
    assert run_id >= max(row[0] for row in rows["runs"]) + 86_400_000
    assert run_id % 1_000_000 == 1


async def test_a_database_with_something_in_it_is_not_replaced_unasked(place, filled, clock):
    backup, rows = filled
    clock.advance(2 * DAY)
    with pytest.raises(Conflict, match="not empty: --force"):
        await restore(place.store(), backup.path)
    assert await place.rows() == rows
    await restore(place.store(), backup.path, force=True, as_it_stood=True)
    assert (await place.rows())["runs"] == rows["runs"]


async def test_a_backup_is_private_and_replaces_nothing_unasked(place, opened_at, tmp_path):
    store = await opened_at()
    path = tmp_path / "backup.zip"
    await store.backup(str(path))
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    with pytest.raises(Conflict, match="choose another name, or --force"):
        await store.backup(str(path))
    assert path.read_bytes() == before
    await store.backup(str(path), force=True)
    with pytest.raises(Invalid, match="a folder that exists"):
        await store.backup(str(tmp_path / "no" / "backup.zip"))
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


async def test_a_backup_in_the_middle_of_work_is_one_moment(place, opened_at, clock, tmp_path):
    store = await opened_at()
    bench = Bench(store, clock)
    task = await bench.task()
    path = str(tmp_path / "backup.zip")

    async def work():
        while not saving.done():
            await bench.queue(task, 20)
            for lease in await bench.claim(20):
                await bench.end(lease)

    async with asyncio.TaskGroup() as group:
        saving = group.create_task(store.backup(path))
        group.create_task(work())
    backup = saving.result()
    await restore(place.store("two"), path, as_it_stood=True)
    found = await verify(await opened_at("two"))
    assert found.violations == ()
    assert found.counts.get("runs", 0) == backup.rows["runs"]


async def test_a_store_in_memory_says_that_it_cannot(clock, tmp_path):
    with pytest.raises(Unavailable, match="in memory"):
        await back_up(MemoryDatabase(clock), str(tmp_path / "x"))
    with pytest.raises(Unavailable, match="into memory"):
        await restore(MemoryDatabase(clock), str(tmp_path / "x"))


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_a_file_is_not_replaced_while_somebody_has_it(place, filled, opened_at):
    backup, rows = filled
    other = await opened_at()
    with pytest.raises(Busy, match="another program has the database"):
        await restore(place.store(), backup.path, force=True)
    await other.take_roles()
    with pytest.raises(Busy, match="another Rota"):
        await restore(place.store(), backup.path, force=True)
    await other.close()
    assert await place.rows() == rows


@pytest.mark.parametrize("place", ["sqlite"], indirect=True)
async def test_the_file_that_was_replaced_is_kept_aside(place, filled, tmp_path):
    backup, rows = filled
    done = await restore(place.store(), backup.path, force=True)
    aside = tmp_path / "aside.db"
    (tmp_path / done.aside).rename(aside)
    assert await place.rows("aside") == rows
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_a_server_is_not_replaced_while_a_worker_has_a_lease(place, filled, clock):
    backup, rows = filled
    with pytest.raises(Busy, match="the worker w1 works on the database"):
        await restore(place.store(), backup.path, force=True)
    assert await place.rows() == rows
    clock.advance(2 * DAY)
    await restore(place.store(), backup.path, force=True)


@pytest.mark.parametrize("place", ["postgres"], indirect=True)
async def test_whoever_slept_through_a_restore_can_record_nothing(
    place, opened_at, clock, tmp_path
):
    sleeper, other = await opened_at(), await opened_at()
    bench = Bench(sleeper, clock)
    (run_id,) = await bench.queue(await bench.task())
    backup = await other.backup(str(tmp_path / "backup.zip"))
    lease = await bench.claim_one("sleeper")
    clock.advance(DAY)
    await restore(place.store(), backup.path, force=True)
    again = Bench(await opened_at(), clock)
    again.routes = bench.routes
    assert (await again.claim_one("awake"))[:2] == lease[:2] == (run_id, 1)
    for _ in range(3):
        with pytest.raises(Unavailable, match="was restored: start this process again"):
            await bench.end(lease)
    assert (await again.run(run_id)).worker_id == "awake"
    assert await again.events(run_id) == []
