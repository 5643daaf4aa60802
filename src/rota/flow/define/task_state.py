"""State values and seen items of tasks."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rota.errors import Invalid, NotFound
from rota.flow.lookup import get_task
from rota.model.tasks import SeenItem, StateEntry
from rota.rules.permissions import Caller
from rota.store import tasks as store_tasks
from rota.store.store import Store
from rota.store.tasks import count_state

LONGEST_KEY = 256
LONGEST_VALUE = 64 * 1024
MOST_VALUES = 10_000
LONGEST_ITEM = 512
LONGEST_PROVIDER = 128
MOST_ITEMS = 1_000
_ENCODE = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode


async def put_state(
    store: Store, caller: Caller, task: str, key: str, value: object, space: str = "main"
) -> StateEntry:
    """Store a value under a key of a task."""
    owner = await get_task(store, caller, task, space)
    check_word("key", key, LONGEST_KEY)
    text = encode("value", value)
    new = await store.read(store_tasks.get_state, owner.id, key) is None
    if new:
        await check_room(store, owner.id, key)
    return await store.write(store_tasks.put_state, owner.id, key, text, caller.name)


async def get_state(
    store: Store, caller: Caller, task: str, key: str, space: str = "main"
) -> StateEntry:
    """Return the value of a key of a task."""
    owner = await get_task(store, caller, task, space)
    found = await store.read(store_tasks.get_state, owner.id, key)
    if found is None:
        raise NotFound("state", key, f"see `rota state list {task}`")
    return found


async def list_state(
    store: Store, caller: Caller, task: str, space: str = "main", *, after: str = "", most: int
) -> list[StateEntry]:
    """Return the values of a task by key."""
    owner = await get_task(store, caller, task, space)
    return await store.read(store_tasks.list_state, owner.id, after, most)


async def drop_state(
    store: Store, caller: Caller, task: str, key: str, space: str = "main"
) -> None:
    """Delete the value of a key of a task."""
    owner = await get_task(store, caller, task, space)
    if not await store.write(store_tasks.drop_state, owner.id, key):
        raise NotFound("state", key, f"see `rota state list {task}`")


async def mark_seen(
    store: Store,
    caller: Caller,
    task: str,
    items: Sequence[tuple[str, str, object]],
    space: str = "main",
) -> list[SeenItem]:
    """Mark items (provider, item, data) of a task as seen."""
    owner = await get_task(store, caller, task, space)
    rows = seen_rows(items)
    return await store.write(store_tasks.mark_seen, owner.id, rows)


async def get_seen(
    store: Store, caller: Caller, task: str, provider: str, item: str, space: str = "main"
) -> SeenItem:
    """Return a seen item of a task."""
    owner = await get_task(store, caller, task, space)
    found = await store.read(store_tasks.get_seen, owner.id, provider, item)
    if found is None:
        raise NotFound("item", item, "it has not been seen")
    return found


async def check_room(store: Store, task_id: int, key: str) -> None:
    """Refuse another value if a task has the maximum number."""
    if await store.read(count_state, task_id) >= MOST_VALUES:
        raise Invalid("key", key, f"a task keeps at most {MOST_VALUES} values: delete some first")


def seen_rows(items: Sequence[tuple[str, str, object]]) -> list[tuple[str, str, str]]:
    """Return items (provider, item, data) as rows, or refuse them."""
    if not 0 < len(items) <= MOST_ITEMS:
        raise Invalid("items", len(items), f"mark 1 to {MOST_ITEMS} items at once")
    if len({(provider, item) for provider, item, _ in items}) != len(items):
        raise Invalid("items", len(items), "name each item once in a request")
    for provider, item, _ in items:
        check_word("provider", provider, LONGEST_PROVIDER)
        check_word("item", item, LONGEST_ITEM)
    return [(provider, item, encode("data", data)) for provider, item, data in items]


def check_word(field: str, word: str, most: int) -> None:
    """Refuse a text that is empty, too long or not printable."""
    if not (0 < len(word) <= most and word.isprintable()):
        raise Invalid(field, word, f"use 1 to {most} printable characters")


def encode(field: str, value: object) -> str:
    """Return a value as JSON text, or refuse it."""
    try:
        text = _ENCODE(value)
    except (TypeError, ValueError, RecursionError) as fault:
        raise Invalid(field, value, f"must be plain JSON values ({fault})") from None
    if len(text.encode()) > LONGEST_VALUE:
        raise Invalid(field, text, f"has more than {LONGEST_VALUE} bytes: keep it in a file")
    return text
