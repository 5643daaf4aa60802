"""Hearing: what a program writes becomes events, each byte once.

Offsets only move over whole lines, and a reader that begins anew is fed from the start, so it does
not matter how often the process that listens is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from rota.flow.execute.following import Following
from rota.flow.execute.outputs import LONGEST_TEXT, MOST_TEXT, Rest, joined, marked, output, size_of
from rota.flow.execute.telling import Telling, left_of
from rota.model.budgets import MICROS, Amounts
from rota.model.events import EventName
from rota.model.keeping import (
    Ending,
    Happened,
    Heard,
    KeptSession,
    Reason,
    Spooled,
    Stream,
    Used,
)
from rota.model.said import (
    ColouredText,
    Fault,
    Over,
    Progress,
    Question,
    Result,
    Said,
    Session,
    Taken,
    Text,
    ToolCall,
    Usage,
    Wanted,
)
from rota.model.texts import MORE, clean, coloured
from rota.model.verdicts import Verdict
from rota.ports.agent import Reader, Summing
from rota.rules.internal import public_text

LONGEST_LINE = 64 * 1024
MOST_LINES = 4_096
"""How many lines are heard in one go: others have their turn before the next."""
MOST_EVENTS = 10_000
"""How many events of an attempt hold its text at most, and how many hold anything else."""
MOST_TOOLS = 1_000
WHOLE = re.compile(rb"[ \t\r]+|([^\w\s\x80-\xff\x1b])\1{2,}")
COLOURED = re.compile(rb"\x1b\[[0-9;:]*m")
NOT_COUNTED = "the result that it gave, which does not count:"


NOTHING_USED = Used(Amounts(), priced=False)


class Hearing:
    """What was heard of one attempt."""

    def __init__(
        self,
        reader: Reader,
        following: Following | None = None,
        charge: Callable[[Usage], Usage] = lambda said: said,
        telling: Telling | None = None,
    ) -> None:
        self.reader = reader
        self._telling = telling
        self._charge = charge
        self._following = following
        self._at = dict.fromkeys(Stream, 0)
        self._parts = dict.fromkeys(Stream, 0)
        self._cut = dict.fromkeys(Stream, False)
        self.unfinished = dict.fromkeys(Stream, 0)
        """How many bytes there are behind the last line of a stream that was heard."""
        self._rest = Rest()
        self._result: Result | None = None
        self._text_left = MOST_TEXT
        self._texts_left = self._others_left = MOST_EVENTS
        self.last_line = ""
        """The last line of text, also when it is not recorded any more."""
        self._used = NOTHING_USED
        self.tools: set[str] = set()
        """The names of the tools that were called."""
        self.taken = 0
        """The last message that the program has taken in while it worked."""
        self.at_rest = False
        """Whether it has said all it has to say of what it was told."""
        self.over = False
        """Whether it takes nothing more in."""
        self.wanted: list[str] = []
        """The lines that it must be told to go on, until somebody takes them from here."""

    def at(self, stream: Stream) -> int:
        """Return up to where a stream was heard."""
        return self._at[stream]

    def skip(self, stream: Stream, end: int) -> None:
        """Count a part of a stream as heard that cannot be read any more."""
        self._at[stream] = end

    def count_kept(self, texts: int) -> None:
        """Count the events on record that hold text: how it was cut is not in the bytes."""
        self._texts_left = max(MOST_EVENTS - texts, 0)
        self._rest.incomplete = texts >= MOST_EVENTS

    def news(self) -> KeptSession | None:
        """Return the agent's session, if it is followed and not what is on record."""
        return None if self._following is None else self._following.news()

    def recorded(self) -> None:
        """Note that everything heard is on record."""
        if self._following is not None:
            self._following.recorded()

    def take(
        self, stream: Stream, data: bytes, *, last: bool = False, known: bool = False
    ) -> Heard | None:
        """Hear the bytes at the offset of a stream; what is no whole line yet is left.

        Of many lines the rest is left as well. With `last` nothing more will come. All that is
        `known` is on record, as part of a line or as whole ones.
        """
        start, used, count = self._at[stream], 0, 0
        happened: list[Happened] = []
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
        kept = tuple(self._counted(joined(happened)))
        aloud = () if self._telling is None else self._telling.news()
        return Heard(stream, start, start + used, kept, told, aloud)

    def take_part(self, stream: Stream, data: bytes) -> Heard | None:
        """Hear what may be shown of a line that is not whole yet; the rest of it is left."""
        start, shown = self._at[stream], self._parts[stream]
        if stream is Stream.OUT and (not self.reader.plain or not (shown or _is_text(data))):
            return None
        part = presentable(data)
        if not part:
            return None
        happened = tuple(self._counted(self._hear_part(stream, start, part)))
        self._at[stream] = start + len(part)
        self.unfinished[stream] = len(data) - len(part)
        return Heard(stream, start, start + len(part), happened)

    def _hear_part(self, stream: Stream, at: int, part: bytes) -> Iterator[Happened]:
        """Hear the beginning of a line, or more of it: its reader is told what it is not."""
        if stream is Stream.OUT:
            self.reader.feed(part, cut=True)
        text = part.decode("utf-8", "replace")
        event = output(stream, at, clean(text), coloured(text))
        flags = {"continues": True} if self._parts[stream] else {}
        self._parts[stream] += len(part)
        yield from self._bounded(event._replace(data={**event.data, "open": True, **flags}))

    def _hear_rest(self, stream: Stream, at: int, line: bytes, *, cut: bool) -> Iterator[Happened]:
        """Hear the rest of a line whose beginning was shown already."""
        sayings = self.reader.feed(line, cut=cut) if stream is Stream.OUT else ()
        self._parts[stream] = self._parts[stream] + len(line) if cut else 0
        raw = line.decode("utf-8", "replace").removesuffix("\n")
        event = output(stream, at, clean(raw), coloured(raw))
        flags = {"continues": True, **({"open": True} if cut else {})}
        yield from self._bounded(event._replace(data={**event.data, **flags}))
        for said in sayings:
            if isinstance(said, Text):
                self.last_line = said.text.strip().rpartition("\n")[2] or self.last_line

    def _hear(self, stream: Stream, at: int, line: bytes, *, cut: bool) -> Iterator[Happened]:
        if self._parts[stream]:
            yield from self._hear_rest(stream, at, line, cut=cut)
            return
        if stream is Stream.ERR:
            raw = line.decode("utf-8", "replace").removesuffix("\n")
            yield from self._bounded(output(stream, at, clean(raw), coloured(raw)))
            return
        for told in self.reader.feed(line, cut=cut):
            said = self._charge(told) if isinstance(told, Usage) else told
            self._count(said)
            self._heed(said)
            if self._following is not None:
                self._following.note(said)
            if self._telling is not None:
                self._telling.note(said, at)
            event = happening(said, at)
            if event is not None:
                yield from self._bounded(event)

    def finish(self, ending: Ending, tries: int) -> Heard | None:
        """Hear what no spool has room for, and return what is recorded once it has ended.

        That is the end of what was too much for the record, and a result that does not count.
        """
        self._used = NOTHING_USED
        beyond = [*self._beyond(Stream.OUT, ending.out), *self._beyond(Stream.ERR, ending.err)]
        beyond += self._broken_off(Stream.OUT, ending.out.total)
        happened = [*self._counted(joined(beyond)), *self._rest.events()]
        if self._result is not None and (ending.reason is not Reason.EXITED or ending.code):
            happened += _not_counted(self._result, self._at[Stream.OUT])
        if not happened:
            return None
        at, used = self._at[Stream.OUT], None if self._used is NOTHING_USED else self._used
        return Heard(Stream.OUT, at, at, tuple(marked(event, tries) for event in happened), used)

    def _beyond(self, stream: Stream, spooled: Spooled) -> Iterator[Happened]:
        """Hear the last lines of a stream that was longer than its spool."""
        gap = spooled.total - spooled.size - len(spooled.tail)
        if not spooled.tail:
            return
        yield from self._bounded(output(stream, spooled.size, f"… {gap:,} bytes are left out"))
        if gap:
            yield from self._broken_off(stream, spooled.size)
        lines = spooled.tail.partition(b"\n")[2] if gap else spooled.tail
        for line, cut in lines_of(lines, last=True):
            yield from self._hear(stream, spooled.total, line, cut=cut)
            self._cut[stream] = cut

    def _broken_off(self, stream: Stream, at: int) -> Iterator[Happened]:
        """Hear the end of a line that nobody knows the end of: what comes next is another one."""
        cut, shown = self._cut[stream], self._parts[stream]
        self._cut[stream], self._parts[stream] = False, 0
        if stream is Stream.OUT and shown:
            self.reader.feed(b"\n")
        elif stream is Stream.OUT and cut:
            yield from self._hear(stream, at, b"\n", cut=False)

    def left(self, verdict: Verdict | None) -> Verdict | None:
        """Return what the attempt came to, with what is left of it to tell people."""
        return left_of(verdict, self._telling)

    def pending(self) -> Amounts:
        """Return what the agent has used and not summed up yet, where its reader can tell."""
        if not isinstance(self.reader, Summing):
            return NOTHING_USED.used
        return _used(self._charge(self.reader.pending()))

    def _heed(self, said: Said) -> None:
        if isinstance(said, Taken):
            self.taken, self.at_rest = max(self.taken, said.message), False
        elif isinstance(said, (Result, Fault, Question)):
            self.at_rest = True
        elif isinstance(said, Wanted):
            self.wanted.append(said.line)
        elif isinstance(said, Over):
            self.over = True
        if isinstance(said, Result):
            self._result = said

    def _count(self, said: Said) -> None:
        """Count what is used, also when it is not recorded as an event any more."""
        if isinstance(said, ToolCall):
            if len(self.tools) < MOST_TOOLS:
                self.tools.add(said.name)
            self._used = Used(self._used.used + Amounts(tools=1), self._used.priced)
        elif isinstance(said, Usage):
            priced = self._used.priced or said.cost is not None
            self._used = Used(self._used.used + _used(said), priced)

    def _bounded(self, event: Happened) -> Iterator[Happened]:
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

    def _counted(self, happened: Iterable[Happened]) -> Iterator[Happened]:
        """Yield as many events as are kept: text and everything else apart, and then that word."""
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


def presentable(part: bytes) -> bytes:
    """Return what may be shown of a line that is not whole yet.

    Whole words alone, and signs that are drawn out, as dots of something that goes on: half a
    secret would not be known as one. No half of a sequence for terminals is among it.
    """
    found = None
    for found in WHOLE.finditer(part):  # noqa: B007 - the last one counts
        pass
    shown = part[: found.end()] if found is not None else b""
    escape = shown.rfind(b"\x1b")
    ended = escape < 0 or COLOURED.match(shown, escape)
    return shown if ended else shown[:escape]


def _is_text(data: bytes) -> bool:
    """Whether a line is none of Rota's, which begin with a brace; of blanks alone nobody knows."""
    begun = data.lstrip()
    return bool(begun) and not begun.startswith(b"{")


def lines_of(data: bytes, *, last: bool) -> Iterator[tuple[bytes, bool]]:
    """Yield whole lines with their ends; one that is too long comes in parts that are `cut`."""
    start = 0
    while start < len(data):
        end = data.find(b"\n", start, start + LONGEST_LINE) + 1
        if end:
            yield data[start:end], False
            start = end
        elif len(data) - start >= LONGEST_LINE:
            yield data[start : start + LONGEST_LINE], True
            start += LONGEST_LINE
        else:
            break
    if last and start < len(data):
        yield data[start:], False


def happening(said: Said, at: int) -> Happened | None:
    """Return what an agent said as an event; a result and a question end the attempt instead.

    Of a result that has internal text all goes on record, for people are shown the rest alone.
    """
    match said:
        case Text(text=text):
            ansi = said.ansi if isinstance(said, ColouredText) else None
            return output(Stream.OUT, at, text, ansi)
        case Progress(percent=percent, message=message):
            return Happened(EventName.PROGRESS, {"percent": percent, "message": message})
        case ToolCall(name=name, summary=summary):
            return Happened(EventName.TOOL, {"tool": name, "summary": summary})
        case Usage():
            return Happened(EventName.USAGE, _usage(said))
        case Session(id=session):
            return Happened(EventName.SESSION, {"session": session})
        case Fault(kind=kind, detail=detail):
            return Happened(EventName.FAULT, {"kind": kind.value, "detail": detail})
        case Result() | Question():
            return _internal(said, at)
    return None


def _internal(said: Result | Question, at: int) -> Happened | None:
    data = said.data if isinstance(said, Result) else said.context
    text = said.text if not data else f"{said.text}\n{data}"
    if public_text(text) == text:
        return None
    return output(Stream.OUT, at, text[:LONGEST_TEXT])


def _not_counted(result: Result, at: int) -> Iterator[Happened]:
    """Yield a result that its attempt did not come to, for people to read."""
    text = f"{NOT_COUNTED}\n{result.text if result.data is None else result.data}"
    for start in range(0, len(text), LONGEST_TEXT):
        yield output(Stream.OUT, at, text[start : start + LONGEST_TEXT])


def _used(said: Usage) -> Amounts:
    """Return usage in the units of budgets; each time it is told is a turn."""
    cost = 0 if said.cost is None else round(said.cost * MICROS)
    return Amounts(tokens=said.input + said.output, cost=cost, turns=1)


def _usage(said: Usage) -> dict[str, Any]:
    figures = {"input": said.input, "output": said.output, "cached": said.cached}
    return {**figures, "cost": said.cost, "model": said.model, "of_session": said.of_session}


def _more(event: Happened) -> Happened:
    """Return, in the place of the first event that is not kept, that there is more."""
    stream = Stream(event.data.get("stream", Stream.OUT))
    return output(stream, event.data.get("at", 0), MORE)
