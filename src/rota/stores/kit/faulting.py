"""The fault points of transactions: one for each stage of every operation that writes."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any, TypeAlias, TypeVar

from rota.faultpoints import armed, reach
from rota.stores.kit.session import Row, Session

Result = TypeVar("Result")
Operation: TypeAlias = Callable[..., Coroutine[Any, Any, Result]]


def reach_stage(stage: str, *operations: Callable[..., Any]) -> None:
    """Say that a transaction has come to a stage, for each operation it carries."""
    if armed():
        for operation in operations:
            reach(f"{operation.__name__}.{stage}")


def watching(operation: Operation[Result]) -> Operation[Result]:
    """Return an operation, with a fault point before each of its statements if any is armed."""
    if not armed():
        return operation

    @wraps(operation)
    async def watched(session: Session, *args: object) -> Result:
        return await operation(_Watched(session, operation), *args)

    return watched


class _Watched:
    """Reaches a point, then passes a query on."""

    def __init__(self, session: Session, operation: Callable[..., Any]) -> None:
        self._session = session
        self._operation = operation

    async def rows(self, query: str, **params: object) -> list[Row]:
        reach_stage("statement", self._operation)
        return await self._session.rows(query, **params)

    async def run(self, query: str, **params: object) -> None:
        reach_stage("statement", self._operation)
        await self._session.run(query, **params)

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        reach_stage("statement", self._operation)
        return await self._session.insert(query, count, last=last, **params)

    async def enter_claim(self) -> None:
        await self._session.enter_claim()

    def wake(self, topic: str) -> None:
        self._session.wake(topic)
