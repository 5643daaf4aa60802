"""How a task's runs stand in the queue: lane, group, deadline."""

from __future__ import annotations

from rota.model.ids import RunId, ScheduleId, SpaceId, TaskId
from rota.model.instants import to_micros
from rota.model.runs import NewRun, Source
from rota.model.schedules import Slot
from rota.model.tasks import Overlap, Policy, task_lane

DEEPEST_CHAIN = 16
PLANNED = frozenset({Source.SLOT, Source.CATCH_UP, Source.BACKFILL})
"""The sources of runs that stand for a slot."""


def lane_of(task_id: int, policy: Policy, source: Source) -> str | None:
    """Return the lane a run waits in.

    A lane of the policy's own comes first. Otherwise slots of a task never overlap unless the
    policy allows it, and runs that were asked for join that lane only if the policy says so.
    """
    if policy.lane is not None:
        return policy.lane
    if policy.overlap is Overlap.ALLOW:
        return None
    if policy.overlap is None and source not in PLANNED:
        return None
    return task_lane(task_id)


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
    schedule_id: ScheduleId | None = None,
    slot: Slot | None = None,
) -> NewRun:
    """Return a run of a task as its policy wants it queued."""
    start = now if available_at is None else max(now, available_at)
    deadline = policy.deadline
    return NewRun(
        space_id=space_id,
        task_id=task_id,
        route=route,
        pool=policy.pool,
        priority=policy.priority if priority is None else priority,
        lane=thread if thread is not None else lane_of(task_id, policy, source),
        group=policy.group or "",
        metered=policy.metered,
        source=source,
        available_at=available_at,
        expires_at=None if deadline is None else start + int(deadline.total_seconds() * 1_000_000),
        upstream_id=upstream_id,
        depth=depth,
        thread=thread,
        schedule_id=schedule_id,
        slot_key=None if slot is None else slot.key,
        slot_at=None if slot is None else to_micros(slot.at),
    )
