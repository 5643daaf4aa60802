"""Power cuts inside a transaction: a session that fails at its n-th query."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rota.store.store import SqlStore
from rota.store.transactions import Row, Transaction


class PowerCut(Exception):
    """The machine stopped here."""


class BreakingSession:
    """Passes queries on until its fuse is spent."""

    def __init__(self, session: Transaction, fuse: int) -> None:
        self._session = session
        self._fuse = fuse

    def _burn(self) -> None:
        if self._fuse == 0:
            raise PowerCut
        self._fuse -= 1

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row, or fail."""
        self._burn()
        return await self._session.rows(query, **params)

    async def run(self, query: str, **params: object) -> None:
        """Execute a query, or fail."""
        self._burn()
        await self._session.run(query, **params)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert rows, or fail."""
        self._burn()
        return await self._session.insert(query, count, last=last, **params)

    async def enter_claim(self) -> None:
        """Wait for other claims."""
        await self._session.enter_claim()

    def wake(self, topic: str) -> None:
        """Announce a topic."""
        self._session.wake(topic)


async def cut_at_every_query(
    store: SqlStore,
    operation: Callable[..., Coroutine[Any, Any, Any]],
    *args: object,
    check: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """Run a writing operation again and again, cutting the power one query later each time.

    `check` is awaited after every cut. Returns how many cuts there were before it went through.
    """
    cuts = 0

    async def broken(session: Transaction, *given: object) -> object:
        return await operation(BreakingSession(session, cuts), *given)

    while True:
        try:
            await store.write(broken, *args)
        except PowerCut:
            cuts += 1
            await check()
        else:
            return cuts
