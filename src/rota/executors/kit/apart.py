"""Threads for what may hang: an engine, a pane, a server. Those of the loop are everybody's."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar, TypeVarTuple

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

AT_ONCE = 8
"""Who asks the same; others wait."""


class Apart:
    """Does what may hang; it holds up nobody but who asks the same."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    async def do(self, asked: str, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what some work comes to that asks something; its thread ends with it."""
        async with self._turns[asked]:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"rota-{asked}")
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, work, *args)
            finally:
                thread.shutdown(wait=False)
