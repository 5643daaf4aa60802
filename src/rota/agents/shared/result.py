"""The result of an agent, from its output and the end of its process.

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

A result is silent if it says so: `"silent": true` in a line of Rota's or in an object, or the word
`NO_ACTION:` at its very beginning. The words of others that an agent repeats further down silence
nothing, and one that goes on with a line `ACTION:` speaks after all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from rota.agents.shared.diagnosis import classify, classify_own, is_banner, reset_in
from rota.agents.shared.line_protocol import closing_question, closing_result
from rota.agents.shared.stream import MAX_DETAIL, MAX_NAME, decoded, detail, encode_text
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentMessageAccepted,
    AgentQuestion,
    AgentResult,
    AgentSessionStarted,
    AgentToolCall,
    AgentTurnAnswer,
    AgentUsage,
    Judged,
    ProcessExit,
    Said,
    StopReason,
)
from rota.model.attempts import CANNOT_START, Cancelled, Failed, Succeeded, WaitingForAnswer

ENDED = ("exit code ", "signal ")
KILLED = 9
NOT_STARTED = 126
"""Of an executor that cannot start a program, and never will."""
HINTS = {126: " (command cannot be executed)", 127: " (command not found)"}
"""What shells mean by a code."""
SIGNALLED = 128
UNSTARTED = CANNOT_START.decode()
UNKNOWN = frozenset({AgentErrorKind.OTHER, AgentErrorKind.NOT_STARTED, AgentErrorKind.BAD_RESULT})
"""Of which only the program knows the reason."""


@dataclass(slots=True)
class AgentTranscript:
    """What counts of all that was said."""

    last: AgentAnswer | AgentError | None = None
    answer: str = ""
    question: AgentQuestion | None = None
    session: str | None = None
    usage: AgentUsage = field(default_factory=AgentUsage)
    results: int = 0
    tool_calls: int = 0
    may_be_silent: bool = False
    has_provider: bool = True
    own_errors: bool = False
    """Whether standard error is the program's own: what it tells of a provider is a guess."""
    told: int = 0
    """How many answers were for people before the last one."""
    untold: AgentAnswer | None = None
    """The last result, as far as nothing has followed it."""

    def overtaken(self, said: Said) -> Iterator[AgentTurnAnswer]:
        """Yield the answer before, if what is said now shows that it is not the last word."""
        if not isinstance(said, AgentMessageAccepted) and not (
            isinstance(said, AgentAnswer) and not _says_nothing(said)
        ):
            return
        before, self.untold = self.untold, None
        result = None if before is None else self.for_people(before)
        if result is not None:
            yield AgentTurnAnswer(result=result)

    def for_people(self, result: AgentAnswer) -> str | None:
        """Return what a result tells people that it was not told before; None if nothing."""
        own = result if result.own is None else replace(result, text=result.own, own=None)
        if own.data is None:
            if not own.text.strip() or (self.has_provider and is_banner(own.text)):
                return None
            asked = closing_question(own.text)
            if asked is not None:
                return encode_text(f"{asked.context}\n\n{asked.text}".strip())
        success = public_answer(own)
        return None if success.silent else success.result

    def note(self, said: Said) -> None:
        """Remember what matters for the verdict."""
        match said:
            case AgentAnswer():
                self.results += 1
                if not (_says_nothing(said) and isinstance(self.last, AgentAnswer)):
                    self.last, self.answer, self.untold = said, said.text, said
            case AgentTurnAnswer():
                self.told += 1
            case AgentError():
                self.last = said
            case AgentQuestion():
                self.question = said
            case AgentSessionStarted():
                self.session = said.id
            case AgentUsage():
                self.usage += said
            case AgentToolCall():
                self.tool_calls += 1


def _says_nothing(result: AgentAnswer) -> bool:
    return replace(result, text=result.text.strip(), own=None) == AgentAnswer(text="")


def agent_result(heard: AgentTranscript, end: ProcessExit, stray: str = "") -> AgentResult:
    """Return the verdict; `stray` is output that was no part of the agent's stream."""
    fault = _fault(heard, end, stray)
    return AgentResult(
        outcome=_outcome(heard, fault),
        fault=None if fault is None else fault.kind,
        text=heard.answer,
        usage=heard.usage,
        session=heard.session,
        until=None if fault is None else fault.until,
        results=heard.results,
        tool_calls=heard.tool_calls,
        guessed=heard.own_errors and end.code != 0 and not isinstance(heard.last, AgentError),
    )


def _outcome(heard: AgentTranscript, fault: AgentError | None) -> Judged:
    if fault is not None:
        if fault.kind is AgentErrorKind.CANCELLED:
            return Cancelled(reason=fault.detail)
        return _failed(fault, has_provider=heard.has_provider)
    if isinstance(heard.last, AgentAnswer):
        question = closing_question(heard.last.text)
        if question is None:
            return _left(heard, public_answer(heard.last))
    else:
        question = heard.question
    return _asked(question) if question else Succeeded()


def _failed(fault: AgentError, *, has_provider: bool) -> Failed:
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


def _reason(fault: AgentError) -> str:
    """Return what a program told, or else the last line of its standard error."""
    lines = fault.detail.split("\n")
    return (lines[-1] if lines[0].startswith(ENDED) else lines[0]).strip()


def _headline(kind: AgentErrorKind, reason: str) -> str:
    """Return what is read first in a run: the sentence, or why if only the program knows it."""
    if kind is AgentErrorKind.OTHER:
        return reason or kind.sentence
    if kind in UNKNOWN and reason:
        what, _, advice = kind.sentence.partition("; ")
        return f"{what}: {reason.removeprefix(UNSTARTED)}; {advice}"
    return kind.sentence


def _left(heard: AgentTranscript, success: Succeeded) -> Succeeded:
    """Return a success with what is left to tell people, if they were told some of it."""
    if not heard.told:
        return success
    rest = None if heard.untold is None else heard.for_people(heard.untold)
    return replace(success, rest=rest or "")


def _asked(question: AgentQuestion) -> WaitingForAnswer:
    asked = WaitingForAnswer(
        question=question.text,
        context=question.context,
        options=question.options,
        default=question.default,
    )
    if question.expires_in is None:
        return asked
    return replace(asked, expires_in=timedelta(seconds=question.expires_in))


def _fault(heard: AgentTranscript, end: ProcessExit, stray: str) -> AgentError | None:
    if end.stopped is not None:
        return _stopped(end.stopped)
    if end.out_of_memory or end.signal == KILLED or end.code == SIGNALLED + KILLED:
        return AgentError(kind=AgentErrorKind.OUT_OF_MEMORY)
    if end.code != 0 or end.signal is not None:
        return _broken(heard, end, stray)
    if isinstance(heard.last, AgentError):
        return heard.last
    if heard.last is None:
        return None if heard.question else AgentError(kind=AgentErrorKind.NO_RESULT, detail=stray)
    return None if heard.last.data is not None else _empty(heard, heard.last.text)


def _empty(heard: AgentTranscript, answer: str) -> AgentError | None:
    if heard.has_provider and is_banner(answer):
        return exit_sentence(answer)
    if answer.strip() or heard.tool_calls or heard.may_be_silent:
        return None
    return AgentError(kind=AgentErrorKind.NO_RESULT, detail="its answer is empty")


def _stopped(stop: StopReason) -> AgentError:
    match stop:
        case StopReason.CANCELLED:
            return AgentError(kind=AgentErrorKind.CANCELLED, detail="cancelled while it ran")
        case StopReason.IDLE:
            return AgentError(kind=AgentErrorKind.TIMEOUT, detail="it said nothing for too long")
        case StopReason.TIMEOUT:
            return AgentError(kind=AgentErrorKind.TIMEOUT)


def _broken(heard: AgentTranscript, end: ProcessExit, stray: str) -> AgentError:
    if isinstance(heard.last, AgentError):
        return heard.last
    words = _tail(end) or stray
    if end.code == NOT_STARTED and not end.begun:
        return AgentError(
            kind=AgentErrorKind.NOT_STARTED, detail=f"exit code {end.code}\n{words}".strip()
        )
    told_ = f"{_ended(end)}\n{words}".strip()
    kind = classify(words, guess=heard.own_errors) if heard.has_provider else AgentErrorKind.OTHER
    if heard.own_errors and kind is AgentErrorKind.NETWORK:  # it may be about whatever it talks to
        kind = AgentErrorKind.OTHER
    if kind is AgentErrorKind.OTHER:  # want of memory is told before a long trace
        kind = classify_own(decoded(end.stderr_tail) or stray)
    return AgentError(
        kind=kind, detail=told_, until=reset_in(words) if heard.has_provider else None
    )


def _ended(end: ProcessExit) -> str:
    if end.signal is not None:
        return f"signal {end.signal}"
    hint = "" if end.code is None else HINTS.get(end.code, "")
    return f"exit code {end.code}{hint}"


def _tail(end: ProcessExit) -> str:
    return detail(decoded(end.stderr_tail[-MAX_DETAIL:]))


def exit_sentence(words: str, status: int | None = None) -> AgentError:
    """Return the fault that an agent tells in words."""
    return AgentError(kind=classify(words, status), detail=detail(words), until=reset_in(words))


QUIETLY = "NO_ACTION:"
ALOUD = re.compile(r"^ACTION:[ \t]*", re.MULTILINE)


class _Words(NamedTuple):
    text: str
    silent: bool = False


def public_answer(result: AgentAnswer) -> Succeeded:
    """Return the success that a result is."""
    told = closing_result(result)
    if told.data is not None:
        aside = _aside(told.data)
        silent = told.silent or aside.get("silent") is True
        again = told.next_check or _short(aside.get("next_check"))
        return Succeeded(result=told.data, silent=silent, next_check=again)
    words = _heeded(told.text)
    kept = encode_text(words.text) if words.text else None
    silent = told.silent or words.silent
    return Succeeded(result=kept, silent=silent, next_check=told.next_check)


def _heeded(text: str) -> _Words:
    """Return a text without the word that says whether it is for people."""
    start = text.lstrip()
    quietly = start.startswith(QUIETLY)
    if ALOUD.match(start) or (quietly and ALOUD.search(start)):
        return _Words(ALOUD.sub("", start, count=1))
    if quietly:
        return _Words(start.removeprefix(QUIETLY).strip(), silent=True)
    return _Words(text)


def _aside(data: str) -> dict[str, Any]:
    found = json.loads(data)
    return found if isinstance(found, dict) else {}


def _short(words: object) -> str | None:
    return words[:MAX_NAME] if isinstance(words, str) and words else None
