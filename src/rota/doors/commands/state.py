"""What tasks remember: values under keys, and items they have seen."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.doors.commands.fields import UNSEEN, Json, Limit, Spelled, Word
from rota.doors.commands.finding import task_of
from rota.doors.commands.shapes import Asked, Given, OneTask
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.flow.define import memory
from rota.model.keys import KeyScope
from rota.model.memory import Remembered, Seen

Name = Annotated[
    str,
    Spelled(
        rf"[^{UNSEEN}\x20\xa0/]{{1,256}}",
        "write 1 to 256 characters without spaces or slashes, such as last-mail",
    ),
]


class OneValue(OneTask):
    """One value of a task."""

    key: Name


class NewValue(OneValue):
    """A value to be kept."""

    value: Json


class ValuesOf(OneTask):
    """Which values to list, by key."""

    after: Name | None = None
    limit: Limit = 100


class ValueGiven(Given):
    """A value that a task keeps."""

    key: str
    value: Json
    updated_at: datetime
    updated_by: str


class Values(Given):
    """What a task keeps, by key; `next` continues the list."""

    values: list[ValueGiven]
    next: str | None


class Forgotten(Given):
    """What was forgotten."""

    deleted: bool = True


class NewItem(Asked):
    """An item that was come across."""

    item: Name
    provider: Word = "default"
    data: Json = None


class NewItems(OneTask):
    """Items to be marked, each once."""

    items: list[NewItem] = Field(min_length=1, max_length=memory.MOST_ITEMS)


class OneItem(OneTask):
    """One item of a task."""

    item: Name
    provider: Word = "default"


class ItemGiven(Given):
    """An item, and how often a task has seen it."""

    provider: str
    item: str
    data: Json
    first_seen_at: datetime
    last_seen_at: datetime
    count: int
    new: bool


class Items(Given):
    """Items as they stand now, in the order they were named."""

    items: list[ItemGiven]


def _value(found: Remembered) -> ValueGiven:
    return ValueGiven(
        key=found.key,
        value=json.loads(found.value),
        updated_at=found.updated_at,
        updated_by=found.updated_by,
    )


def _item(found: Seen) -> ItemGiven:
    return ItemGiven(
        provider=found.provider,
        item=found.item,
        data=json.loads(found.data),
        first_seen_at=found.first_at,
        last_seen_at=found.last_at,
        count=found.count,
        new=found.count == 1,
    )


def _items(found: list[Seen]) -> Items:
    return Items(items=[_item(one) for one in found])


@command("GET", "/v1/state/{task}", KeyScope.READ)
async def list_state(office: Office, asked: ValuesOf) -> Values:
    """List what a task keeps."""
    task = await task_of(office, asked.task, asked.space)
    store, caller, after = office.store, office.caller, asked.after or ""
    found = await memory.list_state(
        store, caller, task.name, task.space, after=after, most=asked.limit
    )
    more = found[-1].key if len(found) == asked.limit else None
    return Values(values=[_value(one) for one in found], next=more)


@command("GET", "/v1/state/{task}/{key}", KeyScope.READ)
async def get_state(office: Office, asked: OneValue) -> ValueGiven:
    """Return a value that a task keeps."""
    task = await task_of(office, asked.task, asked.space)
    return _value(
        await memory.get_state(office.store, office.caller, task.name, asked.key, task.space)
    )


@command("PUT", "/v1/state/{task}/{key}", KeyScope.DEFINE)
async def put_state(office: Office, asked: NewValue) -> ValueGiven:
    """Keep a value for a task, whatever stood under its key."""
    task = await task_of(office, asked.task, asked.space)
    office.keep(_value, "put_state")
    kept = await memory.put_state(
        office.store, office.caller, task.name, asked.key, asked.value, task.space
    )
    return _value(kept)


@command("DELETE", "/v1/state/{task}/{key}", KeyScope.DEFINE)
async def drop_state(office: Office, asked: OneValue) -> Forgotten:
    """Forget a value of a task."""
    task = await task_of(office, asked.task, asked.space)
    office.keep(lambda gone: Forgotten() if gone else None, "drop_state")
    await memory.drop_state(office.store, office.caller, task.name, asked.key, task.space)
    return Forgotten()


@command("POST", "/v1/seen/{task}", KeyScope.DEFINE)
async def mark_seen(office: Office, asked: NewItems) -> Items:
    """Count items as seen once more; `new` says that this was the first time."""
    task = await task_of(office, asked.task, asked.space)
    items = [(one.provider, one.item, one.data) for one in asked.items]
    office.keep(_items, "mark_seen")
    return _items(await memory.mark_seen(office.store, office.caller, task.name, items, task.space))


@command("GET", "/v1/seen/{task}/{item}", KeyScope.READ)
async def get_seen(office: Office, asked: OneItem) -> ItemGiven:
    """Return an item as a task has seen it."""
    task = await task_of(office, asked.task, asked.space)
    found = await memory.get_seen(
        office.store, office.caller, task.name, asked.provider, asked.item, task.space
    )
    return _item(found)
