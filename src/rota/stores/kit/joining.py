"""Group commit: what waits while one batch is being written goes into the next one together."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from rota.errors import Unavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")

WORTH_SHARING = 8
"""How many callers another writer must have to begin; fewer go with the batch that is next."""


class Joiner(Generic[Item, Answer]):
    """Joins the items of concurrent callers into one write; each caller gets its own answers.

    A caller returns only after the write that carried its items has committed. A joined write
    belongs to no caller, so one that is cancelled takes nobody else's answer with it. If a joined
    write fails, every caller's items are written on their own, so that one caller's fault stays its
    own. Only when the database was lost is nothing written again: the write may have happened.

    Where another process does the writing, a second writer may be worth it: while one batch is on
    its way, the answers of the other are given out. Each takes half of what waits.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Item]], Awaitable[Sequence[Answer]]],
        most: int,
        *,
        writers: int = 1,
    ) -> None:
        self._write = write
        self._most = most
        self._most_writers = writers
        self._waiting: list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]] = []
        self._writers: set[asyncio.Task[None]] = set()
        self._alone = False

    async def put(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write items, alone or together with others, and return their answers in order."""
        if not self._writers and not self._alone:
            return await self._put_alone(items)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[Answer]] = loop.create_future()
        self._waiting.append((items, answer))
        return await answer

    async def _put_alone(self, items: Sequence[Item]) -> Sequence[Answer]:
        """Write for a caller that found nobody writing; who came meanwhile is written after."""
        self._alone = True
        try:
            return await self._write(items) if items else ()
        finally:
            self._alone = False
            self._call_writer()

    async def close(self) -> None:
        """Wait until everything that was put has been written."""
        while self._writers:
            await asyncio.wait(self._writers)

    def _call_writer(self) -> None:
        if self._waiting:
            writer = asyncio.get_running_loop().create_task(self._write_all())
            self._writers.add(writer)
            writer.add_done_callback(self._writers.discard)

    async def _write_all(self) -> None:
        while self._waiting:
            share = len(self._waiting) // 2
            if len(self._writers) < self._most_writers and share >= WORTH_SHARING:
                taken = self._take(share)
                self._call_writer()
            else:
                taken = self._take(self._most)
            await self._write_next(taken)
            await asyncio.sleep(0)  # whoever was answered may come at once with more

    def _take(self, most: int) -> list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]:
        count = size = 0
        while count < len(self._waiting) and (size < most or count == 0):
            size += len(self._waiting[count][0])
            count += 1
        taken, self._waiting = self._waiting[:count], self._waiting[count:]
        return [(items, answer) for items, answer in taken if not answer.done()]

    async def _write_next(
        self, callers: list[tuple[Sequence[Item], asyncio.Future[Sequence[Answer]]]]
    ) -> None:
        joined = [item for items, _ in callers for item in items]
        if not joined:
            for _, answer in callers:
                _resolve(answer, ())
            return
        try:
            answers = await self._write(joined)
        except Exception as fault:  # noqa: BLE001 - handed to the caller it belongs to
            if len(callers) == 1 or isinstance(fault, Unavailable):
                for _, answer in callers:
                    _refuse(answer, fault)
                return
            for caller in callers:
                await self._write_next([caller])
            return
        start = 0
        for items, answer in callers:
            _resolve(answer, answers[start : start + len(items)])
            start += len(items)


def _resolve(answer: asyncio.Future[Sequence[Answer]], answers: Sequence[Answer]) -> None:
    if not answer.done():
        answer.set_result(answers)


def _refuse(answer: asyncio.Future[Sequence[Answer]], fault: Exception) -> None:
    if not answer.done():
        answer.set_exception(fault)
