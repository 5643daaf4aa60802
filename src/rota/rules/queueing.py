"""How a task's runs stand in the queue: lane, group, deadline."""

from __future__ import annotations

from rota.model.ids import RunId, ScheduleId, SpaceId, TaskId
from rota.model.instants import to_micros
from rota.model.runs import NewRun, Source
from rota.model.schedules import Slot
from rota.model.tasks import Overlap, Policy, Pool, task_lane

DEEPEST_CHAIN = 16
PLANNED = frozenset({Source.SLOT, Source.CATCH_UP, Source.BACKFILL})
"""The sources of runs that stand for a slot."""


def lane_of(
    task_id: int, policy: Policy, source: Source, conversation: str | None = None
) -> str | None:
    """Return the lane a run waits in.

    Runs of one conversation never talk at once. A lane of the policy's own comes next. Otherwise
    slots of a task never overlap unless the policy allows it, and runs that were asked for join
    that lane only if the policy says so.
    """
    if conversation is not None:
        return conversation
    if policy.lane is not None:
        return policy.lane
    if policy.overlap is Overlap.ALLOW:
        return None
    if policy.overlap is None and source not in PLANNED:
        return None
    return task_lane(task_id)


def conversation_of(task_id: int, thread: str | None) -> str:
    """Return the lane of a conversation: that of a thread, or of a task that has none."""
    return task_lane(task_id) if thread is None else thread


def reading_pool(policy: Policy) -> Pool:
    """Return the pool of a run that reads what people have said: they wait for it."""
    return policy.pool or Pool.FOREGROUND


def new_run(
    task_id: TaskId,
    space_id: SpaceId,
    route: str,
    policy: Policy,
    source: Source,
    now: int,
    *,
    available_at: int | None = None,
    priority: int | None = None,
    upstream_id: RunId | None = None,
    depth: int = 0,
    thread: str | None = None,
    in_conversation: bool = False,
    schedule_id: ScheduleId | None = None,
    slot: Slot | None = None,
) -> NewRun:
    """Return a run of a task as its policy wants it queued.

    One that is `in_conversation` takes part in its thread's, or in that of its task if it has none.
    """
    conversation = conversation_of(task_id, thread) if in_conversation else None
    start = now if available_at is None else max(now, available_at)
    deadline = policy.deadline
    return NewRun(
        space_id=space_id,
        task_id=task_id,
        route=route,
        pool=policy.pool or Pool.BACKGROUND,
        priority=policy.priority if priority is None else priority,
        lane=lane_of(task_id, policy, source, conversation),
        group=policy.group or "",
        metered=policy.metered,
        source=source,
        available_at=available_at,
        expires_at=None if deadline is None else start + int(deadline.total_seconds() * 1_000_000),
        upstream_id=upstream_id,
        depth=depth,
        thread=thread if in_conversation else None,
        schedule_id=schedule_id,
        slot_key=None if slot is None else slot.key,
        slot_at=None if slot is None else to_micros(slot.at),
    )
