"""From all an agent said and the way its process ended to a verdict.

1. Stopped by Rota: cancelled, or failed as timed out, also when a result was there already. The
   result is kept for people and not acted on.
2. Killed by signal 9 (or exit code 137) and not by Rota: out of memory, not tried again.
3. Any other signal or exit code but 0 is a failure, whatever was said: of the kind of the last
   fault, else of what standard error tells.
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
NOT_EXECUTABLE, NOT_FOUND = 126, 127
SIGNALLED = 128


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
    )


def _outcome(heard: Heard, fault: Fault | None) -> Judged:
    if fault is not None:
        if fault.kind is FaultKind.CANCELLED:
            return Cancelled(reason=fault.detail)
        message = f"{_headline(fault)}\n{fault.detail}".strip()
        return Failed(code=fault.kind.value, message=message, retryable=fault.kind.retry)
    if isinstance(heard.last, Result):
        question = closing_question(heard.last.text)
        if question is None:
            return _left(heard, spoken(heard.last))
    else:
        question = heard.question
    return _asked(question) if question else Succeeded()


def _headline(fault: Fault) -> str:
    """Return what people read first: the sentence, or the reason where only the program knows it.

    That is what it told, or else the last line of its standard error.
    """
    sentence, lines = fault.kind.sentence, fault.detail.split("\n")
    reason = (lines[-1] if lines[0].startswith(ENDED) else lines[0]).strip()
    if fault.kind is FaultKind.OTHER:
        return reason or sentence
    if fault.kind is FaultKind.NOT_STARTED and reason:
        what, _, advice = sentence.partition("; ")
        return f"{what}: {reason.removeprefix(CANNOT_START.decode())}; {advice}"
    return sentence


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
    ended = f"signal {end.signal}" if end.signal is not None else f"exit code {end.code}"
    if isinstance(heard.last, Fault):
        return heard.last
    if end.code in {NOT_EXECUTABLE, NOT_FOUND}:
        return Fault(kind=FaultKind.NOT_STARTED, detail=f"{ended}\n{_tail(end) or stray}".strip())
    words = _tail(end) or stray
    told_ = f"{ended}\n{words}".strip()
    if not heard.has_provider:
        return Fault(kind=classify_own(words), detail=told_)
    return Fault(kind=classify(words), detail=told_, until=reset_in(words))


def _tail(end: Exit) -> str:
    return detail(decoded(end.stderr_tail[-LONGEST_DETAIL:]))


def told(words: str, status: int | None = None) -> Fault:
    """Return the fault that an agent tells in words."""
    return Fault(kind=classify(words, status), detail=detail(words), until=reset_in(words))
