"""Deeds: what Rota does itself because a person has approved it."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.runs import RunBatch
from rota.model.settlements import Settlement


@dataclass(frozen=True, slots=True, kw_only=True)
class Deed:
    """What is done in the transaction of the answer that approves it: exactly one of three.

    `queues` is one run for the queue. `ends` is how a run ends that is cancelled, decided as if it
    stood in the queue: whatever it is about then, it is ended, or whoever works on it is asked to
    stop. `known` is what came of it already, as JSON: what a query found, or why nothing is done.
    """

    queues: RunBatch | None = None
    ends: Settlement | None = None
    known: str | None = None
