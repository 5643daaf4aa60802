"""Register, find and cancel threads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rota.errors import Busy, Conflict, Invalid, NotFound
from rota.flow.settle import settle_runs
from rota.model.attempts import AttemptReport, Cancelled
from rota.model.runs import FINISHED, RunState
from rota.model.spaces import Space, SpaceRole
from rota.model.tasks import Task
from rota.model.threads import NewThread, Thread, ThreadFilter
from rota.ports.clock import Random
from rota.rules.permissions import (
    MAX_THREADS,
    Caller,
    check_claim,
    check_conversation,
    check_space,
    check_threads,
    may_act_for,
    thread_not_found,
)
from rota.rules.task_spec import is_in_conversation
from rota.store.notifications import thread_owner
from rota.store.settlement import request_cancel
from rota.store.store import Store
from rota.store.tasks import find_space
from rota.store.threads import get_thread, list_open_runs_in_thread, list_threads, put_thread
from rota.store.workers import get_open_runs

MOST_CANCELLED = 1_000
MOST_FACTS = 16 * 1024
ROUNDS = 20


async def find_thread(store: Store, caller: Caller, key: str, space: str | None = None) -> Thread:
    """Return a thread; threads of other spaces are not found."""
    found = await store.read(get_thread, key)
    if found is None or not may_act_for(caller, found.space) or space not in {None, found.space}:
        raise NotFound("thread", key, "see `rota thread list`")
    return found


async def owner_of(store: Store, caller: Caller, key: str, space: str | None) -> str:
    """Return the space that owns or will own a thread; only `main` acts for other spaces."""
    if space is not None:
        check_space(caller, space)
    found = await store.read(get_thread, key)
    if found is None:
        owner = space or caller.space
        check_claim(caller, owner, key)
        return owner
    if not may_act_for(caller, found.space):
        raise thread_not_found(caller.space, key)
    if space not in {None, found.space}:
        message = f"the thread {key!r} belongs to the space {found.space!r} and cannot be moved"
        raise Conflict(message)
    return found.space


async def check_claimed(store: Store, caller: Caller, space: str, key: str | None) -> None:
    """Refuse a thread of another space, or one that the caller may not create."""
    if key is None or caller.role is SpaceRole.MAIN:
        return
    owner = await store.read(thread_owner, key)
    if owner is None:
        check_claim(caller, space, key)
    elif owner != (await store.read(find_space, space)).id:
        raise thread_not_found(space, key)


async def register(
    store: Store, caller: Caller, key: str, space: str, changes: Mapping[str, Any]
) -> Thread:
    """Create a thread or change the given fields."""
    check_space(caller, space)
    owner = await store.read(find_space, space)
    if caller.attempt is not None:
        await _check_attempt(store, owner, key, changes)
    return await store.write(put_thread, NewThread(owner.id, key, changes))


async def _check_attempt(store: Store, owner: Space, key: str, changes: Mapping[str, Any]) -> None:
    """Refuse changes that an attempt may not make."""
    found = await store.read(get_thread, key)
    if found is not None:
        check_conversation(found, changes)
        return
    standing = await store.read(list_threads, ThreadFilter(space_id=owner.id, limit=MAX_THREADS))
    check_threads(len(standing))


def answering(task: Task) -> Task:
    """Return a task that can answer in a thread: an agent with a shared session."""
    if not is_in_conversation(task):
        advice = "only an agent with a shared session can answer: rota task edit --session shared"
        raise Invalid("task", task.name, advice)
    return task


def checked_facts(facts: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of a thread, or refuse too much data."""
    if len(json.dumps(facts)) > MOST_FACTS:
        raise Invalid("metadata", "", f"keep them within {MOST_FACTS} bytes")
    return facts


async def cancel_thread(
    store: Store, caller: Caller, thread: Thread, chance: Random
) -> tuple[int, int]:
    """End all open runs of a thread; return how many have ended, and how many will.

    Runs that are created meanwhile are not affected. Queued runs are cancelled before running ones
    are asked to stop, so that none starts in between.
    """
    owner = await store.read(find_space, thread.space)
    why = f"cancelled by {caller.name}"
    report = AttemptReport(outcome=Cancelled(reason=why))
    meant = [
        run.run_id
        for run in await store.read(list_open_runs_in_thread, owner.id, thread.key, MOST_CANCELLED)
    ]
    ended = 0
    for _ in range(ROUNDS):
        standing = [
            run for run in await store.read(get_open_runs, meant) if run.state not in FINISHED
        ]
        idle = [run for run in standing if run.state is not RunState.RUNNING]
        ended += sum(await settle_runs(store, [(run, report) for run in idle], chance))
        busy = [run for run in standing if run.state is RunState.RUNNING]
        unasked = [run.run_id for run in busy if not run.cancel_requested]
        if unasked:
            await store.write(request_cancel, unasked, why)
        elif not idle:
            return ended, len(busy)
    message = f"the runs of {thread.key} keep changing: cancel them again in a moment"
    raise Busy(message)
