"""Records the output of a program: agent events become events, usage, sessions and progress.

Offsets move over whole lines only, and a new output reader is fed from the start of the spool, so
the process that follows the output can be replaced at any time. Messages for people are queued in
the transaction that moves the offset, so that the next process does not queue them again.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

from rota.flow.attempt.prepare import is_reader
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentEvent,
    AgentInputClosed,
    AgentInputRequested,
    AgentMessageAccepted,
    AgentProgress,
    AgentQuestion,
    AgentResult,
    AgentSessionStarted,
    AgentSpec,
    AgentStyledText,
    AgentText,
    AgentToolCall,
    AgentTurnAnswer,
    AgentUsage,
    SessionMode,
)
from rota.model.attempts import (
    ASKING,
    AgentSessionRef,
    Assignment,
    ExitReason,
    ExitRecord,
    KeptAttempt,
    NewEvent,
    OutputChunk,
    OutputStream,
    PricedUsage,
    ProgressNotice,
    SpoolState,
    Succeeded,
)
from rota.model.budgets import MICROS, Amounts
from rota.model.events import EventName
from rota.model.settlement import NewDelivery
from rota.model.tasks import TaskKind
from rota.model.text import MORE, clean, coloured
from rota.ports.agent import Agent, CumulativeUsageReader, OutputReader
from rota.rules.notifications import (
    MAX_ANSWERS,
    PROGRESS_GAP,
    RunConversation,
    answer_notice,
    progress_notice,
    public_text,
    result_digest,
    start_notice,
)
from rota.rules.task_spec import is_in_conversation, is_session_id

MAX_LINE = 64 * 1024
MOST_LINES = 4_096
"""Lines read in one step, so that others get their turn."""
MOST_EVENTS = 10_000
"""Maximum text events of an attempt, and maximum other events."""
MOST_TOOLS = 1_000
WHOLE = re.compile(rb"[ \t\r]+|([^\w\s\x80-\xff\x1b])\1{2,}")
COLOURED = re.compile(rb"\x1b\[[0-9;:]*m")
NOT_COUNTED = "a result that does not count:"


NOTHING_USED = PricedUsage(Amounts(), priced=False)


class OutputParser:
    """The parsed output of one attempt."""

    def __init__(
        self,
        reader: OutputReader,
        following: SessionTracker | None = None,
        charge: Callable[[AgentUsage], AgentUsage] = lambda said: said,
        telling: ProgressReporter | None = None,
    ) -> None:
        self.reader = reader
        self._telling = telling
        self._charge = charge
        self._following = following
        self._at = dict.fromkeys(OutputStream, 0)
        self._parts = dict.fromkeys(OutputStream, 0)
        self._cut = dict.fromkeys(OutputStream, False)
        self.unfinished = dict.fromkeys(OutputStream, 0)
        """Bytes behind the last complete line of each stream that were read."""
        self._rest = OutputTail()
        self._result: AgentAnswer | None = None
        self._text_left = HEAD_TEXT
        self._texts_left = self._others_left = MOST_EVENTS
        self.last_line = ""
        """The last line of text, even if it is not recorded any more."""
        self._used = NOTHING_USED
        self.tools: set[str] = set()
        """The names of called tools."""
        self.taken = 0
        """The last message that the program has acknowledged."""
        self.at_rest = False
        """Whether the agent has finished everything it was asked."""
        self.over = False
        """Whether the agent accepts no further messages."""
        self.wanted: list[str] = []
        """Lines that the program must get to continue, until the caller takes them."""

    def at(self, stream: OutputStream) -> int:
        """Return the offset up to which a stream was read."""
        return self._at[stream]

    def skip(self, stream: OutputStream, end: int) -> None:
        """Skip a part of a stream that cannot be read any more."""
        self._at[stream] = end

    def count_kept(self, texts: int) -> None:
        """Set the number of recorded text events, which does not follow from the bytes."""
        self._texts_left = max(MOST_EVENTS - texts, 0)
        self._rest.incomplete = texts >= MOST_EVENTS

    def news(self) -> AgentSessionRef | None:
        """Return the agent's session if it differs from the recorded one."""
        return None if self._following is None else self._following.news()

    def recorded(self) -> None:
        """Mark everything as recorded."""
        if self._following is not None:
            self._following.recorded()

    def take(
        self, stream: OutputStream, data: bytes, *, last: bool = False, known: bool = False
    ) -> OutputChunk | None:
        """Parse bytes at the offset of a stream up to the last complete line.

        Of many lines the rest is left for the next call. With `last` nothing more will come. With
        `known` everything is recorded already.
        """
        start, used, count = self._at[stream], 0, 0
        happened: list[NewEvent] = []
        self._used = NOTHING_USED
        for line, cut in islice(lines_of(data, last=last), MOST_LINES):
            happened += self._hear(stream, start + used, line, cut=cut)
            self._cut[stream] = cut
            used += len(line)
            count += 1
        if known and used < len(data) and count < MOST_LINES:
            happened += self._hear_part(stream, start + used, data[used:])
            used = len(data)
        self.unfinished[stream] = len(data) - used
        if not used:
            return None
        self._at[stream] = start + used
        told = None if self._used is NOTHING_USED else self._used
        kept = tuple(self._counted(join_output(happened)))
        aloud = () if self._telling is None else self._telling.news()
        return OutputChunk(stream, start, start + used, kept, told, aloud)

    def take_part(self, stream: OutputStream, data: bytes) -> OutputChunk | None:
        """Parse the displayable part of an incomplete line."""
        start, shown = self._at[stream], self._parts[stream]
        if stream is OutputStream.OUT and (not self.reader.plain or not (shown or _is_text(data))):
            return None
        part = clean_for_display(data)
        if not part:
            return None
        happened = tuple(self._counted(self._hear_part(stream, start, part)))
        self._at[stream] = start + len(part)
        self.unfinished[stream] = len(data) - len(part)
        return OutputChunk(stream, start, start + len(part), happened)

    def _hear_part(self, stream: OutputStream, at: int, part: bytes) -> Iterator[NewEvent]:
        """Return events for the beginning of an incomplete line, or more of it."""
        if stream is OutputStream.OUT:
            self.reader.feed(part, cut=True)
        text = part.decode("utf-8", "replace")
        event = output_event(stream, at, clean(text), coloured(text))
        flags = {"continues": True} if self._parts[stream] else {}
        self._parts[stream] += len(part)
        yield from self._bounded(event._replace(data={**event.data, "open": True, **flags}))

    def _hear_rest(
        self, stream: OutputStream, at: int, line: bytes, *, cut: bool
    ) -> Iterator[NewEvent]:
        """Return events for the rest of a line whose beginning was recorded."""
        sayings = self.reader.feed(line, cut=cut) if stream is OutputStream.OUT else ()
        self._parts[stream] = self._parts[stream] + len(line) if cut else 0
        raw = line.decode("utf-8", "replace").removesuffix("\n")
        event = output_event(stream, at, clean(raw), coloured(raw))
        flags = {"continues": True, **({"open": True} if cut else {})}
        yield from self._bounded(event._replace(data={**event.data, **flags}))
        for said in sayings:
            if isinstance(said, AgentText):
                self.last_line = said.text.strip().rpartition("\n")[2] or self.last_line

    def _hear(self, stream: OutputStream, at: int, line: bytes, *, cut: bool) -> Iterator[NewEvent]:
        if self._parts[stream]:
            yield from self._hear_rest(stream, at, line, cut=cut)
            return
        if stream is OutputStream.ERR:
            raw = line.decode("utf-8", "replace").removesuffix("\n")
            yield from self._bounded(output_event(stream, at, clean(raw), coloured(raw)))
            return
        for told in self.reader.feed(line, cut=cut):
            said = self._charge(told) if isinstance(told, AgentUsage) else told
            self._count(said)
            self._heed(said)
            if self._following is not None:
                self._following.note(said)
            if self._telling is not None:
                self._telling.note(said, at)
            event = event_of(said, at)
            if event is not None:
                yield from self._bounded(event)

    def finish(self, ending: ExitRecord, tries: int) -> OutputChunk | None:
        """Return what is recorded after the end: the end of a long output, an ignored result."""
        self._used = NOTHING_USED
        beyond = [
            *self._beyond(OutputStream.OUT, ending.out),
            *self._beyond(OutputStream.ERR, ending.err),
        ]
        beyond += self._broken_off(OutputStream.OUT, ending.out.total)
        happened = [*self._counted(join_output(beyond)), *self._rest.events()]
        if self._result is not None and (ending.reason is not ExitReason.EXITED or ending.code):
            happened += _not_counted(self._result, self._at[OutputStream.OUT])
        if not happened:
            return None
        at, used = self._at[OutputStream.OUT], None if self._used is NOTHING_USED else self._used
        return OutputChunk(
            OutputStream.OUT,
            at,
            at,
            tuple(mark_truncated(event, tries) for event in happened),
            used,
        )

    def _beyond(self, stream: OutputStream, spooled: SpoolState) -> Iterator[NewEvent]:
        """Return events for the last lines of a stream that was longer than its spool."""
        gap = spooled.total - spooled.size - len(spooled.tail)
        if not spooled.tail:
            return
        yield from self._bounded(
            output_event(stream, spooled.size, f"… {gap:,} bytes are left out")
        )
        if gap:
            yield from self._broken_off(stream, spooled.size)
        lines = spooled.tail.partition(b"\n")[2] if gap else spooled.tail
        for line, cut in lines_of(lines, last=True):
            yield from self._hear(stream, spooled.total, line, cut=cut)
            self._cut[stream] = cut

    def _broken_off(self, stream: OutputStream, at: int) -> Iterator[NewEvent]:
        """Return the end of an incomplete line, so that a new line starts after it."""
        cut, shown = self._cut[stream], self._parts[stream]
        self._cut[stream], self._parts[stream] = False, 0
        if stream is OutputStream.OUT and shown:
            self.reader.feed(b"\n")
        elif stream is OutputStream.OUT and cut:
            yield from self._hear(stream, at, b"\n", cut=False)

    def left(self, verdict: AgentResult | None) -> AgentResult | None:
        """Return the result of the attempt without results that were sent before."""
        return remaining_notices(verdict, self._telling)

    def pending(self) -> Amounts:
        """Return usage of the current turn that is not reported yet."""
        if not isinstance(self.reader, CumulativeUsageReader):
            return NOTHING_USED.used
        return _used(self._charge(self.reader.unreported_usage()))

    def _heed(self, said: AgentEvent) -> None:
        if isinstance(said, AgentMessageAccepted):
            self.taken, self.at_rest = max(self.taken, said.message), False
        elif isinstance(said, (AgentAnswer, AgentError, AgentQuestion)):
            self.at_rest = True
        elif isinstance(said, AgentInputRequested):
            self.wanted.append(said.line)
        elif isinstance(said, AgentInputClosed):
            self.over = True
        if isinstance(said, AgentAnswer):
            self._result = said

    def _count(self, said: AgentEvent) -> None:
        """Add usage, also when it is no longer recorded as an event."""
        if isinstance(said, AgentToolCall):
            if len(self.tools) < MOST_TOOLS:
                self.tools.add(said.name)
            self._used = PricedUsage(self._used.used + Amounts(tools=1), self._used.priced)
        elif isinstance(said, AgentUsage):
            priced = self._used.priced or said.cost is not None
            self._used = PricedUsage(self._used.used + _used(said), priced)

    def _bounded(self, event: NewEvent) -> Iterator[NewEvent]:
        if event.name is EventName.OUTPUT:
            self.last_line = event.data["text"].strip().rpartition("\n")[2] or self.last_line
            if self._text_left <= 0:
                self._rest.add(event)
                return
            self._text_left -= size_of(event)
            if self._text_left <= 0:
                self._rest.add(event)
                event = _more(event)
        yield event

    def _counted(self, happened: Iterable[NewEvent]) -> Iterator[NewEvent]:
        """Yield events up to the limits for text and others, then a note that there are more."""
        for event in happened:
            if event.name is EventName.OUTPUT:
                self._texts_left -= 1
                left = self._texts_left
            else:
                self._others_left -= 1
                left = self._others_left
            if left <= 0 and event.name is EventName.OUTPUT and event.data["text"] != MORE:
                self._rest.add(event)
            if left >= 0:
                yield event if left else _more(event)


def clean_for_display(part: bytes) -> bytes:
    """Return the displayable part of an incomplete line.

    Only complete words are shown, because half a secret would not be recognized, and runs of
    punctuation such as progress dots. It contains no partial terminal sequence.
    """
    found = None
    for found in WHOLE.finditer(part):  # noqa: B007 - the last one is used
        pass
    shown = part[: found.end()] if found is not None else b""
    escape = shown.rfind(b"\x1b")
    ended = escape < 0 or COLOURED.match(shown, escape)
    return shown if ended else shown[:escape]


def _is_text(data: bytes) -> bool:
    """Return whether a line cannot be an agent line, which begins with a brace."""
    begun = data.lstrip()
    return bool(begun) and not begun.startswith(b"{")


def lines_of(data: bytes, *, last: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield complete lines with their ends; a line that is too long is `cut` into parts."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + MAX_LINE) + 1
        if end:
            yield data[start:end], False
            start = end
        elif len(data) - start >= MAX_LINE:
            yield data[start : start + MAX_LINE], True
            start += MAX_LINE
        else:
            break
    if last and start < len(data):
        yield data[start:], False


def event_of(said: AgentEvent, at: int) -> NewEvent | None:
    """Return the event for an agent event; results and questions end the attempt instead.

    The complete text of a result with internal text is recorded; people see the rest.
    """
    match said:
        case AgentText(text=text):
            ansi = said.ansi if isinstance(said, AgentStyledText) else None
            return output_event(OutputStream.OUT, at, text, ansi)
        case AgentProgress(percent=percent, message=message):
            return NewEvent(EventName.PROGRESS, {"percent": percent, "message": message})
        case AgentToolCall(name=name, summary=summary):
            return NewEvent(EventName.TOOL_CALL, {"tool": name, "summary": summary})
        case AgentUsage():
            return NewEvent(EventName.USAGE, _usage(said))
        case AgentSessionStarted(id=session):
            return NewEvent(EventName.SESSION, {"session": session})
        case AgentError(kind=kind, detail=detail):
            return NewEvent(EventName.AGENT_ERROR, {"kind": kind.value, "detail": detail})
        case AgentAnswer() | AgentQuestion():
            return _internal(said, at)
    return None


def _internal(said: AgentAnswer | AgentQuestion, at: int) -> NewEvent | None:
    data = said.data if isinstance(said, AgentAnswer) else said.context
    text = said.text if not data else f"{said.text}\n{data}"
    if public_text(text) == text:
        return None
    return output_event(OutputStream.OUT, at, text[:MAX_TEXT])


def _not_counted(result: AgentAnswer, at: int) -> Iterator[NewEvent]:
    """Yield a result that does not count, so that people can read it."""
    text = f"{NOT_COUNTED}\n{result.text if result.data is None else result.data}"
    for start in range(0, len(text), MAX_TEXT):
        yield output_event(OutputStream.OUT, at, text[start : start + MAX_TEXT])


def _used(said: AgentUsage) -> Amounts:
    """Return usage in the units of budgets; each report is a turn."""
    cost = 0 if said.cost is None else round(said.cost * MICROS)
    return Amounts(tokens=said.input + said.output, cost=cost, turns=1)


def _usage(said: AgentUsage) -> dict[str, Any]:
    figures = {"input": said.input, "output": said.output, "cached": said.cached}
    return {**figures, "cost": said.cost, "model": said.model, "of_session": said.of_session}


def _more(event: NewEvent) -> NewEvent:
    """Return a note that there are more events, in place of the first one that is not recorded."""
    stream = OutputStream(event.data.get("stream", OutputStream.OUT))
    return output_event(stream, event.data.get("at", 0), MORE)


MAX_TEXT = 8 * 1024
"""Maximum text of one event."""
MOST_TEXT = 1024 * 1024
HEAD_TEXT = MOST_TEXT
"""Text of an attempt that is recorded while it runs, and the same amount of its end."""
MOST_LAST = 10_000
"""Maximum lines of the end."""
END = "end"
"""Marks events of the end of an output; the value is the launch."""


class OutputTail:
    """Holds the newest output that is not recorded while the program runs."""

    def __init__(self) -> None:
        self._held: deque[NewEvent] = deque()
        self._size = 0
        self._left_out = 0
        self.incomplete = False
        """Whether there may be output before it that was not held."""

    def add(self, event: NewEvent) -> None:
        """Hold an event and drop the oldest ones beyond the limit."""
        self._held.append(event)
        self._size += size_of(event)
        while self._size > MOST_TEXT or len(self._held) > MOST_LAST:
            gone = self._held.popleft()
            self._size -= size_of(gone)
            self._left_out += gone.data["text"].count("\n") + 1

    def events(self) -> Iterator[NewEvent]:
        """Yield the held events, preceded by a note about what is left out."""
        if self._held and (self._left_out or self.incomplete):
            first = self._held[0].data
            count = "some" if self.incomplete else f"{self._left_out:,}"
            yield output_event(
                OutputStream(first["stream"]), first["at"], f"… {count} lines are left out"
            )
        yield from join_output(list(self._held))


def output_event(stream: OutputStream, at: int, text: str, ansi: str | None = None) -> NewEvent:
    """Return the event for output at an offset of a stream."""
    data: dict[str, Any] = {"stream": stream.value, "at": at, "text": text}
    return NewEvent(EventName.OUTPUT, data if ansi is None else {**data, "ansi": ansi})


def size_of(event: NewEvent) -> int:
    """Return the recorded size of output."""
    return len(event.data["text"]) + len(event.data.get("ansi", ""))


def mark_truncated(event: NewEvent, tries: int) -> NewEvent:
    """Mark an event as part of the end of an output."""
    return event._replace(data={**event.data, END: tries})


def join_output(happened: Iterable[NewEvent]) -> Iterator[NewEvent]:
    """Join neighbouring text events to reduce their number."""
    held: list[Mapping[str, Any]] = []
    size = 0
    for event in happened:
        data = event.data
        apart = event.name is not EventName.OUTPUT or data.keys() & {"open", "continues"}
        more = 0 if apart else max(len(data["text"]), len(data.get("ansi", "")))
        if held and (apart or size + more > MAX_TEXT):
            yield _together(held)
            held, size = [], 0
        if apart:
            yield event
        else:
            held.append(data)
            size += more + 1
    if held:
        yield _together(held)


def _together(held: Sequence[Mapping[str, Any]]) -> NewEvent:
    """Return neighbouring texts as one event, with colors if one has some."""
    both = {**held[0], "text": "\n".join(data["text"] for data in held)}
    if any("ansi" in data for data in held):
        both["ansi"] = "\n".join(data.get("ansi", data["text"]) for data in held)
    return NewEvent(EventName.OUTPUT, both)


class SessionTracker:
    """Follows the session of an agent from its events."""

    def __init__(self, agent: str, resumed: AgentSessionRef | None, *, shared: bool = True) -> None:
        self._agent = agent
        self._shared = shared
        self._was = "" if resumed is None else resumed.id
        self._now = resumed
        self._told: AgentSessionRef | None = None
        self._recorded: AgentSessionRef | None = None

    @classmethod
    def of(
        cls, agent: Agent, resumed: AgentSessionRef | None, wish: AgentSpec
    ) -> SessionTracker | None:
        """Return a tracker for an agent with sessions, or None."""
        shared = wish.session is SessionMode.SHARED
        return cls(agent.name, resumed, shared=shared) if agent.capabilities.resume else None

    def note(self, said: AgentEvent) -> None:
        """Process an agent event."""
        known = self._now
        if isinstance(said, AgentSessionStarted) and is_session_id(said.id):
            if known is None or known.id != said.id:
                self._now = AgentSessionRef(
                    self._agent, said.id, was=self._was, shared=self._shared
                )
        elif isinstance(said, AgentUsage) and known is not None:
            self._now = known._replace(
                input=known.input + said.input,
                output=known.output + said.output,
                cached=known.cached + said.cached,
            )
        else:
            return
        self._told = self._now

    def news(self) -> AgentSessionRef | None:
        """Return the session of the agent if it differs from the recorded one."""
        return None if self._told == self._recorded else self._told

    def recorded(self) -> None:
        """Mark the session as recorded."""
        self._recorded = self._told


def run_conversation(assignment: Assignment) -> RunConversation | None:
    """Return the conversation of a run; None if it has none."""
    lease, task = assignment.lease, assignment.task
    to = task.policy.deliver_to
    talks = task.kind is TaskKind.AGENT and (is_in_conversation(task) or is_reader(assignment))
    if not talks or lease.thread is None or to is None:
        return None
    return RunConversation(lease.run_id, lease.space_id, to)


def start_notices(assignment: Assignment, kept: KeptAttempt) -> NewDelivery | None:
    """Return the acknowledgement that work on a message has started, if the task enables it.

    A retry, a run that continues with an answer, and a gate send none.
    """
    lease = assignment.lease
    there = run_conversation(assignment)
    first = (
        not lease.retries
        and not lease.question_count
        and not kept.launches
        and kept.gate_reply != ASKING
    )
    wanted = assignment.task.policy.acknowledge and is_reader(assignment)
    return start_notice(there) if there is not None and first and wanted else None


class ProgressReporter:
    """Collects the progress notifications of one launch."""

    def __init__(self, there: RunConversation, kept: KeptAttempt, most_progress: int) -> None:
        self._there = there
        self._at = f"{kept.epoch}.{kept.nonce}"
        self._most = most_progress
        self.overflows = False
        """Whether there were more results than are sent before the end."""
        self._said: Counter[str] = Counter()
        self._answers: list[ProgressNotice] = []
        self._progress: ProgressNotice | None = None

    @classmethod
    def of(cls, assignment: Assignment, kept: KeptAttempt) -> ProgressReporter | None:
        """Return a reporter for a launch in a conversation, or None."""
        there = run_conversation(assignment)
        return None if there is None else cls(there, kept, assignment.task.policy.progress)

    def note(self, said: AgentEvent, at: int) -> None:
        """Process an agent event at an offset; of several steps at once the newest counts."""
        match said:
            case AgentTurnAnswer(result=result):
                self._answer(result)
            case AgentToolCall(name=name, summary=summary):
                self._step(f"{name}: {summary}" if summary else name, at)
            case AgentProgress(percent=percent, message=message):
                share = "" if percent is None else f"{percent:.0f} %"
                self._step(": ".join(part for part in (share, message) if part), at)

    def news(self) -> tuple[ProgressNotice, ...]:
        """Return the notifications since the last call."""
        told = (*self._answers, *(() if self._progress is None else (self._progress,)))
        self._answers, self._progress = [], None
        return told

    def _answer(self, result: str) -> None:
        if self._said.total() == MAX_ANSWERS:
            self.overflows = True
            return
        digest = result_digest(result)
        self._said[digest] += 1
        delivery = answer_notice(self._there, result, self._said[digest])
        if delivery is not None:
            self._answers.append(ProgressNotice(delivery))

    def _step(self, line: str, at: int) -> None:
        if not self._most:
            return
        delivery = progress_notice(self._there, line, f"{self._at}.{at}")
        if delivery is not None:
            self._progress = ProgressNotice(delivery, self._most, PROGRESS_GAP)


def remaining_notices(
    verdict: AgentResult | None, telling: ProgressReporter | None
) -> AgentResult | None:
    """Return the result with only its last part, if all earlier results were sent."""
    if verdict is None or not isinstance(verdict.outcome, Succeeded):
        return verdict
    if telling is not None and not telling.overflows:
        return verdict
    return replace(verdict, outcome=replace(verdict.outcome, rest=None))
