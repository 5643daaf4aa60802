"""Events as they happen: nothing is missed, nothing comes twice, nobody sees what is not theirs."""

from __future__ import annotations

import asyncio
import json
from datetime import timedelta

import pytest

from rota.api import event_stream
from rota.flow.define.keys import revoke_key
from rota.model.attempts import Cancelled
from rota.model.events import cursor_at
from rota.rules.permissions import LOCAL
from rota.store.events import last_event_position, list_events_after
from rota.store.transactions import QueryRows
from rota.store.views import list_events
from rota.store.workers import prune_runs
from tests.tools.interception import intercept

MOST_SENT = 400
"""Events of 60 kB: more than any buffer of this machine and the hub hold together."""


async def test_an_event_is_sent_with_its_cursor_name_and_facts(door):
    client = await door.follow()
    task = await door.bench.task()
    sent = await client.next()
    assert sent.name == "task.created"
    assert sent.id == cursor_at(
        door.store.database.incarnation, await door.store.read(last_event_position)
    )
    assert (sent.data["task_id"], sent.data["name"]) == (task.id, "task.created")


async def test_a_stream_tells_at_once_where_it_stands(door):
    await door.bench.task()
    first = await (await door.follow()).block()
    assert (first.name, first.data) == (None, None)
    await door.bench.task("meanwhile")
    client = await door.follow(Last_Event_ID=first.id)
    assert (await client.next()).data["name"] == "task.created"


@pytest.mark.parametrize("how", ["header", "query"])
async def test_who_comes_again_misses_nothing_and_gets_nothing_twice(door, how):
    task = await door.bench.task()
    client = await door.follow()
    await door.settled(task)
    seen = [await client.next()]
    await client.close()
    for _ in range(5):
        for _ in range(3):
            await door.settled(task)
        options = {"Last_Event_ID": seen[-1].id} if how == "header" else {}
        query = f"?after={seen[-1].id}" if how == "query" else ""
        client = await door.follow(f"/v1/events{query}", **options)
        seen += [await client.next() for _ in range(2)]
        await client.close()
    client = await door.follow(Last_Event_ID=seen[-1].id)
    seen += [await client.next() for _ in range(5)]
    everything = [event.id for event in await door.store.read(list_events, 0, 100)][1:]
    assert [sent.data["id"] for sent in seen] == everything


async def test_events_that_come_while_a_client_catches_up_come_once(door, monkeypatch):
    monkeypatch.setattr(event_stream, "PAGE", 2)
    task = await door.bench.task()
    start = cursor_at(door.store.database.incarnation, await door.store.read(last_event_position))
    for _ in range(9):
        await door.settled(task)
    clients = [await door.follow(Last_Event_ID=start) for _ in range(5)]
    for _ in range(9):
        await door.settled(task)
    everything = [event.id for event in await door.store.read(list_events, 0, 100)][1:]
    for client in clients:
        assert [(await client.next()).data["id"] for _ in range(18)] == everything


async def test_a_cursor_of_another_database_is_reset_once(door):
    for cursor in ("0" * 32 + "-0-1", "no cursor at all", "7"):
        client = await door.follow(Last_Event_ID=cursor)
        assert (await client.next()).name == "reset"
        await door.bench.task(f"job{len(cursor)}")
        assert (await client.next()).name == "task.created"


async def test_a_cursor_older_than_what_is_kept_is_reset(door):
    await door.bench.task("old")
    cursor = cursor_at(door.store.database.incarnation, await door.store.read(last_event_position))
    await door.bench.task("older than what is kept")
    door.bench.clock.advance(timedelta(days=40))
    await door.store.write(prune_runs, door.store.now(), 100)
    client = await door.follow(Last_Event_ID=cursor)
    reset = await client.next()
    assert reset.name == "reset"
    again = await door.follow(Last_Event_ID=reset.id)
    await door.bench.task("new")
    assert (await again.next()).name == (await client.next()).name == "task.created"


async def test_a_run_is_followed_to_its_end(door):
    (run_id,) = await door.bench.queue(await door.bench.task())
    client = await door.follow(f"/v1/runs/{run_id}/events")
    await door.bench.task("noise")
    await door.bench.ask(await door.bench.claim_one())
    assert (await client.next()).name == "run.asked"
    await door.bench.end_open(run_id, Cancelled(reason="enough"))
    assert [sent.name for sent in await client.rest()] == ["run.settled"]


async def test_a_run_that_is_over_is_told_whole_and_then_no_more(door):
    run_id = await door.settled(await door.bench.task())
    client = await door.follow(f"/v1/runs/{run_id}/events")
    (sent,) = await client.rest()
    assert sent.name == "run.settled"
    again = await door.ask(f"/v1/runs/{run_id}/events", Last_Event_ID=sent.id)
    assert again.status == 204


async def test_a_member_sees_its_own_space_alone(door):
    _, ann = await door.member("ann")
    _, bob = await door.member("bob")
    of_ann, of_bob = await door.follow(token=ann), await door.follow(token=bob)
    whole, part = await door.follow(), await door.follow("/v1/events?space=bob")
    await door.bench.task("a", space="ann")
    await door.bench.task("m")
    task = await door.bench.task("b", space="bob")
    for client in (of_bob, part):
        assert (await client.next()).data["task_id"] == task.id
    assert (await whole.names(3)) == ["task.created"] * 3
    assert (await of_ann.next()).data["task_id"] != task.id
    start = cursor_at(
        door.store.database.incarnation,
        (await door.store.read(last_event_position))._replace(event=0),
    )
    missed = await door.follow(token=bob, Last_Event_ID=start)
    assert (await missed.next()).data["task_id"] == task.id


async def test_another_spaces_stream_and_run_do_not_exist(door):
    _, ann = await door.member("ann")
    (run_id,) = await door.bench.queue(await door.bench.task())
    for path in (f"/v1/runs/{run_id}/events", "/v1/runs/99/events", "/v1/events?space=main"):
        assert (await door.ask(path, token=ann)).status == 404
    assert (await door.ask("/v1/events?space=nowhere")).status == 404
    assert (await door.ask("/v1/events?what=1")).status == 400


async def test_a_client_whose_key_is_revoked_is_let_go(door):
    key, ann = await door.member("ann")
    client = await door.follow(token=ann)
    await client.block()
    await revoke_key(door.store, LOCAL, key.id)
    assert await client.next() is None
    assert (await door.ask("/v1/events", token=ann)).status == 401


async def test_f10_streams_are_bounded_for_each_space_however_many_keys_it_has(door, monkeypatch):
    monkeypatch.setattr(event_stream, "MOST_SEATS", 6)
    monkeypatch.setattr(event_stream, "MOST_SEATS_OF_MEMBERS", 4)
    monkeypatch.setattr(event_stream, "MOST_SEATS_OF_SPACE", 3)
    _, ann = await door.member("ann")
    _, again = await door.member("ann")
    _, bob = await door.member("bob")
    clients = [await door.follow(token=token) for token in (ann, again, ann)]
    for token in (ann, again):
        refused = await door.ask("/v1/events", token=token)
        assert refused.status == 503
        assert (await refused.body())["error"]["code"] == "too_many_streams"
    await door.follow(token=bob)
    assert (await door.ask("/v1/events", token=bob)).status == 503, "the rest is for main"
    await door.follow()
    await door.follow()
    assert (await door.ask("/v1/events")).status == 503
    await clients[0].close()
    while (await door.ask("/v1/events", token=ann)).status == 503:
        await asyncio.sleep(0)


async def record_much(session, now):
    """Record an event as large as any may be."""
    event = {"name": "task.changed", "data": json.dumps({"note": "x" * 60_000})}
    await session.run("insert_events", rows=QueryRows([event]), now=now)
    session.wake("events")


async def test_a_client_that_does_not_read_is_cut_with_a_reset(door):
    client, other = await door.follow(), await door.follow()
    await client.block()
    sent = 0
    while sent < MOST_SENT:
        await door.store.write(record_much, door.store.now())
        assert (await other.next()).name == "task.changed"
        sent += 1
    seen = [event.name for event in await client.rest()]
    assert seen.pop() == "reset"
    assert set(seen) == {"task.changed"}
    assert len(seen) < sent


async def test_fifty_clients_cost_one_reader(door):
    clients = [await door.follow() for _ in range(50)]
    for client in clients:
        await client.block()
    asked = []

    async def counted(proceed, *args, **options):
        asked.append(args)
        return await proceed(*args, **options)

    intercept(door.store, list_events_after, counted)
    await door.bench.task()
    assert {(await client.next()).name for client in clients} == {"task.created"}
    assert len(asked) <= 3


async def test_a_silent_stream_beats_and_moves_its_cursor(door, monkeypatch):
    monkeypatch.setattr(event_stream, "HEARTBEAT_SECONDS", 0.01)
    _, ann = await door.member("ann")
    client = await door.follow(token=ann)
    first = await client.block()
    await door.bench.task("in another space")
    end = cursor_at(door.store.database.incarnation, await door.store.read(last_event_position))
    beat = await client.block()
    while beat.id != end:
        assert (beat.name, beat.data) == (None, None)
        beat = await client.block()
    assert end != first.id


async def test_a_daemon_that_ends_lets_its_clients_go(door):
    client = await door.follow()
    await client.block()
    closing = asyncio.create_task(door._stack.aclose())
    assert await client.next() is None
    await closing
