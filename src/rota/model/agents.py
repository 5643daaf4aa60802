"""Agent specs, agent events and agent results.

Every text here is safe to store and to show: valid Unicode without terminal sequences and control
characters. It is bounded: 16,000 characters, or 1 MiB (one line) for a result.
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
    """How the instructions reach a program."""

    STDIN = "stdin"
    ARGV = "argv"
    LINES = "lines"
    """As JSON lines; new messages of its thread are written to it while it works."""


class OutputFormat(StrEnum):
    """What counts as the result of a program that writes no result line of Rota's protocol."""

    TEXT = "text"
    LAST_LINE = "last_line"
    LINES = "lines"


class SessionMode(StrEnum):
    """Which session a run continues: the one of its thread, or one of its own."""

    SHARED = "shared"
    ISOLATED = "isolated"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSpec:
    """What a task asks of its agent; None leaves the choice to the agent.

    `tools` lists the only tools allowed, `denied_tools` the forbidden ones. `thinking` and
    `permission_mode` take the agent's own values. `envelope` chooses between a prompt in sections
    and the bare instructions; `previous_result` adds the last result to the prompt. The last four
    fields are for the agent `command` only: the program, how it takes its prompt and how its output
    is read, and the names of further environment variables it may see.
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
    """Text for people."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentStyledText(AgentText):
    """Text for people; `ansi` is the same text with its colours."""

    ansi: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentProgress:
    """Progress in percent from 0 to 100, if known."""

    percent: float | None = None
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentToolCall:
    """A call of a tool; `summary` is one short line."""

    name: str
    summary: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentUsage:
    """Usage since the previous usage event.

    `input` includes the `cached` tokens. `cost` is in US dollars, None if the agent does not report
    it. With `of_session` the figures cover the whole session, earlier attempts included.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cost: float | None = None
    model: str | None = None
    of_session: bool = False

    def __add__(self, other: AgentUsage) -> AgentUsage:
        """Return the sum, with the newer model."""
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
    """The agent's own id of the session, with which it can be resumed."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentQuestion:
    """A question to a person."""

    text: str
    options: tuple[str, ...] = ()
    context: str = ""
    default: str | None = None
    expires_in: float | None = None
    """In seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentAnswer:
    """The final answer: text, or JSON text in `data`.

    A `silent` answer is sent to nobody. `next_check` is when the agent wants to run again, as it
    wrote it. If `text` repeats earlier answers, `own` is the part after them.
    """

    text: str = ""
    data: str | None = None
    silent: bool = False
    next_check: str | None = None
    own: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentTurnAnswer:
    """Answers given so far, as JSON text, while the agent goes on."""

    result: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentError:
    """An error of the agent; `until` is when a limit is lifted, if the agent reports it."""

    kind: AgentErrorKind
    detail: str = ""
    until: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessageAccepted:
    """The agent has accepted a message that was written to it while it worked."""

    message: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInputRequested:
    """The agent needs this line as input: to go on, or to report its state."""

    line: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentInputClosed:
    """The agent reads no more input."""


AgentEvent: TypeAlias = (
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
        """Whether the same request may succeed soon; if so, it is repeated within the attempt."""
        return MEANINGS[self].transient

    @property
    def retry(self) -> bool:
        """Whether another attempt can help."""
        return MEANINGS[self].retry

    @property
    def sentence(self) -> str:
        """What happened and what to do, for people."""
        return MEANINGS[self].sentence


class AgentErrorMeaning(NamedTuple):
    """What follows from a kind of error."""

    transient: bool
    retry: bool
    sentence: str


MEANINGS = MappingProxyType(
    {
        AgentErrorKind.RATE_LIMIT: AgentErrorMeaning(
            True, True, "The model's provider limits the rate of requests; wait."
        ),
        AgentErrorKind.OVERLOAD: AgentErrorMeaning(
            True, True, "The model's provider is overloaded; wait and try again."
        ),
        AgentErrorKind.NETWORK: AgentErrorMeaning(
            True, True, "The model's provider cannot be reached; check the network of this machine."
        ),
        AgentErrorKind.AUTHENTICATION: AgentErrorMeaning(
            False, False, "The model's provider rejects the key; set a valid one."
        ),
        AgentErrorKind.BILLING: AgentErrorMeaning(
            False, False, "The account has no credit left; top it up or choose another account."
        ),
        AgentErrorKind.UNKNOWN_MODEL: AgentErrorMeaning(
            False, False, "The model does not exist or this account cannot use it; choose another."
        ),
        AgentErrorKind.CONTEXT_TOO_LONG: AgentErrorMeaning(
            False, False, "The prompt is too long for the model; shorten it or start a new session."
        ),
        AgentErrorKind.REFUSED: AgentErrorMeaning(
            False, False, "The model declined to do this; change the instructions."
        ),
        AgentErrorKind.SESSION_LOST: AgentErrorMeaning(
            False, True, "The agent no longer knows this session; start a new one."
        ),
        AgentErrorKind.TURNS: AgentErrorMeaning(
            False, False, "It used all turns it may take; allow more or ask for less."
        ),
        AgentErrorKind.OUT_OF_MEMORY: AgentErrorMeaning(
            False, False, "It ran out of memory and was killed; allow more or give it less to do."
        ),
        AgentErrorKind.TIMEOUT: AgentErrorMeaning(
            False, True, "It exceeded its time limit and was stopped; allow more time."
        ),
        AgentErrorKind.NOT_STARTED: AgentErrorMeaning(
            False,
            False,
            "It cannot be started; install its program or image, or correct its path.",
        ),
        AgentErrorKind.NO_RESULT: AgentErrorMeaning(
            False, True, "It ended without a result; look at its output."
        ),
        AgentErrorKind.BAD_RESULT: AgentErrorMeaning(
            False, False, "Its result cannot be stored; look at its output."
        ),
        AgentErrorKind.CANCELLED: AgentErrorMeaning(False, False, "It was cancelled."),
        AgentErrorKind.OTHER: AgentErrorMeaning(False, True, "It failed; look at its output."),
    }
)


class StopReason(StrEnum):
    """Why Rota stopped a process."""

    CANCELLED = "cancelled"
    TIMEOUT = "timeout"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessExit:
    """How a process ended: its exit code or signal, and why Rota stopped it, if it did.

    `out_of_memory` is reported by the kernel for the cgroup of the attempt, if it has one. `begun`
    is false if an executor's process reported that it cannot start the program.
    """

    code: int | None = None
    signal: int | None = None
    stopped: StopReason | None = None
    stderr_tail: bytes = b""
    out_of_memory: bool = False
    begun: bool = True


AgentOutcome: TypeAlias = Succeeded | Failed | WaitingForAnswer | Cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentResult:
    """The result of an attempt.

    `text` is the agent's last answer, also if the attempt failed. `results` counts its answers.
    After a stop, `usage` is a lower bound. `guessed` means that `fault` was inferred from text that
    the program wrote.
    """

    outcome: AgentOutcome
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
        """Whether to launch again within the attempt; never if the error was guessed."""
        return self.error is not None and self.error.transient and not self.guessed
