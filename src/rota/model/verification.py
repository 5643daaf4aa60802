"""What must be true of every database, and what a look at one has found.

The numbers are those of the design: an invariant that has no object in the store (processes,
inbound messages) or that is no state of it (a backlog that drains) is not in the list.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class Invariant(StrEnum):
    """One thing that always holds."""

    ONE_FATE = "I1"
    EVERY_SLOT = "I2"
    OF_A_SLOT = "I3"
    EPOCHS = "I4"
    ONE_END = "I5"
    FOLLOW_UP = "I6"
    FENCED = "I7"
    IN_REACH = "I8"
    SENT_ONCE = "I9"
    DECISIONS = "I11"
    LIMITS = "I12"
    SPACES = "I13"
    TRIES = "I14"
    QUOTA = "I17"
    REPLAY = "I18"
    BUDGETS = "I19"


class Meaning(NamedTuple):
    """What an invariant says, and what to do where it does not hold."""

    sentence: str
    advice: str


_RECORD = "stop Rota, keep a copy of the database, and report it with that copy"

MEANINGS: Mapping[Invariant, Meaning] = MappingProxyType(
    {
        Invariant.ONE_FATE: Meaning(
            "a slot or key has one run, and no ledger row beside it unless it was backfilled",
            "check what the second one did, then cancel or delete it",
        ),
        Invariant.EVERY_SLOT: Meaning(
            "every planned slot has a run or a ledger row",
            "`rota why TASK` shows the gap, `rota backfill TASK` queues its slots; "
            "what is deleted needs nothing",
        ),
        Invariant.OF_A_SLOT: Meaning(
            "a run of a slot names that slot, and its schedule is its task's", _RECORD
        ),
        Invariant.EPOCHS: Meaning("every attempt has its own epoch, without a gap", _RECORD),
        Invariant.ONE_END: Meaning("a finished run has ended once, any other never", _RECORD),
        Invariant.FOLLOW_UP: Meaning(
            "results, messages and successors are there exactly when the run's end says so",
            "see what it ended with by `rota run RUN`, and run by hand what is missing",
        ),
        Invariant.FENCED: Meaning("nothing was recorded under an epoch that never was", _RECORD),
        Invariant.IN_REACH: Meaning(
            "everything unfinished is in somebody's reach",
            "`rota up` rebuilds what claiming looks at within a minute; "
            "what stays, cancel and run again",
        ),
        Invariant.SENT_ONCE: Meaning(
            "a message is sent at most once, and tried no more often than allowed",
            "ask its receiver what arrived",
        ),
        Invariant.DECISIONS: Meaning(
            "an approval is about exactly the bytes that were shown, and decided once",
            "ask again; do not act on that decision",
        ),
        Invariant.LIMITS: Meaning(
            "limits, rates and lanes hold", "cancel what is too much, and report it"
        ),
        Invariant.SPACES: Meaning("whatever belongs to a run or task is in its space", _RECORD),
        Invariant.TRIES: Meaning(
            "retries and losses are what the record says, and no more than allowed", _RECORD
        ),
        Invariant.QUOTA: Meaning(
            "a run stores no more than its quota", "prune it, and store large data elsewhere"
        ),
        Invariant.REPLAY: Meaning("a run's events, replayed, give its state", _RECORD),
        Invariant.BUDGETS: Meaning(
            "what budgets count as used and set aside is what the runs say", _RECORD
        ),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """An invariant that does not hold, for one thing."""

    invariant: Invariant
    where: str
    what: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """How much was looked at for an invariant, and how often it did not hold."""

    invariant: Invariant
    looked_at: int = 0
    violated: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a look at one consistent view of a database found.

    `violations` holds the first of each invariant, `checks` count them all; `unseen` says what was
    not looked at, and why.
    """

    at: datetime
    checks: tuple[Check, ...]
    violations: tuple[Violation, ...] = ()
    unseen: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def clean(self) -> bool:
        """Whether everything holds."""
        return not any(check.violated for check in self.checks)
