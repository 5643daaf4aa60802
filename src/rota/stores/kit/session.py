"""A transaction's view of the database: named queries in, plain rows out.

Every operation of the store is written once, as a coroutine over a Session, for both dialects. On
PostgreSQL the event loop awaits it. On SQLite the same coroutine runs to its end on the thread that
owns the connection: its session never suspends, so one `send` finishes it (see `finish`).
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

Row: TypeAlias = Sequence[Any]
Result = TypeVar("Result")

EVENTS = "events"
"""The topic of facts that were recorded; whoever shows them live looks again."""

DELIVERIES = "deliveries"
"""The topic of messages in the outbox."""

MESSAGES = "messages"
"""The topic of messages that somebody may read."""


class Rows(list[dict[str, object]]):
    """A parameter that is a set of records; both dialects receive it as JSON."""


class Session(Protocol):
    """One transaction. Lists are arrays to the query, `Rows` are sets of records."""

    async def rows(self, query: str, **params: object) -> list[Row]:
        """Return every row."""

    async def run(self, query: str, **params: object) -> None:
        """Execute a query for its effect."""

    async def insert(
        self, query: str, count: int, *, last: bool = False, **params: object
    ) -> Sequence[int]:
        """Insert `count` rows and return their ids in the order given.

        `last` says that the operation asks nothing after this, so that a dialect may make one
        statement of the whole transaction.
        """

    async def enter_claim(self) -> None:
        """Wait until no other claim is under way; reads after it see what that claim wrote."""

    def wake(self, topic: str) -> None:
        """Announce a topic to every process once this transaction has committed."""


async def one(session: Session, query: str, **params: object) -> Row | None:
    """Return the first row or None."""
    found = await session.rows(query, **params)
    return found[0] if found else None


def finish(operation: Coroutine[Any, Any, Result]) -> Result:
    """Run an operation whose session never suspends, and return its result."""
    try:
        operation.send(None)
    except StopIteration as done:
        result: Result = done.value
        return result
    operation.close()
    message = "a SQLite session suspended inside a transaction"
    raise RuntimeError(message)
