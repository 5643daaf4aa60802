"""Task state: values under keys, and seen items."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import UNSEEN, Json, Limit, TextFormat, Word, resolve_task
from rota.commands.responses import From, RequestModel, ResponseModel, TaskSelector
from rota.flow.define import task_state
from rota.model.keys import KeyScope
from rota.model.tasks import SeenItem
from rota.store import tasks as store_tasks

Name = Annotated[
    str,
    TextFormat(
        rf"[^{UNSEEN}\x20\xa0/]{{1,256}}",
        "write 1 to 256 characters without spaces or slashes, such as last-mail",
    ),
]


class StateSelector(TaskSelector):
    """One value of a task."""

    key: Name


class SetState(StateSelector):
    """A value to be kept."""

    value: Json


class StateQuery(TaskSelector):
    """Which values to list, by key."""

    after: Name | None = None
    limit: Limit = 100


class StateResponse(ResponseModel):
    """A value that a task keeps."""

    key: str
    value: Annotated[Json, From(read=json.loads)]
    updated_at: datetime
    updated_by: str


class StateList(ResponseModel):
    """What a task keeps, by key; `next` continues the list."""

    values: list[StateResponse]
    next: str | None


class StateRemovedResponse(ResponseModel):
    """What was forgotten."""

    deleted: bool = True


class SeenItemInput(RequestModel):
    """An item that was come across."""

    item: Name
    provider: Word = "default"
    data: Json = None


class MarkSeen(TaskSelector):
    """Items to be marked, each once."""

    items: list[SeenItemInput] = Field(min_length=1, max_length=task_state.MOST_ITEMS)


class SeenItemSelector(TaskSelector):
    """One item of a task."""

    item: Name
    provider: Word = "default"


class SeenItemResponse(ResponseModel):
    """An item, and how often a task has seen it."""

    provider: str
    item: str
    data: Annotated[Json, From(read=json.loads)]
    first_seen_at: Annotated[datetime, From("first_at")]
    last_seen_at: Annotated[datetime, From("last_at")]
    count: int
    new: Annotated[bool, From("count", lambda count: count == 1)]


class SeenItemList(ResponseModel):
    """Items as they stand now, in the order they were named."""

    items: list[SeenItemResponse]


def _items(found: list[SeenItem]) -> SeenItemList:
    return SeenItemList(items=[SeenItemResponse.from_model(one) for one in found])


@command("GET", "/v1/state/{task}", KeyScope.READ)
async def list_state(office: RequestContext, asked: StateQuery) -> StateList:
    """List what a task keeps."""
    task = await resolve_task(office, asked.task, asked.space)
    store, caller, after = office.store, office.caller, asked.after or ""
    found = await task_state.list_state(
        store, caller, task.name, task.space, after=after, most=asked.limit
    )
    more = found[-1].key if len(found) == asked.limit else None
    return StateList(values=[StateResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/state/{task}/{key}", KeyScope.READ)
async def get_state(office: RequestContext, asked: StateSelector) -> StateResponse:
    """Return a value that a task keeps."""
    task = await resolve_task(office, asked.task, asked.space)
    return StateResponse.from_model(
        await task_state.get_state(office.store, office.caller, task.name, asked.key, task.space)
    )


@command("PUT", "/v1/state/{task}/{key}", KeyScope.DEFINE)
async def put_state(office: RequestContext, asked: SetState) -> StateResponse:
    """Keep a value for a task, whatever stood under its key."""
    task = await resolve_task(office, asked.task, asked.space)
    office.keep(StateResponse.from_model, store_tasks.put_state)
    kept = await task_state.put_state(
        office.store, office.caller, task.name, asked.key, asked.value, task.space
    )
    return StateResponse.from_model(kept)


@command("DELETE", "/v1/state/{task}/{key}", KeyScope.DEFINE)
async def drop_state(office: RequestContext, asked: StateSelector) -> StateRemovedResponse:
    """Forget a value of a task."""
    task = await resolve_task(office, asked.task, asked.space)
    office.keep(lambda gone: StateRemovedResponse() if gone else None, store_tasks.drop_state)
    await task_state.drop_state(office.store, office.caller, task.name, asked.key, task.space)
    return StateRemovedResponse()


@command("POST", "/v1/seen/{task}", KeyScope.DEFINE)
async def mark_seen(office: RequestContext, asked: MarkSeen) -> SeenItemList:
    """Count items as seen once more; `new` says that this was the first time."""
    task = await resolve_task(office, asked.task, asked.space)
    items = [(one.provider, one.item, one.data) for one in asked.items]
    office.keep(_items, store_tasks.mark_seen)
    return _items(
        await task_state.mark_seen(office.store, office.caller, task.name, items, task.space)
    )


@command("GET", "/v1/seen/{task}/{item}", KeyScope.READ)
async def get_seen(office: RequestContext, asked: SeenItemSelector) -> SeenItemResponse:
    """Return an item as a task has seen it."""
    task = await resolve_task(office, asked.task, asked.space)
    found = await task_state.get_seen(
        office.store, office.caller, task.name, asked.provider, asked.item, task.space
    )
    return SeenItemResponse.from_model(found)
