"""What tasks remember: values under keys, and items they have seen."""

from __future__ import annotations

from collections.abc import Sequence

from rota.model.instants import from_micros
from rota.model.memory import Remembered, Seen
from rota.stores.kit.session import Row, Rows, Session, one


def _as_remembered(row: Row) -> Remembered:
    return Remembered(key=row[0], value=row[1], updated_at=from_micros(row[2]), updated_by=row[3])


def _as_seen(row: Row) -> Seen:
    return Seen(
        provider=row[0],
        item=row[1],
        data=row[2],
        first_at=from_micros(row[3]),
        last_at=from_micros(row[4]),
        count=row[5],
    )


async def put_state(
    session: Session, task_id: int, key: str, value: str, who: str, now: int
) -> Remembered:
    """Keep a value under a key, whatever stood there."""
    await session.run("put_state", task_id=task_id, key=key, value=value, who=who, now=now)
    return Remembered(key=key, value=value, updated_at=from_micros(now), updated_by=who)


async def get_state(session: Session, task_id: int, key: str) -> Remembered | None:
    """Return what stands under a key."""
    row = await one(session, "get_state", task_id=task_id, key=key)
    return None if row is None else _as_remembered(row)


async def list_state(session: Session, task_id: int, after: str, most: int) -> list[Remembered]:
    """Return what a task keeps, by key."""
    rows = await session.rows("list_state", task_id=task_id, after=after, most=most)
    return [_as_remembered(row) for row in rows]


async def count_state(session: Session, task_id: int) -> int:
    """Return how many values a task keeps."""
    return int((await session.rows("count_state", task_id=task_id))[0][0])


async def drop_state(session: Session, task_id: int, key: str) -> bool:
    """Forget what stands under a key; false if nothing does."""
    return bool(await session.rows("drop_state", task_id=task_id, key=key))


async def mark_seen(
    session: Session, task_id: int, items: Sequence[tuple[str, str, str]], now: int
) -> list[Seen]:
    """Count items (provider, item, data) as seen once more; each at most once in a call."""
    rows = Rows({"provider": p, "item": i, "data": d} for p, i, d in items)
    found = await session.rows("mark_seen", task_id=task_id, rows=rows, now=now)
    by_name = {(row[0], row[1]): _as_seen(row) for row in found}
    return [by_name[provider, item] for provider, item, _ in items]


async def get_seen(session: Session, task_id: int, provider: str, item: str) -> Seen | None:
    """Return an item as it was seen, or None."""
    row = await one(session, "get_seen", task_id=task_id, provider=provider, item=item)
    return None if row is None else _as_seen(row)
