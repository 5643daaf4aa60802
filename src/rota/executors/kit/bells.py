"""Bells: whoever waits for an attempt is woken when its keeper rings, and when it ends."""

from __future__ import annotations

import asyncio
import os

from rota.executors.kit.keeper.processes import start_time
from rota.executors.kit.lease import boot_time

MOST_WATCHED = 256
"""Each takes a descriptor of this process."""
UNWATCHED_SECONDS = 1.0
"""How often the others are looked at."""


class Bells:
    """The bells of a home's attempts, by their names."""

    def __init__(self) -> None:
        self._bells: dict[str, asyncio.Event] = {}
        self._rang: dict[str, int] = {}
        self._watched: dict[str, int] = {}

    def hang(self, name: str) -> None:
        """Keep what is rung from now on for whoever waits later."""
        self._bells.setdefault(name, asyncio.Event())

    def ring(self, name: str) -> None:
        """Wake whoever waits for an attempt."""
        if name in self._bells:
            self._rang[name] = boot_time()
            self._bells[name].set()

    def rang(self, name: str) -> int:
        """Return when an attempt last rang, in nanoseconds of boot time; 0 if never."""
        return self._rang.get(name, 0)

    def watches(self, name: str) -> bool:
        """Whether the end of a keeper rings."""
        return name in self._watched

    def watch(self, name: str, pid: int, began: int) -> bool:
        """Let the end of a keeper ring; false if the one that began then does not live."""
        if not began or len(self._watched) >= MOST_WATCHED:
            return False
        try:
            handle = os.pidfd_open(pid)
        except OSError:
            return False
        if start_time(pid) != began:
            os.close(handle)
            return False
        self._watched[name] = handle
        asyncio.get_running_loop().add_reader(handle, self._ended, name)
        return True

    async def rung(self, name: str, seconds: float) -> None:
        """Wait until an attempt's bell rings, at most so long."""
        self.hang(name)
        bell = self._bells[name]
        try:
            async with asyncio.timeout(seconds):
                await bell.wait()
        except TimeoutError:
            return
        bell.clear()

    def take_down(self, name: str) -> None:
        """Forget an attempt; whoever still waits for it is woken."""
        self.ring(name)
        self._bells.pop(name, None)
        self._rang.pop(name, None)
        self._unwatch(name)

    def close(self) -> None:
        """Watch nobody any more."""
        for name in tuple(self._watched):
            self._unwatch(name)

    def _ended(self, name: str) -> None:
        self._unwatch(name)
        self.ring(name)

    def _unwatch(self, name: str) -> None:
        handle = self._watched.pop(name, None)
        if handle is not None:
            asyncio.get_running_loop().remove_reader(handle)
            os.close(handle)
