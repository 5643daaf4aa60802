"""Settle: reports of attempts become the next state of their runs, in batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from rota.model.attempt_requests import TALKING
from rota.model.attempts import DONE, Assignment, AttemptReport, Lost, WaitingForAnswer
from rota.model.ids import RunId
from rota.model.runs import Lease, OpenRun, RunState
from rota.model.settlement import PLAIN_SUCCESS, Settlement
from rota.model.tasks import OnLost, Policy, Task, TaskKind
from rota.ports.clock import Random
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.attempt_requests import (
    attempts_waiting_for_answer,
    list_started_attempts,
    runs_with_outside_actions,
)
from rota.store.store import Store
from rota.store.tasks import get_tasks
from rota.store.views import list_successors


async def settle_attempts(
    store: Store, ended: Sequence[tuple[Assignment, AttemptReport]], chance: Random
) -> list[bool]:
    """Settle ended attempts; False for those whose lease belonged to another worker."""
    return await store.write(store_settlement.settle, await decide_attempts(store, ended, chance))


async def decide_attempts(
    store: Store, ended: Sequence[tuple[Assignment, AttemptReport]], chance: Random
) -> list[Settlement]:
    """Return the settlements of ended attempts."""
    followers = await store.read(list_successors, sorted({a.lease.task_id for a, _ in ended}))
    talking = [a.lease.run_id for a, _ in ended if a.lease.route in TALKING]
    asked = await store.read(attempts_waiting_for_answer, talking) if talking else {}
    outward = await _outward(
        store,
        [
            (a.lease.run_id, a.task, report.outcome)
            for a, report in ended
            if isinstance(report.outcome, Lost)
        ],
    )
    now = store.now()

    def context(assignment: Assignment) -> SettlementContext:
        lease, task = assignment.lease, assignment.task
        return SettlementContext(
            policy=task.policy,
            task=task.name,
            followers=tuple(followers.get(lease.task_id, ())),
            now=now,
            chance=chance.random(),
            asked=asked.get(lease.run_id),
            agent=task.kind is TaskKind.AGENT,
            outward=lease.run_id in outward,
        )

    return [
        _plain_success(a.lease)
        if report is DONE and _is_plain(a, followers, asked)
        else settle(running(a.lease), report, context(a))
        for a, report in ended
    ]


def _is_plain(
    assignment: Assignment,
    followers: Mapping[int, list[Task]],
    asked: Mapping[RunId, WaitingForAnswer],
) -> bool:
    """Return whether a success without a result ends the run without further effects."""
    lease, policy = assignment.lease, assignment.task.policy
    followed = followers.get(lease.task_id) if followers else None
    told = policy.deliver_to is not None or policy.until_success
    return not followed and not told and lease.run_id not in asked


def _plain_success(lease: Lease) -> Settlement:
    done = RunState.SUCCEEDED
    return Settlement(
        lease.run_id, lease.epoch, lease.task_id, RunState.RUNNING, done, done.value, PLAIN_SUCCESS
    )


async def _outward(store: Store, lost: Sequence[tuple[int, Task, Lost]]) -> set[int]:
    """Return the lost runs that may have had an effect outside.

    A program that never started has had none. An agent with an open network may have had any, which
    is on record with its attempt. For all others it is known: messages and effects through Rota,
    approved actions, and writes through the gateway. The home of the attempt knows whether it
    wrote; if the home is gone, it counts as if it had.
    """
    undecided = [one for one in lost if one[1].policy.on_lost is OnLost.AUTO]
    programs = [run_id for run_id, task, _ in undecided if task.kind is not TaskKind.PYTHON]
    begun = await store.read(list_started_attempts, programs) if programs else {}
    never = set(programs) - begun.keys()
    rest = [one for one in undecided if one[0] not in never]
    if not rest:
        return set()
    return await store.read(runs_with_outside_actions, [run_id for run_id, _, _ in rest]) | {
        run_id
        for run_id, _, outcome in rest
        if outcome.wrote or (outcome.wrote is None and begun.get(RunId(run_id)))
    }


async def _unbegun(store: Store, lost: Sequence[tuple[int, Task, Lost]]) -> set[int]:
    """Return the lost runs whose programs never started."""
    programs = {run_id for run_id, task, _ in lost if task.kind is not TaskKind.PYTHON}
    return (
        programs - (await store.read(list_started_attempts, sorted(programs))).keys()
        if programs
        else set()
    )


async def settle_runs(
    store: Store, ended: Sequence[tuple[OpenRun, AttemptReport]], chance: Random
) -> list[bool]:
    """Settle runs without a report: lost, expired or cancelled ones."""
    return (
        await store.write(store_settlement.settle, await decide_runs(store, ended, chance))
        if ended
        else []
    )


async def decide_runs(
    store: Store, ended: Sequence[tuple[OpenRun, AttemptReport]], chance: Random
) -> list[Settlement]:
    """Return the settlements of runs without a report."""
    task_ids = sorted({run.task_id for run, _ in ended})
    tasks = {task.id: task for task in await store.read(get_tasks, task_ids)}
    followers = await store.read(list_successors, task_ids)
    attempts = [run.run_id for run, _ in ended if run.state is RunState.RUNNING]
    asked = await store.read(attempts_waiting_for_answer, attempts) if attempts else {}
    lost = [
        (run.run_id, tasks[run.task_id], report.outcome)
        for run, report in ended
        if isinstance(report.outcome, Lost) and run.task_id in tasks
    ]
    outward = await _outward(store, lost)
    unbegun = await _unbegun(store, lost)
    now = store.now()
    settlements = []
    for run, report in ended:
        task = tasks.get(run.task_id)
        context = SettlementContext(
            policy=Policy() if task is None else task.policy,
            task="" if task is None else task.name,
            followers=tuple(followers.get(run.task_id, ())),
            now=now,
            chance=chance.random(),
            asked=asked.get(run.run_id),
            agent=task is not None and task.kind is TaskKind.AGENT,
            outward=run.run_id in outward,
        )
        never = replace(report, unbegun=True) if run.run_id in unbegun else report
        settlements.append(settle(run, never, context)._replace(holder=run.holder))
    return settlements


def running(lease: Lease) -> OpenRun:
    """Return a lease as the input of a settlement."""
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
