"""A store in plain dicts: what runs, workers and deliveries may do, and nothing about how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rota.model.attempts import Cancelled, Drained, Expired, Failed, Succeeded, WaitingForAnswer
from rota.model.runs import FINISHED, RunState
from rota.model.tasks import OnLost
from tests.tools.store_bench import micros

QUEUED, RUNNING, WAITING = RunState.QUEUED, RunState.RUNNING, RunState.WAITING
WAIT = timedelta(seconds=20)
"""How long a retry waits."""


@dataclass
class Row:
    """What the model knows of a run."""

    task: str
    source: str
    lane: str | None
    state: RunState = QUEUED
    epoch: int = 0
    retries: int = 0
    losses: int = 0
    holder: str | None = None
    cancel: bool = False
    due: int = 0
    later: bool = False
    expires: int | None = None
    question: str | None = None
    ended: int = 0

    def facts(self):
        facts = (self.state, self.epoch, self.retries, self.losses, self.holder)
        return (*facts, self.cancel and self.state is RUNNING)


class Model:
    """Runs, workers and deliveries as plain dicts, and the moves they can make."""

    def __init__(self):
        self.runs: dict[int, Row] = {}
        self.workers: dict[str, int] = {}
        self.fenced: set[str] = set()
        self.deliveries: dict[int, tuple[str, int, str | None]] = {}

    def claimable(self):
        """How many runs a claim may lease: those without a lane, and one for each free lane."""
        ready = [row for row in self.runs.values() if row.state is QUEUED and not row.later]
        busy = {row.lane for row in self.runs.values() if row.state is RUNNING}
        lanes = {row.lane for row in ready if row.lane is not None} - busy
        return sum(row.lane is None for row in ready) + len(lanes)

    def target(self, policy, row, outcome):
        """Return the state an outcome leads to, and how many retries and losses it adds."""
        ends = {Succeeded: RunState.SUCCEEDED, Cancelled: RunState.CANCELLED}
        moves = {**ends, Expired: RunState.EXPIRED, WaitingForAnswer: WAITING, Drained: QUEUED}
        if type(outcome) in moves:
            return moves[type(outcome)], 0, 0
        if isinstance(outcome, Failed):
            again = outcome.retryable and row.retries + 1 < policy.retry.attempts
            return (QUEUED, 1, 0) if again else (RunState.FAILED, 0, 0)
        if row.losses >= 3 or policy.on_lost is OnLost.FAIL:
            return RunState.FAILED, 0, 0
        return (WAITING, 0, 0) if policy.on_lost is OnLost.ASK else (QUEUED, 0, 1)

    def move(self, row, target, now, *, expires=None, question=None):
        state, retries, losses = target
        if row.cancel and state not in FINISHED:
            state, retries, losses, question = RunState.CANCELLED, 0, 0, None
        row.state, row.holder, row.question = state, None, question
        row.retries, row.losses = row.retries + retries, row.losses + losses
        row.due = now + (micros(WAIT) if retries else 0)
        row.later = bool(retries)
        row.ended = now
        if state is WAITING:
            row.expires = expires

    def forget(self, before):
        """Forget fenced workers that hold nothing and whose lease began before an instant."""
        busy = {row.holder for row in self.runs.values()}
        for worker in [w for w in self.fenced - busy if self.workers[w] < before]:
            self.fenced.remove(worker)
            del self.workers[worker]

    def holds(self, worker):
        return worker in self.workers and worker not in self.fenced
