"""Reads that are asked for at the same time are made once.

Whoever asks gets an answer that was begun after they asked: a look that is under way is never
joined, but everybody who comes meanwhile shares the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Sharing(Generic[Answer]):
    """Answers equal questions together."""

    def __init__(self) -> None:
        self._waiting: dict[Hashable, asyncio.Future[Answer] | None] = {}

    async def ask(self, question: Hashable, look: Callable[[], Awaitable[Answer]]) -> Answer:
        """Return the answer of a look that begins now or later."""
        if question not in self._waiting:
            self._waiting[question] = None
            try:
                return await look()
            finally:
                self._go_on(question, look)
        following = self._waiting[question]
        if following is None:
            following = self._waiting[question] = asyncio.get_running_loop().create_future()
        return await asyncio.shield(following)

    def _go_on(self, question: Hashable, look: Callable[[], Awaitable[Answer]]) -> None:
        """Look again for those who came meanwhile."""
        following = self._waiting[question]
        if following is None:
            del self._waiting[question]
            return
        self._waiting[question] = None
        asyncio.get_running_loop().create_task(self._follow(question, look, following))

    async def _follow(
        self,
        question: Hashable,
        look: Callable[[], Awaitable[Answer]],
        following: asyncio.Future[Answer],
    ) -> None:
        try:
            answer = await look()
        except Exception as fault:  # noqa: BLE001 - handed to everybody who waits for it
            following.set_exception(fault)
            following.exception()
        else:
            following.set_result(answer)
        finally:
            self._go_on(question, look)
