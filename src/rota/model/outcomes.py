"""How an attempt ended, said by whoever watched it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import TypeAlias

from rota.model.asides import Aside
from rota.model.deliveries import Mail

LONGEST_RESULT = 256 * 1024
"""How many bytes a result may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Succeeded:
    """The work was done; `result` is JSON text or None.

    A `silent` one is not delivered to anybody. `next_check` is how long from now it wants to look
    again, in its own words. Where people were told some of the result while it worked, `rest` is
    what is left to tell them, JSON text; empty if nothing is.
    """

    result: str | None = None
    silent: bool = False
    next_check: str | None = None
    rest: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The work ended without being done.

    What is sent to people is the first line of the message, or else a `sentence` in its place:
    where that line is the program's own.
    """

    code: str
    message: str
    retryable: bool = True
    sentence: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The run waits for a person.

    `default` is the answer if nobody gives one in time. With an `action`, as it is shown to people,
    the question is whether to approve exactly that.
    """

    question: str
    context: str = ""
    options: tuple[str, ...] = ()
    expires_in: timedelta = timedelta(hours=24)
    default: str | None = None
    action: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """Somebody stopped the run."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Expired:
    """The run's deadline or its question ran out."""

    reason: str
    code: str = "expired"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The attempt vanished; nobody knows how far it got.

    `wrote` says whether it has written to somewhere outside; None if nobody has looked, or could.
    """

    reason: str
    wrote: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """The run is given back before its work was done: the worker shuts down, or a budget is spent.

    Then `reason` says which, and it may begin again at `until`, in microseconds.
    """

    until: int | None = None
    reason: str | None = None


Outcome: TypeAlias = Succeeded | Failed | Asked | Cancelled | Expired | Lost | Drained


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """A message a run wants sent once it has settled; `client_id` makes it the same on a retry."""

    client_id: str
    channel: str
    target: str
    body: str
    mail: Mail | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """An outcome, and what the attempt wants done in the same transaction.

    `ending` is how its processes ended, as JSON, where it had any. `away` is for how many
    microseconds they had been gone before anybody was there to hear of it. One that is `unbegun`
    had no program that could have read what it was given.
    """

    outcome: Outcome
    messages: tuple[Message, ...] = field(default=())
    ending: str | None = None
    aside: Aside | None = None
    away: int = 0
    unbegun: bool = False


DONE = Report(outcome=Succeeded())
"""What an attempt that has nothing to say reports."""
