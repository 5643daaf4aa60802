"""Power cuts inside a transaction, which fails at its n-th query."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from rota.store.store import Store
from rota.store.transactions import Row, Transaction


class PowerCut(Exception):
    """The machine stopped here."""


class BreakingTransaction:
    """Passes queries on until its fuse is spent."""

    def __init__(self, tx: Transaction, fuse: int) -> None:
        self._tx = tx
        self._fuse = fuse
        self.cache = tx.cache
        self.now = tx.now
        self.wake = tx.wake
        self.enter_claim = tx.enter_claim

    def _burn(self) -> None:
        if self._fuse == 0:
            raise PowerCut
        self._fuse -= 1

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row, or fail."""
        self._burn()
        return await self._tx.rows(query, **params)

    async def run(self, query: str, **params: object) -> None:
        """Execute a query, or fail."""
        self._burn()
        await self._tx.run(query, **params)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert rows, or fail."""
        self._burn()
        return await self._tx.insert(query, count, last=last, **params)


async def cut_at_every_query(
    store: Store,
    operation: Callable[..., Coroutine[Any, Any, Any]],
    *args: object,
    check: Callable[[], Coroutine[Any, Any, None]],
) -> int:
    """Run a writing operation again and again, cutting the power one query later each time.

    `check` is awaited after every cut. Returns how many cuts there were before it went through.
    """
    cuts = 0

    async def broken(tx: Transaction, /, *given: object) -> object:
        return await operation(BreakingTransaction(tx, cuts), *given)

    while True:
        try:
            await store.write(broken, *args)
        except PowerCut:
            cuts += 1
            await check()
        else:
            return cuts
