"""The result of an agent, from its output and the exit of its process.

1. Stopped by Rota: cancelled, or failed with a timeout, even if there was a result. The result is
kept for people, but has no effect. 2. Killed by signal 9 (or exit code 137), not by Rota: out of
memory, not retried. 3. Any other signal or exit code except 0 is a failure, whatever the output: of
the kind of the last error, else of what standard error says. Only the executor decides that a
program could not be started: 126 or 127 may also come from a shell after much work. 4. Exit code 0:
the last event counts. An error after a result is a failure, a result after an error is a success.
Of several results the last one that is not empty counts. 5. A result that consists only of a
provider's error message is a failure. Scripts have no provider; of their errors, only lack of
memory is classified. 6. An empty answer of an agent that has called no tool is no result. 7. A
result whose last line is a question, or a question without a result, asks a person. 8. A result may
be silent, and request the next check: see below. 9. A result that is followed by another one or by
an accepted message is an interim answer. It is sent at once, and the final result sends only what
came after it. 10. Without result, error and question: failed, without a result.

A result is silent with `"silent": true` in its line or object, or if it starts with `NO_ACTION:`.
The word has no effect further down, where it may be cited, and a line `ACTION:` after it cancels
it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from rota.agents.shared.diagnosis import classify, classify_script_error, is_banner, reset_in
from rota.agents.shared.line_protocol import closing_question, closing_result
from rota.agents.shared.stream import MAX_DETAIL, MAX_NAME, decode_text, detail, encode_text
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentEvent,
    AgentMessageAccepted,
    AgentOutcome,
    AgentQuestion,
    AgentResult,
    AgentSessionStarted,
    AgentToolCall,
    AgentTurnAnswer,
    AgentUsage,
    ProcessExit,
    StopReason,
)
from rota.model.attempts import CANNOT_START, Cancelled, Failed, Succeeded, WaitingForAnswer

EXIT_PREFIXES = ("exit code ", "signal ")
KILLED = 9
NOT_STARTED = 126
"""Exit code of an executor that cannot start the program."""
HINTS = {126: " (command cannot be executed)", 127: " (command not found)"}
"""Meanings of exit codes in shells."""
SIGNALLED = 128
UNSTARTED = CANNOT_START.decode()
UNKNOWN = frozenset({AgentErrorKind.OTHER, AgentErrorKind.NOT_STARTED, AgentErrorKind.BAD_RESULT})
"""Kinds whose reason only the program knows."""


@dataclass(slots=True)
class AgentTranscript:
    """The events that count for the result."""

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
    """Whether standard error may contain anything: then kinds of errors in it are guesses."""
    interim_count: int = 0
    """Number of interim answers."""
    unsent_answer: AgentAnswer | None = None
    """The last result, if no interim answer was made of it."""

    def interim_answers(self, event: AgentEvent) -> Iterator[AgentTurnAnswer]:
        """Yield the previous answer if this event shows that it was not the final one."""
        if not isinstance(event, AgentMessageAccepted) and not (
            isinstance(event, AgentAnswer) and not _is_empty(event)
        ):
            return
        before, self.unsent_answer = self.unsent_answer, None
        result = None if before is None else self.public_part(before)
        if result is not None:
            yield AgentTurnAnswer(result=result)

    def public_part(self, result: AgentAnswer) -> str | None:
        """Return the part of a result that was not sent yet; None if there is none."""
        own = result if result.own is None else replace(result, text=result.own, own=None)
        if own.data is None:
            if not own.text.strip() or (self.has_provider and is_banner(own.text)):
                return None
            asked = closing_question(own.text)
            if asked is not None:
                return encode_text(f"{asked.context}\n\n{asked.text}".strip())
        success = public_answer(own)
        return None if success.silent else success.result

    def add(self, event: AgentEvent) -> None:
        """Record an event."""
        match event:
            case AgentAnswer():
                self.results += 1
                if not (_is_empty(event) and isinstance(self.last, AgentAnswer)):
                    self.last, self.answer, self.unsent_answer = event, event.text, event
            case AgentTurnAnswer():
                self.interim_count += 1
            case AgentError():
                self.last = event
            case AgentQuestion():
                self.question = event
            case AgentSessionStarted():
                self.session = event.id
            case AgentUsage():
                self.usage += event
            case AgentToolCall():
                self.tool_calls += 1


def _is_empty(result: AgentAnswer) -> bool:
    return replace(result, text=result.text.strip(), own=None) == AgentAnswer(text="")


def agent_result(transcript: AgentTranscript, end: ProcessExit, stray: str = "") -> AgentResult:
    """Return the result; `stray` is output outside the agent's stream."""
    error = _find_error(transcript, end, stray)
    return AgentResult(
        outcome=_outcome(transcript, error),
        error=None if error is None else error.kind,
        text=transcript.answer,
        usage=transcript.usage,
        session=transcript.session,
        until=None if error is None else error.until,
        results=transcript.results,
        tool_calls=transcript.tool_calls,
        guessed=transcript.own_errors
        and end.code != 0
        and not isinstance(transcript.last, AgentError),
    )


def _outcome(transcript: AgentTranscript, error: AgentError | None) -> AgentOutcome:
    if error is not None:
        if error.kind is AgentErrorKind.CANCELLED:
            return Cancelled(reason=error.detail)
        return _failed(error, has_provider=transcript.has_provider)
    if isinstance(transcript.last, AgentAnswer):
        question = closing_question(transcript.last.text)
        if question is None:
            return _with_rest(transcript, public_answer(transcript.last))
    else:
        question = transcript.question
    return _question_outcome(question) if question else Succeeded()


def _failed(error: AgentError, *, has_provider: bool) -> Failed:
    """Return a failure; the text of an agent's own error is shown in the run, but not sent.

    Reasons of scripts are sent, as their authors wrote them.
    """
    kind, reason = error.kind, _reason(error)
    own = has_provider and kind in UNKNOWN and not reason.startswith(UNSTARTED)
    return Failed(
        code=kind.value,
        message=f"{_first_line(kind, reason)}\n{error.detail}".strip(),
        retryable=kind.retry,
        sentence=kind.sentence if own else None,
    )


def _reason(error: AgentError) -> str:
    """Return the reason a program gave, or the last line of its standard error."""
    lines = error.detail.split("\n")
    return (lines[-1] if lines[0].startswith(EXIT_PREFIXES) else lines[0]).strip()


def _first_line(kind: AgentErrorKind, reason: str) -> str:
    """Return the first line of a failure: the sentence of its kind, with the program's reason."""
    if kind is AgentErrorKind.OTHER:
        return reason or kind.sentence
    if kind in UNKNOWN and reason:
        what, _, advice = kind.sentence.partition("; ")
        return f"{what}: {reason.removeprefix(UNSTARTED)}; {advice}"
    return kind.sentence


def _with_rest(transcript: AgentTranscript, success: Succeeded) -> Succeeded:
    """Return a success with the part that is still to be sent, after interim answers."""
    if not transcript.interim_count:
        return success
    rest = (
        None
        if transcript.unsent_answer is None
        else transcript.public_part(transcript.unsent_answer)
    )
    return replace(success, rest=rest or "")


def _question_outcome(question: AgentQuestion) -> WaitingForAnswer:
    asked = WaitingForAnswer(
        question=question.text,
        context=question.context,
        options=question.options,
        default=question.default,
    )
    if question.expires_in is None:
        return asked
    return replace(asked, expires_in=timedelta(seconds=question.expires_in))


def _find_error(transcript: AgentTranscript, end: ProcessExit, stray: str) -> AgentError | None:
    if end.stopped is not None:
        return _stop_error(end.stopped)
    if end.out_of_memory or end.signal == KILLED or end.code == SIGNALLED + KILLED:
        return AgentError(kind=AgentErrorKind.OUT_OF_MEMORY)
    if end.code != 0 or end.signal is not None:
        return _exit_error(transcript, end, stray)
    if isinstance(transcript.last, AgentError):
        return transcript.last
    if transcript.last is None:
        return (
            None if transcript.question else AgentError(kind=AgentErrorKind.NO_RESULT, detail=stray)
        )
    return (
        None
        if transcript.last.data is not None
        else _check_answer(transcript, transcript.last.text)
    )


def _check_answer(transcript: AgentTranscript, answer: str) -> AgentError | None:
    if transcript.has_provider and is_banner(answer):
        return exit_sentence(answer)
    if answer.strip() or transcript.tool_calls or transcript.may_be_silent:
        return None
    return AgentError(kind=AgentErrorKind.NO_RESULT, detail="its answer is empty")


def _stop_error(stop: StopReason) -> AgentError:
    match stop:
        case StopReason.CANCELLED:
            return AgentError(kind=AgentErrorKind.CANCELLED, detail="cancelled while it ran")
        case StopReason.IDLE:
            return AgentError(kind=AgentErrorKind.TIMEOUT, detail="it said nothing for too long")
        case StopReason.TIMEOUT:
            return AgentError(kind=AgentErrorKind.TIMEOUT)


def _exit_error(transcript: AgentTranscript, end: ProcessExit, stray: str) -> AgentError:
    if isinstance(transcript.last, AgentError):
        return transcript.last
    words = _tail(end) or stray
    if end.code == NOT_STARTED and not end.begun:
        return AgentError(
            kind=AgentErrorKind.NOT_STARTED, detail=f"exit code {end.code}\n{words}".strip()
        )
    detail_ = f"{_exit_text(end)}\n{words}".strip()
    kind = (
        classify(words, guess=transcript.own_errors)
        if transcript.has_provider
        else AgentErrorKind.OTHER
    )
    # A network error of a program may concern other servers than a provider.
    if transcript.own_errors and kind is AgentErrorKind.NETWORK:
        kind = AgentErrorKind.OTHER
    if kind is AgentErrorKind.OTHER:  # lack of memory is reported before a long traceback
        kind = classify_script_error(decode_text(end.stderr_tail) or stray)
    return AgentError(
        kind=kind, detail=detail_, until=reset_in(words) if transcript.has_provider else None
    )


def _exit_text(end: ProcessExit) -> str:
    if end.signal is not None:
        return f"signal {end.signal}"
    hint = "" if end.code is None else HINTS.get(end.code, "")
    return f"exit code {end.code}{hint}"


def _tail(end: ProcessExit) -> str:
    return detail(decode_text(end.stderr_tail[-MAX_DETAIL:]))


def exit_sentence(words: str, status: int | None = None) -> AgentError:
    """Return the error that a text describes."""
    return AgentError(kind=classify(words, status), detail=detail(words), until=reset_in(words))


SILENT_PREFIX = "NO_ACTION:"
LOUD_PREFIX = re.compile(r"^ACTION:[ \t]*", re.MULTILINE)


class _PublicText(NamedTuple):
    text: str
    silent: bool = False


def public_answer(result: AgentAnswer) -> Succeeded:
    """Return a result as a success."""
    told = closing_result(result)
    if told.data is not None:
        aside = _as_object(told.data)
        silent = told.silent or aside.get("silent") is True
        again = told.next_check or _short(aside.get("next_check"))
        return Succeeded(result=told.data, silent=silent, next_check=again)
    words = _without_prefix(told.text)
    kept = encode_text(words.text) if words.text else None
    silent = told.silent or words.silent
    return Succeeded(result=kept, silent=silent, next_check=told.next_check)


def _without_prefix(text: str) -> _PublicText:
    """Return a text without its NO_ACTION: or ACTION: prefix."""
    start = text.lstrip()
    quietly = start.startswith(SILENT_PREFIX)
    if LOUD_PREFIX.match(start) or (quietly and LOUD_PREFIX.search(start)):
        return _PublicText(LOUD_PREFIX.sub("", start, count=1))
    if quietly:
        return _PublicText(start.removeprefix(SILENT_PREFIX).strip(), silent=True)
    return _PublicText(text)


def _as_object(data: str) -> dict[str, Any]:
    found = json.loads(data)
    return found if isinstance(found, dict) else {}


def _short(words: object) -> str | None:
    return words[:MAX_NAME] if isinstance(words, str) and words else None
