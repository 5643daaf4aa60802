"""The poller: the loop that every long-running part of Rota uses."""

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
STUCK_SECONDS = 60.0
"""Seconds after which a step counts as stuck; it is cancelled and started again."""

Step: TypeAlias = Callable[[], Awaitable[float]]
"""One bounded batch of work; returns how many seconds to rest, 0 if more work is waiting."""


class Poller:
    """Runs a step repeatedly until stopped, with rests between steps and back-off after failures.

    A wake-up ends a rest early, also one that arrives during a step. A step that raises or takes
    longer than `patience` is logged, and repeated after an increasing pause.
    """

    def __init__(
        self,
        name: str,
        step: Step,
        clock: Clock,
        chance: Random,
        *,
        patience: float = STUCK_SECONDS,
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
        """Seconds since the last successful step."""
        return self._clock.monotonic() - self._stepped_at

    async def run(self) -> None:
        """Run steps until stopped; a second concurrent call returns at once."""
        if self._running:
            log.debug("poller.already_running", extra={"poller": self.name})
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
        """Shorten long rests at random, so that machines do not synchronize; never lengthen them.

        A rest may end when a slot is due, and a longer one would make it late.
        """
        if rest < MIN_JITTERED:
            return rest
        return rest * (1 - JITTER * self._chance.random())

    async def _one_step(self) -> float | None:
        try:
            async with asyncio.timeout(self._patience):
                rest = await self._step()
        except TimeoutError:
            self._record_error(f"stuck for more than {self._patience:.0f} s")
            log.exception("poller.stuck", extra={"poller": self.name})
            return None
        except Unavailable as error:
            self._record_error(str(error))
            log.warning("poller.unavailable", extra={"poller": self.name, "error": str(error)})
            return None
        except Exception as error:
            self._record_error(f"{type(error).__name__}: {error}")
            log.exception("poller.step_failed", extra={"poller": self.name})
            return None
        self._stepped_at = self._clock.monotonic()
        self.last_error = None
        return rest

    def _record_error(self, error: str) -> None:
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
