"""Why a queued run has not begun, and who minds a running one."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

from rota.flow.observe.facts import Facts
from rota.flow.observe.telling import counted, span, wall
from rota.model.instants import maybe_instant
from rota.model.pauses import paused_since
from rota.model.runs import Cause, Run
from rota.model.spaces import Limit, Scope
from rota.model.states import Place, RunState
from rota.model.tasks import Policy
from rota.rules.budgets import OVER


def why_waiting(run: Run, facts: Facts, zone: ZoneInfo) -> str:
    """Return what a queued run waits for, the first reason that holds."""
    if run.place is Place.LATER:
        return _later(run, facts, zone)
    waited = f"in the queue for {span(facts.now - run.available_at)}"
    paused = maybe_instant(paused_since(facts.pauses))
    if paused is not None:
        return f"{waited}: everything is paused since {wall(paused, zone)}"
    before = _before(run, facts) if run.place is Place.HELD else None
    if before is not None:
        return f"{waited}: {before}"
    taking = [worker for worker in facts.workers if worker.takes(facts.now)]
    if not taking:
        return f"{waited}: {facts.idle.what}, {facts.idle.step}"
    if not any(run.route in worker.routes for worker in taking):
        return f"{waited}: no worker serves its route {run.route}"
    reached = _reached(run, facts)
    if reached is not None:
        return f"{waited}: {reached}"
    free = sum(worker.slots - worker.running for worker in taking)
    if free <= 0:
        return f"{waited}: every slot of the workers is busy"
    return f"{waited}: ready, a worker is about to take it"


def unminded(facts: Facts) -> str:
    """Return that nobody minds what is running, if nobody is there to do it."""
    if any(worker.alive(facts.now) for worker in facts.workers):
        return ""
    return f"; {facts.idle.what}, {facts.idle.step}"


def _later(run: Run, facts: Facts, zone: ZoneInfo) -> str:
    when = f"{wall(run.available_at, zone)}, in {span(run.available_at - facts.now)}"
    if run.cause is Cause.RETRY:
        return f"attempt {run.epoch} failed; it is tried again at {when}"
    if run.error_code == OVER:
        return f"held back until {when}: {run.error}"
    return f"not yet due: it may begin at {when}"


def _before(run: Run, facts: Facts) -> str | None:
    """Return what a run waits for in its lane; None for the head of a lane that is free."""
    lane = [r for r in facts.unfinished if r.lane == run.lane and r.space == run.space]
    for other in lane:
        if other.state is RunState.RUNNING:
            return f"its lane is busy with run {other.id} of {other.task}"
    ready = [other for other in lane if other.place is Place.READY and other.id != run.id]
    held = [other for other in lane if other.place is Place.HELD and _turn(other) < _turn(run)]
    for other in (*ready, *sorted(held, key=_turn)):
        return f"run {other.id} of {other.task} is before it in its lane"
    return None


def _turn(run: Run) -> tuple[int, datetime, int]:
    return -run.priority, run.available_at, run.id


def _reached(run: Run, facts: Facts) -> str | None:
    policy = facts.policies.get(run.task_id, facts.task.policy)
    running = [r for r in facts.unfinished if r.state is RunState.RUNNING]
    for limit in facts.limits:
        counts = _counts(limit, run, policy)
        if not counts:
            continue
        if limit.rate is not None and limit.period is not None and limit.scope is Scope.GROUP:
            spent = f"{limit.rate} starts in {span(limit.period)}"
        else:
            spent = ""
        if limit.cap is not None:
            used = sum(
                _counts(limit, other, facts.policies.get(other.task_id, Policy()))
                for other in running
            )
            if used >= limit.cap:
                said = f"the limit of {counted(limit.cap, 'run')} {_where(limit)} is reached"
                scope = " ".join(filter(None, (limit.scope.value, limit.key)))
                return f"{said}, which `rota limit set {scope} --cap N` changes"
        if spent:
            return f"the rate of {spent} {_where(limit)} may be spent"
    return None


def _counts(limit: Limit, run: Run, policy: Policy) -> bool:
    if limit.scope is Scope.GROUP:
        return policy.group == limit.key
    if not policy.metered:
        return False
    if limit.scope is Scope.TOTAL:
        return True
    return limit.key.partition("/")[0] == run.pool


def _where(limit: Limit) -> str:
    match limit.scope:
        case Scope.TOTAL:
            return "in all"
        case Scope.POOL:
            return f"in the {limit.key} pool"
        case Scope.SPACE:
            return f"for one space in the {limit.key.partition('/')[0]} pool"
        case Scope.GROUP:
            return f"in the group {limit.key}"
