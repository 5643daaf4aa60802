"""A run's life told again: its events, taken one by one through the table of moves."""

from __future__ import annotations

from rota.model.events import EventName
from rota.model.records import History
from rota.model.states import Move, RunState, after

_ENDS = {
    RunState.SUCCEEDED: Move.SUCCEED,
    RunState.FAILED: Move.FAIL,
    RunState.CANCELLED: Move.CANCEL,
    RunState.EXPIRED: Move.EXPIRE,
}
_MOVES = {
    EventName.RETRIED: (Move.RETRY, {"failed"}),
    EventName.LOST: (Move.LOSE, {"lost"}),
    EventName.DRAINED: (Move.LOSE, {"drained"}),
    EventName.HELD_BACK: (Move.LOSE, {"drained"}),
    EventName.ASKED: (Move.ASK, {"asked", "lost"}),
}
"""The moves of an attempt that did not end its run, and the outcomes that go with them."""


class Mismatch(Exception):
    """An event and what else is on record do not go together."""


class Replay:
    """A run's life, told again by its events; a claim shows by the attempt that came of it."""

    def __init__(self, history: History) -> None:
        self.state = RunState.QUEUED
        self.claims = self.retries = self.losses = 0
        self._outcomes = [attempt.outcome for attempt in history.attempts]
        self._kinds = {question.epoch: question.kind for question in history.questions}

    def claim(self) -> None:
        """Begin the next attempt."""
        self.state = after(self.state, Move.CLAIM)
        self.claims += 1

    def take(self, name: EventName, settled: str | None) -> None:
        """Let an event happen; raise IllegalMove or Mismatch if it cannot have."""
        if name is EventName.ANSWERED:
            self.state = after(self.state, Move.ANSWER)
            self.losses += self._kinds.get(self.claims) == "lost"
            return
        if name is EventName.SETTLED:
            state = RunState(settled or "")
            move, outcomes = _ENDS[state], {state.value}
            begun = self.state is RunState.QUEUED and self.claims < len(self._outcomes)
        else:
            move, outcomes = _MOVES[name]
            begun = True
        if begun:
            self.claim()
            self._match(name, outcomes)
        self.state = after(self.state, move)
        self.retries += name is EventName.RETRIED
        self.losses += name is EventName.LOST

    def _match(self, name: EventName, outcomes: set[str]) -> None:
        told = self._outcomes[self.claims - 1] if self.claims <= len(self._outcomes) else "missing"
        if told not in outcomes:
            message = f"its attempt {self.claims} is {told}, its event {name}"
            raise Mismatch(message)
