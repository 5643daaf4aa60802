"""Events are read in one order, without a gap and without a second time."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from rota.model.events import START, EventPage, EventPosition, EventTally, cursor_at, position_of
from rota.store.events import (
    count_events,
    count_skipped_slots,
    last_event_position,
    list_events_after,
)
from rota.store.plans import pause_all
from rota.store.views import list_events
from rota.store.workers import prune_runs
from tests.tools.store_bench import MINUTE, Bench, failed


async def page_after(
    bench: Bench,
    after: EventPosition | None,
    most: int = 10,
    *,
    space_id: int | None = None,
    run_id: int | None = None,
) -> EventPage:
    """Return a page once nothing is kept back; on PostgreSQL any writer of the server may do so."""
    while True:
        page = await bench.store.read(
            list_events_after, after, most, space_id=space_id, run_id=run_id
        )
        if not page.hidden:
            return page
        await asyncio.sleep(0)


async def end_of(bench: Bench) -> EventPosition:
    """Return the position of the newest event of all."""
    await page_after(bench, START)
    return await bench.store.read(last_event_position)


class TestEventOrder:
    """A reader goes on where it was, or is told that it cannot."""

    async def _read(self, bench: Bench, after: EventPosition | None, most: int = 3) -> list[int]:
        found: list[int] = []
        while True:
            page = await page_after(bench, after, most)
            assert not page.gap
            assert len(page.events) <= most
            found += [event.id for _, event in page.events]
            after = page.position
            if not page.more:
                return found

    async def test_pages_give_every_event_once(self, bench: Bench) -> None:
        for number in range(7):
            await bench.task(f"job{number}")
        everything = [event.id for event in await bench.store.read(list_events, 0, 100)]
        assert len(everything) == 7
        assert await self._read(bench, None) == everything
        assert await self._read(bench, START) == everything

    async def test_each_event_stands_at_its_own_position(self, bench: Bench) -> None:
        for number in range(4):
            await bench.task(f"job{number}")
        events = (await page_after(bench, None, 10)).events
        positions = [position for position, _ in events]
        assert positions == sorted(set(positions))
        assert [position.event for position in positions] == [event.id for _, event in events]
        for number, position in enumerate(positions):
            assert await self._read(bench, position) == [e.id for _, e in events[number + 1 :]]

    async def test_the_end_is_where_the_next_event_comes(self, bench: Bench) -> None:
        assert await end_of(bench) == START
        await bench.task("before")
        end = await end_of(bench)
        assert not (await page_after(bench, end, 10)).events
        await bench.task("after")
        page = await page_after(bench, end, 10)
        assert [event.name.value for _, event in page.events] == ["task.created"]
        assert page.position == await end_of(bench)

    async def test_a_page_looks_at_no_more_than_asked_whatever_the_space(
        self, bench: Bench
    ) -> None:
        for number in range(3):
            await bench.task(f"job{number}")
        guest = await bench.task("theirs", space="guests")
        page = await page_after(bench, None, 2, space_id=guest.space_id)
        assert (page.events, page.more) == ((), True)
        page = await page_after(bench, page.position, 2, space_id=guest.space_id)
        assert [event.task_id for _, event in page.events] == [guest.id]

    async def test_the_events_of_one_run_are_read_alone(self, bench: Bench) -> None:
        task = await bench.task()
        first, second = await bench.queue(task, 2)
        for lease in await bench.claim():
            await bench.end(lease)
        for run_id in (first, second):
            page = await page_after(bench, None, 10, run_id=run_id)
            assert [event.run_id for _, event in page.events] == [run_id]
            again = await page_after(bench, page.position, 10, run_id=run_id)
            assert (again.events, again.more, again.gap) == ((), False, False)

    async def test_a_commit_that_records_events_is_announced(self, bench: Bench) -> None:
        heard: list[str] = []
        bench.store.subscribe(heard.append)
        await bench.queue(await bench.task())
        assert heard.count("events") == 1
        await bench.end(await bench.claim_one())
        assert heard.count("events") == 2

    async def test_whoever_stands_before_what_was_pruned_is_told(self, bench: Bench) -> None:
        await bench.task("old")
        old = await end_of(bench)
        await bench.task("older than retention too")
        edge = await end_of(bench)
        bench.clock.advance(MINUTE)
        await bench.store.write(prune_runs, bench.store.now(), 100)
        page = await page_after(bench, old, 10)
        assert (page.gap, page.events, page.position) == (True, (), edge)
        assert await end_of(bench) == edge
        for safe in (None, edge):
            page = await page_after(bench, safe, 10)
            assert (page.gap, page.position) == (False, edge)

    async def test_a_cursor_is_understood_by_its_own_database_alone(self, bench: Bench) -> None:
        await bench.task()
        end = await end_of(bench)
        cursor = cursor_at(bench.store.database.incarnation, end)
        assert position_of(cursor, bench.store.database.incarnation) == end
        assert position_of(cursor, "0" * 32) is None
        for wrong in (
            "",
            "7",
            cursor + "0" * 20,
            f"{bench.store.database.incarnation}-1",
            "a-b-c-d",
        ):
            assert position_of(wrong, bench.store.database.incarnation) is None


class TestTally:
    """Events are counted where they are, piece by piece."""

    async def _tally(self, bench: Bench, after: EventPosition, most: int = 100) -> EventTally:
        await page_after(bench, after)
        return await bench.store.read(count_events, after, most, [1_000_000, 5_000_000])

    async def test_events_are_counted_by_name_and_state(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.queue(task, 3)
        for lease in await bench.claim():
            await bench.end(lease, failed(retryable=False) if lease.run_id == 2 else None)
        tally = await self._tally(bench, START)
        assert sorted(tally.events) == [
            ("run.settled", "failed", 1),
            ("run.settled", "succeeded", 2),
            ("task.created", "", 1),
        ]
        assert tally.late == ()
        again = await self._tally(bench, tally.position)
        assert (again.events, again.position, again.more) == ((), tally.position, False)

    async def test_a_piece_ends_where_the_next_begins(self, bench: Bench) -> None:
        for number in range(5):
            await bench.task(f"job{number}")
        counts, after, more = [], START, True
        while more:
            tally = await self._tally(bench, after, 2)
            counts.append(sum(count for _, _, count in tally.events))
            after, more = tally.position, tally.more
        assert counts == [2, 2, 1]

    async def test_lateness_is_counted_from_the_slot_to_the_first_attempt(
        self, bench: Bench
    ) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        ahead = timedelta()
        for late in (0, 2, 5, 9):
            bench.clock.advance(10 * MINUTE - ahead)
            ahead = timedelta(seconds=late)
            bench.clock.advance(ahead)
            await bench.plan()
            await bench.end(await bench.claim_one())
        tally = await self._tally(bench, START)
        assert sorted(tally.late) == [(0, 1, 0), (1, 2, 7_000_000), (2, 1, 9_000_000)]

    async def test_skipped_slots_are_counted_by_reason(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, every="10m")
        await bench.store.write(pause_all, "ann")
        bench.clock.advance(35 * MINUTE)
        await bench.plan()
        assert await bench.store.read(count_skipped_slots) == [("paused", 3)]
