"""The one loop: every long-lived part of Rota is a poller with a step."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from rota.errors import Unavailable
from rota.ports.clock import Clock, Random

log = logging.getLogger(__name__)

FIRST_PAUSE = 0.5
MAX_PAUSE = 30.0
JITTER = 0.1
MIN_JITTERED = 5.0
PATIENCE = 60.0
"""A step that takes longer than this many seconds is stuck; it is given up and begun anew."""

Step: TypeAlias = Callable[[], Awaitable[float]]
"""One bounded batch of work; returns how many seconds to rest, zero meaning more is waiting."""


class Poller:
    """Runs a step until stopped, resting between steps and backing off on failure.

    A wake-up cuts a rest short, even one that arrives while the step is running. A step that
    raises, or that takes longer than `patience`, is logged and tried again after a growing pause:
    one policy, in one place, for every loop in the system.
    """

    def __init__(
        self, name: str, step: Step, clock: Clock, chance: Random, *, patience: float = PATIENCE
    ) -> None:
        self.name = name
        self.failures = 0
        self.last_error: str | None = None
        self._step = step
        self._clock = clock
        self._chance = chance
        self._patience = patience
        self._woken = asyncio.Event()
        self._stopped = False
        self._running = False
        self._stepped_at = clock.monotonic()

    @property
    def silent_for(self) -> float:
        """Seconds since a step last ended well."""
        return self._clock.monotonic() - self._stepped_at

    async def run(self) -> None:
        """Step until stopped; a second run of the same service returns at once."""
        if self._running:
            log.debug("service.already_running", extra={"service": self.name})
            return
        self._running = True
        pause = FIRST_PAUSE
        try:
            while not self._stopped:
                self._woken.clear()
                rest = await self._one_step()
                if rest is None:
                    rest, pause = pause, min(pause * 2, MAX_PAUSE)
                else:
                    pause = FIRST_PAUSE
                if not self._stopped:
                    await self._rest(self._jittered(rest))
        finally:
            self._running = False

    def _jittered(self, rest: float) -> float:
        """Shorten long rests a little, so that machines do not march in step; never lengthen one.

        A rest may end at a due instant, and waking late would make a slot late.
        """
        if rest < MIN_JITTERED:
            return rest
        return rest * (1 - JITTER * self._chance.random())

    async def _one_step(self) -> float | None:
        try:
            async with asyncio.timeout(self._patience):
                rest = await self._step()
        except TimeoutError:
            self._note(f"stuck for more than {self._patience:.0f} s")
            log.exception("service.stuck", extra={"service": self.name})
            return None
        except Unavailable as error:
            self._note(str(error))
            log.warning("service.unavailable", extra={"service": self.name, "error": str(error)})
            return None
        except Exception as error:
            self._note(f"{type(error).__name__}: {error}")
            log.exception("service.step_failed", extra={"service": self.name})
            return None
        self._stepped_at = self._clock.monotonic()
        self.last_error = None
        return rest

    def _note(self, error: str) -> None:
        self.failures += 1
        self.last_error = error

    def wake(self) -> None:
        """End the current rest early."""
        self._woken.set()

    def stop(self) -> None:
        """Finish the current step, then return from run."""
        self._stopped = True
        self._woken.set()

    async def _rest(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(seconds):
                await self._woken.wait()
        except TimeoutError:
            return
