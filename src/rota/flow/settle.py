"""Settle: what attempts reported becomes the runs' next state, in one transaction a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.outcomes import DONE, Asked, Report
from rota.model.runs import Lease, OpenRun
from rota.model.settlements import PLAIN_SUCCESS, Settlement
from rota.model.states import RunState
from rota.model.talking import TALKING
from rota.model.tasks import Policy, Task
from rota.ports.clock import Random
from rota.ports.runner import Assignment
from rota.ports.store import Queue, Store
from rota.ports.talking import Talking
from rota.rules.settlement import Context, settle


class Settling(Queue, Talking, Protocol):
    """What settling needs: the queue, and what attempts have said."""


async def settle_attempts(
    store: Settling, ended: Sequence[tuple[Assignment, Report]], chance: Random
) -> list[bool]:
    """Settle ended attempts; false for those whose lease was somebody else's by then."""
    return await store.settle(await decide_attempts(store, ended, chance))


async def decide_attempts(
    store: Settling, ended: Sequence[tuple[Assignment, Report]], chance: Random
) -> list[Settlement]:
    """Return what becomes of ended attempts, for the store to settle."""
    followers = await store.successors(sorted({a.lease.task_id for a, _ in ended}))
    talking = [a.lease.run_id for a, _ in ended if a.lease.route in TALKING]
    asked = await store.asked_of(talking) if talking else {}
    now = store.now()
    return [
        _settlement(a, report, followers, asked.get(a.lease.run_id), now, chance)
        for a, report in ended
    ]


async def settle_runs(
    store: Store, ended: Sequence[tuple[OpenRun, Report]], chance: Random
) -> list[bool]:
    """Settle runs that no attempt speaks for: lost, expired or cancelled ones."""
    if not ended:
        return []
    task_ids = sorted({run.task_id for run, _ in ended})
    policies = {task.id: task.policy for task in await store.get_tasks(task_ids)}
    followers = await store.successors(task_ids)
    attempts = [run.run_id for run, _ in ended if run.state is RunState.RUNNING]
    asked = await store.asked_of(attempts) if attempts else {}
    now = store.now()
    return await store.settle(
        [
            settle(
                run,
                report,
                Context(
                    policy=policies.get(run.task_id, Policy()),
                    followers=tuple(followers.get(run.task_id, ())),
                    now=now,
                    chance=chance.random(),
                    asked=asked.get(run.run_id),
                ),
            )._replace(holder=run.holder)
            for run, report in ended
        ]
    )


def _settlement(
    assignment: Assignment,
    report: Report,
    followers: dict[int, list[Task]],
    asked: Asked | None,
    now: int,
    chance: Random,
) -> Settlement:
    lease, policy = assignment.lease, assignment.task.policy
    followed = followers.get(lease.task_id, ()) if followers else ()
    if report is DONE and not followed and policy.deliver_to is None and asked is None:
        return Settlement(
            lease.run_id,
            lease.epoch,
            lease.task_id,
            RunState.RUNNING,
            RunState.SUCCEEDED,
            RunState.SUCCEEDED.value,
            PLAIN_SUCCESS,
        )
    context = Context(
        policy=policy, followers=tuple(followed), now=now, chance=chance.random(), asked=asked
    )
    return settle(running(lease), report, context)


def running(lease: Lease) -> OpenRun:
    """Return a lease as the facts for a settlement."""
    return OpenRun(
        run_id=lease.run_id,
        task_id=lease.task_id,
        space_id=lease.space_id,
        state=RunState.RUNNING,
        epoch=lease.epoch,
        retries=lease.retries,
        losses=lease.losses,
        created_micros=lease.created_micros,
        depth=lease.depth,
    )
