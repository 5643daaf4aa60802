"""What can go wrong with an agent, told apart by what helps."""

from __future__ import annotations

from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple


class FaultKind(StrEnum):
    """Why an agent's attempt did not succeed."""

    RATE_LIMIT = "rate_limit"
    OVERLOAD = "overload"
    NETWORK = "network"
    AUTHENTICATION = "authentication"
    BILLING = "billing"
    UNKNOWN_MODEL = "unknown_model"
    CONTEXT_TOO_LONG = "context_too_long"
    REFUSED = "refused"
    SESSION_LOST = "session_lost"
    TURNS = "turns"
    OUT_OF_MEMORY = "out_of_memory"
    TIMEOUT = "timeout"
    NOT_STARTED = "not_started"
    NO_RESULT = "no_result"
    BAD_RESULT = "bad_result"
    CANCELLED = "cancelled"
    OTHER = "other"

    @property
    def transient(self) -> bool:
        """Whether the same request may well succeed soon: tried again inside the attempt."""
        return MEANINGS[self].transient

    @property
    def retry(self) -> bool:
        """Whether another attempt can help."""
        return MEANINGS[self].retry

    @property
    def sentence(self) -> str:
        """What a person is told: what happened and what to do."""
        return MEANINGS[self].sentence


class Meaning(NamedTuple):
    """What follows from a kind of fault."""

    transient: bool
    retry: bool
    sentence: str


MEANINGS = MappingProxyType(
    {
        FaultKind.RATE_LIMIT: Meaning(
            True, True, "The model's provider takes no more requests for now; wait."
        ),
        FaultKind.OVERLOAD: Meaning(
            True, True, "The model's provider is overloaded; wait and try again."
        ),
        FaultKind.NETWORK: Meaning(
            True, True, "The model's provider cannot be reached; check the network of this machine."
        ),
        FaultKind.AUTHENTICATION: Meaning(
            False, False, "The model's provider refuses the key; put in a valid one."
        ),
        FaultKind.BILLING: Meaning(
            False, False, "The account has no credit left; top it up or choose another account."
        ),
        FaultKind.UNKNOWN_MODEL: Meaning(
            False, False, "The model does not exist or is not open to this account; choose another."
        ),
        FaultKind.CONTEXT_TOO_LONG: Meaning(
            False, False, "It is more text than the model takes; shorten it or begin a new session."
        ),
        FaultKind.REFUSED: Meaning(
            False, False, "The model declined to do this; change the instructions."
        ),
        FaultKind.SESSION_LOST: Meaning(
            False, True, "The agent no longer knows this session; a new one has to be begun."
        ),
        FaultKind.TURNS: Meaning(
            False, False, "It used up the turns it was given; allow more or ask for less."
        ),
        FaultKind.OUT_OF_MEMORY: Meaning(
            False, False, "It ran out of memory and was ended; give it more or let it do less."
        ),
        FaultKind.TIMEOUT: Meaning(
            False, True, "It took longer than it may and was stopped; allow more time."
        ),
        FaultKind.NOT_STARTED: Meaning(
            False,
            False,
            "It cannot be started; install its program or its image, or correct its path.",
        ),
        FaultKind.NO_RESULT: Meaning(False, True, "It ended without a result; look at its output."),
        FaultKind.BAD_RESULT: Meaning(
            False, False, "Its result cannot be kept; look at its output."
        ),
        FaultKind.CANCELLED: Meaning(False, False, "Somebody stopped it."),
        FaultKind.OTHER: Meaning(False, True, "It failed; look at its output."),
    }
)
