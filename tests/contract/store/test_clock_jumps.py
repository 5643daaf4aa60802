"""Clock jumps: noted once by whoever sees them, and known to whoever comes next."""

from __future__ import annotations

from rota.model.clock_jumps import Leap, Leaps
from rota.model.events import EventName
from rota.store.clock_jumps import (
    get_clock_jumps,
    missed_schedules,
    record_clock_jump,
    record_clock_return,
)
from rota.store.views import list_events
from tests.tools.store_bench import Bench

HOUR = 3_600_000_000


class TestClockJumps:
    """What is known of the clock are facts of the database."""

    async def test_a_leap_is_announced_once_by_however_many_who_see_it(self, bench: Bench) -> None:
        now = bench.store.now()
        assert await bench.store.read(get_clock_jumps) == Leaps(None, None, None)
        leap = Leap(now - 2 * HOUR, now)
        assert await bench.store.write(record_clock_jump, leap)
        assert not await bench.store.write(record_clock_jump, Leap(leap.start - 5, leap.end + 7))
        assert (await bench.store.read(get_clock_jumps)).forward == Leap(
            leap.start - 5, leap.end + 7
        )
        assert await bench.store.write(
            record_clock_jump, Leap(leap.end + HOUR, leap.end + 2 * HOUR)
        )
        assert await names(bench) == [EventName.CLOCK_LEAPT] * 2

    async def test_a_return_is_announced_once_and_ends_the_leap(self, bench: Bench) -> None:
        now = bench.store.now()
        await bench.store.write(record_clock_jump, Leap(now - HOUR, now + HOUR))
        early = Leap(now - HOUR, now + HOUR)
        assert await bench.store.write(record_clock_return, early)
        assert not await bench.store.write(record_clock_return, early)
        assert await bench.store.read(get_clock_jumps) == Leaps(None, early, None)
        assert await names(bench) == [EventName.CLOCK_LEAPT, EventName.CLOCK_RETURNED]

    async def test_a_return_before_anything_was_planned_ends_the_leap_in_silence(
        self, bench: Bench
    ) -> None:
        now = bench.store.now()
        await bench.store.write(record_clock_jump, Leap(now - HOUR, now + HOUR))
        assert not await bench.store.write(record_clock_return, None)
        assert await bench.store.read(get_clock_jumps) == Leaps(None, None, None)

    async def test_a_leap_that_holds_is_no_return(self, bench: Bench) -> None:
        leap = Leap(bench.store.now() - HOUR, bench.store.now())
        await bench.store.write(record_clock_jump, leap)
        assert not await bench.store.write(record_clock_return, None)
        assert (await bench.store.read(get_clock_jumps)).forward == leap

    async def test_schedules_are_planned_up_to_the_farthest(self, bench: Bench) -> None:
        task = await bench.task()
        await bench.planned(task, cron="* * * * *")
        assert (await bench.store.read(get_clock_jumps)).planned is None  # nothing has fired yet
        bench.clock.advance(minutes=2)
        await bench.plan()
        assert (await bench.store.read(get_clock_jumps)).planned == bench.store.now()

    async def test_schedules_with_missed_slots_are_found_by_their_span(self, bench: Bench) -> None:
        task = await bench.task()
        stored = await bench.planned(task, cron="0 * * * *")
        await bench.planned(await bench.task("other"), cron="0 0 1 1 *")
        begin = bench.store.now()
        bench.clock.advance(hours=3, minutes=5)
        await bench.plan()
        span = Leap(begin, bench.store.now())
        assert [
            one.id for one in await bench.store.read(missed_schedules, span, None, None, 10)
        ] == [stored.id]
        assert [
            one.id
            for one in await bench.store.read(missed_schedules, span, task.space_id, task.id, 10)
        ] == [stored.id]
        assert await bench.store.read(missed_schedules, span, task.space_id + 1, None, 10) == []
        assert await bench.store.read(missed_schedules, span, None, task.id + 1, 10) == []
        assert await bench.store.read(missed_schedules, span, None, None, 0) == []
        assert (
            await bench.store.read(missed_schedules, Leap(begin - HOUR, begin), None, None, 10)
            == []
        )


async def names(bench: Bench) -> list[EventName]:
    """Return what was announced of the clock."""
    own = {EventName.CLOCK_LEAPT, EventName.CLOCK_RETURNED}
    return [
        event.name for event in await bench.store.read(list_events, 0, 100) if event.name in own
    ]
