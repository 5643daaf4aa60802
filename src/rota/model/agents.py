"""What a task asks of an agent, what agents say, and what came of it.

Every text in here is safe to show and to store: valid Unicode, without terminal sequences and
control characters, and bounded: 16,000 characters, a result as long as a line, 1 MiB.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from rota.model.attempts import Cancelled, Failed, Succeeded, WaitingForAnswer

MAX_TURNS = 10_000


class PromptInput(StrEnum):
    """How a program is given its instructions."""

    STDIN = "stdin"
    ARGV = "argv"
    LINES = "lines"
    """Line by line in JSON, and whatever is said in its thread while it works, too."""


class OutputFormat(StrEnum):
    """What counts as the result of a program that says none in a line of Rota's."""

    TEXT = "text"
    LAST_LINE = "last_line"
    LINES = "lines"


class SessionMode(StrEnum):
    """Which session a run goes on in: that of its group, the thread, or one of its own."""

    SHARED = "shared"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """The instructions, and every choice an agent leaves open; None leaves it to the agent.

    `tools` are the only ones it may use, `denied_tools` some it may not. `thinking` and
    `permission_mode` are the agent's own words. With the session `shared` a run goes on in the
    session of its thread. `envelope` says whether everything the agent is told stands in the
    sections of a prompt or comes as it is, and `previous_result` that the last result is among it.
    The rest is for `command` alone: the words of the program, how it is told and read, and the
    names of further variables it may see.
    """

    instructions: str = ""
    model: str | None = None
    fallback_models: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    denied_tools: tuple[str, ...] = ()
    thinking: str | None = None
    permission_mode: str | None = None
    max_turns: int | None = None
    session: SessionMode = SessionMode.ISOLATED
    envelope: bool | None = None
    previous_result: bool = False
    program: tuple[str, ...] = ()
    prompt_by: PromptInput = PromptInput.STDIN
    output: OutputFormat = OutputFormat.TEXT
    variables: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentText:
    """Words for people."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStyledText(AgentText):
    """Words that have colours, too, for whoever sees them on a terminal."""

    ansi: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgress:
    """How far it is: percent from 0 to 100, where it is known."""

    percent: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolCall:
    """A tool the agent uses; `summary` is one short line."""

    name: str
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUsage:
    """What was used up since the usage told before.

    `input` counts every token that went in, `cached` those of them that came from a cache. `cost`
    is in US dollars, None where the agent does not tell. With `of_session` the figures count the
    whole session, earlier attempts included.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None
    model: str | None = None
    of_session: bool = False

    def __add__(self, other: AgentUsage) -> AgentUsage:
        """Return both together, with the newer model."""
        known = [cost for cost in (self.cost, other.cost) if cost is not None]
        return AgentUsage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cost=sum(known) if known else None,
            model=other.model or self.model,
            of_session=self.of_session or other.of_session,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSessionStarted:
    """The agent's own name for this conversation, by which it can be resumed."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestion:
    """Something a person must answer."""

    text: str
    options: tuple[str, ...] = ()
    context: str = ""
    default: str | None = None
    expires_in: float | None = None
    """In seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """The answer: a text, or JSON text in `data`.

    A `silent` one is told to nobody. `next_check` is when it wants to look again, in its own words.
    Where the text begins with what was answered before, `own` is the rest of it.
    """

    text: str = ""
    data: str | None = None
    silent: bool = False
    next_check: str | None = None
    own: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurnAnswer:
    """What it has answered people so far, JSON text, before it goes on: not its last word."""

    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentError:
    """Something went wrong; `until` is when a limit is lifted, where the agent tells."""

    kind: AgentErrorKind
    detail: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessageAccepted:
    """A message that came while it worked, and that it has taken in."""

    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInputRequested:
    """A line that it must be told to go on, or to say how it stands."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInputClosed:
    """It takes nothing more in, whatever lies on its input."""


Said: TypeAlias = (
    AgentText
    | AgentProgress
    | AgentToolCall
    | AgentUsage
    | AgentSessionStarted
    | AgentQuestion
    | AgentAnswer
    | AgentTurnAnswer
    | AgentError
    | AgentMessageAccepted
    | AgentInputRequested
    | AgentInputClosed
)


class AgentErrorKind(StrEnum):
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


class AgentErrorMeaning(NamedTuple):
    """What follows from a kind of fault."""

    transient: bool
    retry: bool
    sentence: str


MEANINGS = MappingProxyType(
    {
        AgentErrorKind.RATE_LIMIT: AgentErrorMeaning(
            True, True, "The model's provider takes no more requests for now; wait."
        ),
        AgentErrorKind.OVERLOAD: AgentErrorMeaning(
            True, True, "The model's provider is overloaded; wait and try again."
        ),
        AgentErrorKind.NETWORK: AgentErrorMeaning(
            True, True, "The model's provider cannot be reached; check the network of this machine."
        ),
        AgentErrorKind.AUTHENTICATION: AgentErrorMeaning(
            False, False, "The model's provider refuses the key; put in a valid one."
        ),
        AgentErrorKind.BILLING: AgentErrorMeaning(
            False, False, "The account has no credit left; top it up or choose another account."
        ),
        AgentErrorKind.UNKNOWN_MODEL: AgentErrorMeaning(
            False, False, "The model does not exist or is not open to this account; choose another."
        ),
        AgentErrorKind.CONTEXT_TOO_LONG: AgentErrorMeaning(
            False, False, "It is more text than the model takes; shorten it or begin a new session."
        ),
        AgentErrorKind.REFUSED: AgentErrorMeaning(
            False, False, "The model declined to do this; change the instructions."
        ),
        AgentErrorKind.SESSION_LOST: AgentErrorMeaning(
            False, True, "The agent no longer knows this session; a new one has to be begun."
        ),
        AgentErrorKind.TURNS: AgentErrorMeaning(
            False, False, "It used up the turns it was given; allow more or ask for less."
        ),
        AgentErrorKind.OUT_OF_MEMORY: AgentErrorMeaning(
            False, False, "It ran out of memory and was ended; give it more or let it do less."
        ),
        AgentErrorKind.TIMEOUT: AgentErrorMeaning(
            False, True, "It took longer than it may and was stopped; allow more time."
        ),
        AgentErrorKind.NOT_STARTED: AgentErrorMeaning(
            False,
            False,
            "It cannot be started; install its program or its image, or correct its path.",
        ),
        AgentErrorKind.NO_RESULT: AgentErrorMeaning(
            False, True, "It ended without a result; look at its output."
        ),
        AgentErrorKind.BAD_RESULT: AgentErrorMeaning(
            False, False, "Its result cannot be kept; look at its output."
        ),
        AgentErrorKind.CANCELLED: AgentErrorMeaning(False, False, "Somebody stopped it."),
        AgentErrorKind.OTHER: AgentErrorMeaning(False, True, "It failed; look at its output."),
    }
)


class StopReason(StrEnum):
    """Why Rota itself ended a process."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended: by its code or by a signal, and whether Rota was the one who ended it.

    `out_of_memory` is what the kernel told of the attempt's own group, where it has one. `begun` is
    false where the process was an executor's, which said that it cannot start the program.
    """

    code: int | None = None
    signal: int | None = None
    stopped: StopReason | None = None
    stderr_tail: bytes = b""
    out_of_memory: bool = False
    begun: bool = True


Judged: TypeAlias = Succeeded | Failed | WaitingForAnswer | Cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """What an attempt came to.

    `text` is the agent's last answer; it is kept for people also when it does not count. `results`
    is how many it gave. After an agent was stopped, `usage` is at least what was used. A `guessed`
    fault is one that words of the program's own seem to tell.
    """

    outcome: Judged
    error: AgentErrorKind | None = None
    text: str = ""
    usage: AgentUsage = field(default_factory=AgentUsage)
    session: str | None = None
    until: datetime | None = None
    results: int = 0
    tool_calls: int = 0
    guessed: bool = False

    @property
    def transient(self) -> bool:
        """Whether to try again inside the attempt, without counting it; never on a guess."""
        return self.error is not None and self.error.transient and not self.guessed
