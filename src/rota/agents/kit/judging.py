"""From all an agent said and the way its process ended to a verdict.

1. Stopped by Rota: cancelled, or failed as timed out, also when a result was there already. The
   result is kept for people and not acted on.
2. Killed by signal 9 (or exit code 137) and not by Rota: out of memory, not tried again.
3. Any other signal or exit code but 0 is a failure, whatever was said: of the kind of the last
   fault, else of what standard error tells. That a program cannot be started is said by its
   executor alone: 126 or 127 may be of what a shell called last, after much work.
4. Exit code 0: the last word counts. A fault told after the result is a failure; a result told
   after a fault is a success, for the agent got over it. Of several results the last one counts
   that says anything.
5. A result that is nothing but the error of a provider is a failure; a script has no provider, so
   its words are its own, and of its errors none but want of memory is told apart.
6. An empty answer of an agent that used no tool is no result.
7. A result whose last line asks a question, or a question without a result: a person is asked.
8. A result may be silent, and say when it wants to look again: see `speaking`.
9. A result that another one follows, or after which more was taken in, is an answer on the way:
   it is for people at once, and what the verdict leaves to tell them is what came after it.
10. Neither result nor fault nor question: failed, without a result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

from rota.agents.kit.diagnosis import classify, classify_own, is_banner, reset_in
from rota.agents.kit.rota_lines import closing_question
from rota.agents.kit.speaking import spoken
from rota.agents.kit.text import LONGEST_DETAIL, decoded, detail, encode_text
from rota.model.faults import FaultKind
from rota.model.keeping import CANNOT_START
from rota.model.outcomes import Asked, Cancelled, Failed, Succeeded
from rota.model.said import (
    Answer,
    Fault,
    Question,
    Result,
    Said,
    Session,
    Taken,
    ToolCall,
    Usage,
)
from rota.model.verdicts import Exit, Judged, Stop, Verdict

ENDED = ("exit code ", "signal ")
KILLED = 9
NOT_STARTED = 126
"""Of an executor that cannot start a program, and never will."""
HINTS = {126: " (command cannot be executed)", 127: " (command not found)"}
"""What shells mean by a code."""
SIGNALLED = 128
UNSTARTED = CANNOT_START.decode()
UNKNOWN = frozenset({FaultKind.OTHER, FaultKind.NOT_STARTED, FaultKind.BAD_RESULT})
"""Of which only the program knows the reason."""


@dataclass(slots=True)
class Heard:
    """What counts of all that was said."""

    last: Result | Fault | None = None
    answer: str = ""
    question: Question | None = None
    session: str | None = None
    usage: Usage = field(default_factory=Usage)
    results: int = 0
    tool_calls: int = 0
    may_be_silent: bool = False
    has_provider: bool = True
    own_errors: bool = False
    """Whether standard error is the program's own: what it tells of a provider is a guess."""
    told: int = 0
    """How many answers were for people before the last one."""
    untold: Result | None = None
    """The last result, as far as nothing has followed it."""

    def overtaken(self, said: Said) -> Iterator[Answer]:
        """Yield the answer before, if what is said now shows that it is not the last word."""
        if not isinstance(said, Taken) and not (
            isinstance(said, Result) and not _says_nothing(said)
        ):
            return
        before, self.untold = self.untold, None
        result = None if before is None else self.for_people(before)
        if result is not None:
            yield Answer(result=result)

    def for_people(self, result: Result) -> str | None:
        """Return what a result tells people that it was not told before; None if nothing."""
        own = result if result.own is None else replace(result, text=result.own, own=None)
        if own.data is None:
            if not own.text.strip() or (self.has_provider and is_banner(own.text)):
                return None
            asked = closing_question(own.text)
            if asked is not None:
                return encode_text(f"{asked.context}\n\n{asked.text}".strip())
        success = spoken(own)
        return None if success.silent else success.result

    def note(self, said: Said) -> None:
        """Remember what matters for the verdict."""
        match said:
            case Result():
                self.results += 1
                if not (_says_nothing(said) and isinstance(self.last, Result)):
                    self.last, self.answer, self.untold = said, said.text, said
            case Answer():
                self.told += 1
            case Fault():
                self.last = said
            case Question():
                self.question = said
            case Session():
                self.session = said.id
            case Usage():
                self.usage += said
            case ToolCall():
                self.tool_calls += 1


def _says_nothing(result: Result) -> bool:
    return replace(result, text=result.text.strip(), own=None) == Result(text="")


def judge(heard: Heard, end: Exit, stray: str = "") -> Verdict:
    """Return the verdict; `stray` is output that was no part of the agent's stream."""
    fault = _fault(heard, end, stray)
    return Verdict(
        outcome=_outcome(heard, fault),
        fault=None if fault is None else fault.kind,
        text=heard.answer,
        usage=heard.usage,
        session=heard.session,
        until=None if fault is None else fault.until,
        results=heard.results,
        tool_calls=heard.tool_calls,
        guessed=heard.own_errors and end.code != 0 and not isinstance(heard.last, Fault),
    )


def _outcome(heard: Heard, fault: Fault | None) -> Judged:
    if fault is not None:
        if fault.kind is FaultKind.CANCELLED:
            return Cancelled(reason=fault.detail)
        return _failed(fault, has_provider=heard.has_provider)
    if isinstance(heard.last, Result):
        question = closing_question(heard.last.text)
        if question is None:
            return _left(heard, spoken(heard.last))
    else:
        question = heard.question
    return _asked(question) if question else Succeeded()


def _failed(fault: Fault, *, has_provider: bool) -> Failed:
    """Return a failure; what an agent said of it is for whoever reads the run, and not sent.

    The reason of a script is: it speaks to who wrote it.
    """
    kind, reason = fault.kind, _reason(fault)
    own = has_provider and kind in UNKNOWN and not reason.startswith(UNSTARTED)
    return Failed(
        code=kind.value,
        message=f"{_headline(kind, reason)}\n{fault.detail}".strip(),
        retryable=kind.retry,
        sentence=kind.sentence if own else None,
    )


def _reason(fault: Fault) -> str:
    """Return what a program told, or else the last line of its standard error."""
    lines = fault.detail.split("\n")
    return (lines[-1] if lines[0].startswith(ENDED) else lines[0]).strip()


def _headline(kind: FaultKind, reason: str) -> str:
    """Return what is read first in a run: the sentence, or why if only the program knows it."""
    if kind is FaultKind.OTHER:
        return reason or kind.sentence
    if kind in UNKNOWN and reason:
        what, _, advice = kind.sentence.partition("; ")
        return f"{what}: {reason.removeprefix(UNSTARTED)}; {advice}"
    return kind.sentence


def _left(heard: Heard, success: Succeeded) -> Succeeded:
    """Return a success with what is left to tell people, if they were told some of it."""
    if not heard.told:
        return success
    rest = None if heard.untold is None else heard.for_people(heard.untold)
    return replace(success, rest=rest or "")


def _asked(question: Question) -> Asked:
    asked = Asked(
        question=question.text,
        context=question.context,
        options=question.options,
        default=question.default,
    )
    if question.expires_in is None:
        return asked
    return replace(asked, expires_in=timedelta(seconds=question.expires_in))


def _fault(heard: Heard, end: Exit, stray: str) -> Fault | None:
    if end.stopped is not None:
        return _stopped(end.stopped)
    if end.out_of_memory or end.signal == KILLED or end.code == SIGNALLED + KILLED:
        return Fault(kind=FaultKind.OUT_OF_MEMORY)
    if end.code != 0 or end.signal is not None:
        return _broken(heard, end, stray)
    if isinstance(heard.last, Fault):
        return heard.last
    if heard.last is None:
        return None if heard.question else Fault(kind=FaultKind.NO_RESULT, detail=stray)
    return None if heard.last.data is not None else _empty(heard, heard.last.text)


def _empty(heard: Heard, answer: str) -> Fault | None:
    if heard.has_provider and is_banner(answer):
        return told(answer)
    if answer.strip() or heard.tool_calls or heard.may_be_silent:
        return None
    return Fault(kind=FaultKind.NO_RESULT, detail="its answer is empty")


def _stopped(stop: Stop) -> Fault:
    match stop:
        case Stop.CANCELLED:
            return Fault(kind=FaultKind.CANCELLED, detail="cancelled while it ran")
        case Stop.IDLE:
            return Fault(kind=FaultKind.TIMEOUT, detail="it said nothing for too long")
        case Stop.TIMEOUT:
            return Fault(kind=FaultKind.TIMEOUT)


def _broken(heard: Heard, end: Exit, stray: str) -> Fault:
    if isinstance(heard.last, Fault):
        return heard.last
    words = _tail(end) or stray
    if end.code == NOT_STARTED and not end.begun:
        return Fault(kind=FaultKind.NOT_STARTED, detail=f"exit code {end.code}\n{words}".strip())
    told_ = f"{_ended(end)}\n{words}".strip()
    kind = classify(words, guess=heard.own_errors) if heard.has_provider else FaultKind.OTHER
    if heard.own_errors and kind is FaultKind.NETWORK:  # it may be about whatever it talks to
        kind = FaultKind.OTHER
    if kind is FaultKind.OTHER:  # want of memory is told before a long trace
        kind = classify_own(decoded(end.stderr_tail) or stray)
    return Fault(kind=kind, detail=told_, until=reset_in(words) if heard.has_provider else None)


def _ended(end: Exit) -> str:
    if end.signal is not None:
        return f"signal {end.signal}"
    hint = "" if end.code is None else HINTS.get(end.code, "")
    return f"exit code {end.code}{hint}"


def _tail(end: Exit) -> str:
    return detail(decoded(end.stderr_tail[-LONGEST_DETAIL:]))


def told(words: str, status: int | None = None) -> Fault:
    """Return the fault that an agent tells in words."""
    return Fault(kind=classify(words, status), detail=detail(words), until=reset_in(words))
