"""Task state: values under keys, and seen items."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

from pydantic import Field

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import UNPRINTABLE, Json, Limit, TextFormat, Word, resolve_task
from rota.commands.responses import From, RequestModel, ResponseModel, TaskSelector
from rota.flow.define import task_state
from rota.model.keys import KeyScope
from rota.model.tasks import SeenItem
from rota.store import tasks as store_tasks

Name = Annotated[
    str,
    TextFormat(
        rf"[^{UNPRINTABLE}\x20\xa0/]{{1,256}}",
        "use 1 to 256 characters without spaces or slashes, such as last-mail",
    ),
]


class StateSelector(TaskSelector):
    """A value of a task's state."""

    key: Name


class SetState(StateSelector):
    """A value to store."""

    value: Json


class StateQuery(TaskSelector):
    """Filter for values."""

    after: Name | None = None
    limit: Limit = 100


class StateResponse(ResponseModel):
    """A value of a task's state."""

    key: str
    value: Annotated[Json, From(read=json.loads)]
    updated_at: datetime
    updated_by: str


class StateList(ResponseModel):
    """Values of a task, by key; `next` continues the list as `after`."""

    values: list[StateResponse]
    next: str | None


class StateRemovedResponse(ResponseModel):
    """The deleted value."""

    deleted: bool = True


class SeenItemInput(RequestModel):
    """An item to mark as seen."""

    item: Name
    provider: Word = "default"
    data: Json = None


class MarkSeen(TaskSelector):
    """Items to mark as seen, each once."""

    items: list[SeenItemInput] = Field(min_length=1, max_length=task_state.MOST_ITEMS)


class SeenItemSelector(TaskSelector):
    """A seen item of a task."""

    item: Name
    provider: Word = "default"


class SeenItemResponse(ResponseModel):
    """An item, and how often the task has seen it."""

    provider: str
    item: str
    data: Annotated[Json, From(read=json.loads)]
    first_seen_at: Annotated[datetime, From("first_at")]
    last_seen_at: Annotated[datetime, From("last_at")]
    count: int
    new: Annotated[bool, From("count", lambda count: count == 1)]


class SeenItemList(ResponseModel):
    """Items after the change, in the order of the request."""

    items: list[SeenItemResponse]


def _items(found: list[SeenItem]) -> SeenItemList:
    return SeenItemList(items=[SeenItemResponse.from_model(one) for one in found])


@command("GET", "/v1/tasks/{task}/state", KeyScope.READ)
async def list_state(context: RequestContext, request: StateQuery) -> StateList:
    """List the values of a task."""
    task = await resolve_task(context, request.task, request.space)
    store, caller, after = context.store, context.caller, request.after or ""
    found = await task_state.list_state(
        store, caller, task.name, task.space, after=after, most=request.limit
    )
    more = found[-1].key if len(found) == request.limit else None
    return StateList(values=[StateResponse.from_model(one) for one in found], next=more)


@command("GET", "/v1/tasks/{task}/state/{key}", KeyScope.READ)
async def get_state(context: RequestContext, request: StateSelector) -> StateResponse:
    """Return a value of a task."""
    task = await resolve_task(context, request.task, request.space)
    return StateResponse.from_model(
        await task_state.get_state(
            context.store, context.caller, task.name, request.key, task.space
        )
    )


@command("PUT", "/v1/tasks/{task}/state/{key}", KeyScope.DEFINE)
async def put_state(context: RequestContext, request: SetState) -> StateResponse:
    """Store a value of a task, replacing an earlier one."""
    task = await resolve_task(context, request.task, request.space)
    context.record(StateResponse.from_model, store_tasks.put_state)
    kept = await task_state.put_state(
        context.store, context.caller, task.name, request.key, request.value, task.space
    )
    return StateResponse.from_model(kept)


@command("DELETE", "/v1/tasks/{task}/state/{key}", KeyScope.DEFINE)
async def drop_state(context: RequestContext, request: StateSelector) -> StateRemovedResponse:
    """Delete a value of a task."""
    task = await resolve_task(context, request.task, request.space)
    context.record(lambda gone: StateRemovedResponse() if gone else None, store_tasks.drop_state)
    await task_state.drop_state(context.store, context.caller, task.name, request.key, task.space)
    return StateRemovedResponse()


@command("POST", "/v1/tasks/{task}/seen", KeyScope.DEFINE)
async def mark_seen(context: RequestContext, request: MarkSeen) -> SeenItemList:
    """Mark items as seen once more; `new` means for the first time."""
    task = await resolve_task(context, request.task, request.space)
    items = [(one.provider, one.item, one.data) for one in request.items]
    context.record(_items, store_tasks.mark_seen)
    return _items(
        await task_state.mark_seen(context.store, context.caller, task.name, items, task.space)
    )


@command("GET", "/v1/tasks/{task}/seen/{item}", KeyScope.READ)
async def get_seen(context: RequestContext, request: SeenItemSelector) -> SeenItemResponse:
    """Return a seen item of a task."""
    task = await resolve_task(context, request.task, request.space)
    found = await task_state.get_seen(
        context.store, context.caller, task.name, request.provider, request.item, task.space
    )
    return SeenItemResponse.from_model(found)
