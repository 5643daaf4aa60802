"""What a dialect brings: a clock, transactions, and a voice that reaches every process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")
Listener = Callable[[str], None]


class Dialect(ABC):
    """Carries out operations, each as one transaction."""

    def __init__(self) -> None:
        self._listeners: list[Listener] = []

    @abstractmethod
    def now(self) -> int:
        """Return the store's own time in microseconds; every decision uses this clock."""

    @abstractmethod
    async def write(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation in a transaction that has committed when this returns."""

    async def write_lightly(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation in a transaction that may be lost with the power, and only so.

        For what can be read again from where it came; a dialect may spare the disk a sync.
        """
        return await self.write(operation, *args)

    @abstractmethod
    async def read(
        self, operation: Callable[..., Coroutine[Any, Any, Result]], *args: object
    ) -> Result:
        """Run an operation that only reads, on one consistent view."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call a listener with every topic that is announced; returns how to stop that."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def announce(self, topics: Sequence[str]) -> None:
        """Tell every listener of this process about topics."""
        for listener in tuple(self._listeners):
            for topic in topics:
                listener(topic)
