"""The one loop: steps, rests, wake-ups, failures."""

from __future__ import annotations

import asyncio

import pytest

from rota.errors import Unavailable
from rota.runtime.poller import Poller

LONG = 1_000.0


class Steps:
    """Counts steps and says when one has begun; raises or returns what it was given."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.count = 0
        self.begun = asyncio.Event()

    async def __call__(self):
        self.count += 1
        self.begun.set()
        answer = self.answers.pop(0) if self.answers else LONG
        if isinstance(answer, BaseException):
            raise answer
        if isinstance(answer, asyncio.Event):
            await answer.wait()
            return LONG
        return answer

    async def next(self):
        """Wait for a step to begin."""
        async with asyncio.timeout(10):
            await self.begun.wait()
        self.begun.clear()


def service_of(steps, clock, chance, **options):
    return Poller("test", steps, clock, chance, **options)


async def test_a_step_without_rest_is_followed_by_the_next(clock, chance):
    steps = Steps(0.0, 0.0, 0.0)
    service = service_of(steps, clock, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        while steps.count < 4:
            await steps.next()
        service.stop()
    assert steps.count == 4


async def test_a_wake_up_ends_a_rest(clock, chance):
    steps = Steps()
    service = service_of(steps, clock, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        for _ in range(3):
            await steps.next()
            service.wake()
        service.stop()
    assert steps.count == 3


async def test_a_wake_up_during_a_step_is_not_lost(clock, chance):
    going = asyncio.Event()
    steps = Steps(going)
    service = service_of(steps, clock, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await steps.next()
        service.wake()
        going.set()
        await steps.next()
        service.stop()
    assert steps.count == 2


@pytest.mark.parametrize("fault", [ValueError("bad"), Unavailable("no database"), KeyError("x")])
async def test_a_step_that_fails_is_noted_and_tried_again(clock, chance, fault):
    steps = Steps(fault)
    service = service_of(steps, clock, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await steps.next()
        await asyncio.sleep(0)
        assert service.failures == 1
        assert str(fault.args[0]) in service.last_error
        service.wake()
        await steps.next()
        service.stop()
    assert service.last_error is None
    assert service.failures == 1


async def test_a_stuck_step_is_given_up_and_begun_anew(clock, chance):
    steps = Steps(asyncio.Event())
    service = service_of(steps, clock, chance, patience=0.01)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await steps.next()
        async with asyncio.timeout(10):
            while service.failures == 0:
                await asyncio.sleep(0)
        assert "stuck" in service.last_error
        service.wake()
        await steps.next()
        service.stop()


async def test_it_tells_how_long_it_has_been_silent(clock, chance):
    steps = Steps(ValueError("x"))
    service = service_of(steps, clock, chance)
    clock.advance(seconds=30)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await steps.next()
        await asyncio.sleep(0)
        assert service.silent_for == 30
        service.wake()
        await steps.next()
        await asyncio.sleep(0)
        assert service.silent_for == 0
        service.stop()


async def test_stopping_before_and_twice_is_harmless(clock, chance):
    steps = Steps()
    service = service_of(steps, clock, chance)
    service.stop()
    service.stop()
    await service.run()
    assert steps.count == 0


async def test_a_second_run_returns_at_once(clock, chance):
    steps = Steps()
    service = service_of(steps, clock, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(service.run())
        await steps.next()
        await service.run()
        service.stop()
    assert steps.count == 1
