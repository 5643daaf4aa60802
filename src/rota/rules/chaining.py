"""Which tasks start when a run ends, and what they are told."""

from __future__ import annotations

import json
from collections.abc import Iterable

from rota.errors import Invalid
from rota.model.ids import RunId
from rota.model.runs import RunBatch, Source
from rota.model.states import RunState
from rota.model.tasks import AfterOn, Task
from rota.rules.queueing import DEEPEST_CHAIN, new_run
from rota.rules.wishes import is_in_conversation

LONGEST_PASSED_RESULT = 64 * 1024

STARTS = {
    AfterOn.SUCCESS: frozenset({RunState.SUCCEEDED}),
    AfterOn.FAILURE: frozenset({RunState.FAILED, RunState.EXPIRED}),
    AfterOn.ANY: frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.EXPIRED}),
}
"""Which ends start a successor."""


def successors(
    tasks: Iterable[Task], run_id: RunId, state: RunState, result: str | None, depth: int, now: int
) -> tuple[RunBatch, ...]:
    """Return the runs that a finished run starts, each once per upstream run."""
    if depth + 1 > DEEPEST_CHAIN:
        return ()
    return tuple(
        RunBatch(
            template=new_run(
                task.id,
                task.space_id,
                task.route,
                task.policy,
                Source.AFTER,
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
    if result is not None and len(result.encode()) <= LONGEST_PASSED_RESULT:
        upstream["result"] = json.loads(result)
    elif result is not None:
        upstream["result_too_long"] = True
    return json.dumps({"after": upstream})


def check_chain(name: str, upstream: str, after: dict[str, str]) -> None:
    """Refuse a task that would follow itself, or a chain deeper than 16.

    `after` tells which task each task follows already.
    """
    seen = [name]
    current: str | None = upstream
    while current is not None:
        if current == name:
            path = " after ".join([*seen, name])
            raise Invalid(
                "after", upstream, f"this would be a circle ({path}): choose another task"
            )
        seen.append(current)
        if len(seen) > DEEPEST_CHAIN:
            raise Invalid("after", upstream, f"a chain may be at most {DEEPEST_CHAIN} tasks long")
        current = after.get(current)
