"""Aside: what a look at an attempt would have to wait for is done in a thread, not in the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from rota.executors.kit.reaping import reap
from rota.executors.kit.sweeping import sweep

LAST_SECONDS = 5.0
"""How long a keeper may take to end after its ending: it rings until it is heard, for a second."""


class Aside:
    """Sweeps and reaps for a yard; `swept` is told whose sweep is done, well or not."""

    def __init__(self, swept: Callable[[str], None], sweep: Callable[[str], int] = sweep) -> None:
        self._swept = swept
        self._sweep = sweep
        self._sweeping: dict[str, asyncio.Future[int]] = {}

    def sweep(self, name: str) -> int | None:
        """Return what a sweep has come to, which is begun if there is none; None until then."""
        found = self._sweeping.get(name)
        if found is None:
            found = asyncio.get_running_loop().run_in_executor(None, self._sweep, name)
            found.add_done_callback(lambda _: self._swept(name))
            self._sweeping[name] = found
        return self._sweeping.pop(name).result() if found.done() else None

    def reap(self, folder: Path) -> None:
        """Wait for the keeper of an attempt that is over, which may take a moment longer."""
        if not reap(folder, seconds=0):
            asyncio.get_running_loop().run_in_executor(None, reap, folder, LAST_SECONDS)
