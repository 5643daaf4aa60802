"""How new runs are queued (lane, group, deadline), and which tasks follow a run."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rota.errors import Invalid
from rota.model.ids import RunId, ScheduleId, SpaceId, TaskId
from rota.model.instants import to_micros
from rota.model.runs import NewRun, RunBatch, RunSource, RunState
from rota.model.schedules import Slot
from rota.model.tasks import AfterOn, Overlap, Policy, Pool, Task, task_lane
from rota.rules.task_spec import is_in_conversation

MAX_CHAIN_DEPTH = 16
PLANNED = frozenset({RunSource.SLOT, RunSource.CATCH_UP, RunSource.BACKFILL})
"""Sources of runs that belong to a slot."""


def lane_of(
    task_id: int, policy: Policy, source: RunSource, conversation: str | None = None
) -> str | None:
    """Return the lane of a run.

    The lane of a conversation comes first, then the lane of the policy. Otherwise slots of a task
    share a lane unless the policy allows overlap, and requested runs join it only if the policy
    sets `overlap`.
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
    """Return the lane of a conversation: its thread, or the lane of a task without one."""
    return task_lane(task_id) if thread is None else thread


def reading_pool(policy: Policy) -> Pool:
    """Return the pool of a run that answers messages; by default foreground, as people wait."""
    return policy.pool or Pool.FOREGROUND


def new_run(
    task_id: TaskId,
    space_id: SpaceId,
    route: str,
    policy: Policy,
    source: RunSource,
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
    """Return a new run of a task, queued according to its policy.

    If `in_conversation`, it belongs to the conversation of its thread, or of its task without one.
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


MAX_PASSED_RESULT = 64 * 1024

STARTS = {
    AfterOn.SUCCESS: frozenset({RunState.SUCCEEDED}),
    AfterOn.FAILURE: frozenset({RunState.FAILED, RunState.EXPIRED}),
    AfterOn.ANY: frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.EXPIRED}),
}
"""The final states that start a successor."""


def successor_runs(
    tasks: Iterable[Task], run_id: RunId, state: RunState, result: str | None, depth: int, now: int
) -> tuple[RunBatch, ...]:
    """Return the runs started by a finished run; each is keyed, so that it is started once."""
    if depth + 1 > MAX_CHAIN_DEPTH:
        return ()
    return tuple(
        RunBatch(
            template=new_run(
                task.id,
                task.space_id,
                task.route,
                task.policy,
                RunSource.AFTER,
                now,
                upstream_id=run_id,
                depth=depth + 1,
                thread=task.thread,
                in_conversation=is_in_conversation(task),
            ),
            payloads=[_payload(task, run_id, state, result)],
            keys=[f"after:{run_id}"],
        )
        for task in tasks
        if task.enabled and task.after is not None and state in STARTS[task.after.on]
    )


def _payload(task: Task, run_id: RunId, state: RunState, result: str | None) -> str:
    upstream: dict[str, object] = {
        "run": run_id,
        "task": task.after.task if task.after else None,
        "state": state.value,
    }
    if result is not None and len(result.encode()) <= MAX_PASSED_RESULT:
        upstream["result"] = json.loads(result)
    elif result is not None:
        upstream["result_too_long"] = True
    return json.dumps({"after": upstream})


def check_chain(name: str, upstream: str, after: dict[str, str]) -> None:
    """Raise Invalid if tasks would form a cycle or too long a chain.

    `after` maps each task to the one it follows.
    """
    seen = [name]
    current: str | None = upstream
    while current is not None:
        if current == name:
            path = " after ".join([*seen, name])
            raise Invalid(
                "after", upstream, f"this would form a cycle ({path}): choose another task"
            )
        seen.append(current)
        if len(seen) > MAX_CHAIN_DEPTH:
            raise Invalid("after", upstream, f"a chain may be at most {MAX_CHAIN_DEPTH} tasks long")
        current = after.get(current)
