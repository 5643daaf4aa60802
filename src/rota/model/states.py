"""The life of a run.

                 claim                  succeed, fail, cancel
    QUEUED ------------------> RUNNING ----------------------> SUCCEEDED, FAILED, CANCELLED
    ^  |  ^                     |   |
    |  |  +--- retry, lose -----+   | ask
    |  |                            v
    |  |   +------- answer ------ WAITING
    |  |   |                        |
    +--+---+                        +----> CANCELLED (cancel), EXPIRED (expire), FAILED (fail)
       |
       +----> CANCELLED (cancel), EXPIRED (expire), FAILED (fail)

A retry or a delay is QUEUED with a later `available_at`. Where a queued run stands in the queue
is its place: READY (it may be claimed), LATER (not yet available) or HELD (behind its lane).

Invariants, held by every store and checked by its contract suite:

1. A run has a holder exactly while it is RUNNING.
2. Only the newest epoch moves a run out of RUNNING; every other writer changes nothing.
3. A finished run never changes again, except to be pruned.
4. A run has a place exactly while it is QUEUED.
5. At most one run of a lane is RUNNING, and at most one is READY.
6. Every end of a run appends one event in the same transaction.
"""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType

from rota.errors import IllegalMove


class RunState(StrEnum):
    """Where a run is in its life."""

    QUEUED = "queued"
    RUNNING = "running"
    WAITING = "waiting"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


class Place(StrEnum):
    """Where a queued run stands in the queue."""

    READY = "ready"
    LATER = "later"
    HELD = "held"


class Move(StrEnum):
    """What can happen to a run."""

    CLAIM = "claim"
    ASK = "ask"
    ANSWER = "answer"
    RETRY = "retry"
    LOSE = "lose"
    SUCCEED = "succeed"
    FAIL = "fail"
    CANCEL = "cancel"
    EXPIRE = "expire"


FINISHED = frozenset({RunState.SUCCEEDED, RunState.FAILED, RunState.CANCELLED, RunState.EXPIRED})

MOVES = MappingProxyType(
    {
        (RunState.QUEUED, Move.CLAIM): RunState.RUNNING,
        (RunState.QUEUED, Move.FAIL): RunState.FAILED,
        (RunState.QUEUED, Move.CANCEL): RunState.CANCELLED,
        (RunState.QUEUED, Move.EXPIRE): RunState.EXPIRED,
        (RunState.RUNNING, Move.SUCCEED): RunState.SUCCEEDED,
        (RunState.RUNNING, Move.FAIL): RunState.FAILED,
        (RunState.RUNNING, Move.CANCEL): RunState.CANCELLED,
        (RunState.RUNNING, Move.EXPIRE): RunState.EXPIRED,
        (RunState.RUNNING, Move.RETRY): RunState.QUEUED,
        (RunState.RUNNING, Move.LOSE): RunState.QUEUED,
        (RunState.RUNNING, Move.ASK): RunState.WAITING,
        (RunState.WAITING, Move.ANSWER): RunState.QUEUED,
        (RunState.WAITING, Move.FAIL): RunState.FAILED,
        (RunState.WAITING, Move.CANCEL): RunState.CANCELLED,
        (RunState.WAITING, Move.EXPIRE): RunState.EXPIRED,
    }
)


def after(state: RunState, move: Move) -> RunState:
    """Return the state a move leads to, or raise IllegalMove."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise IllegalMove(state, move) from None
