"""Output on record: texts as events, and the end of what is too much for the record."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rota.model.events import EventName
from rota.model.keeping import Happened, Stream

LONGEST_TEXT = 8 * 1024
"""How much text one event holds at most."""
MOST_TEXT = 1024 * 1024
"""How much of an attempt's text is recorded as it comes, and how much of its end besides."""
MOST_LAST = 10_000
"""How many lines of its end are held at most."""
END = "end"
"""What marks the end of an output; its value tells which try of an attempt it is of."""


class Rest:
    """What is not recorded as it comes: the newest of it, to be recorded at the end."""

    def __init__(self) -> None:
        self._held: deque[Happened] = deque()
        self._size = 0
        self._left_out = 0
        self.incomplete = False
        """Whether there may be more before it that nobody has held."""

    def add(self, event: Happened) -> None:
        """Hold an event, and let go of the oldest where that is too much."""
        self._held.append(event)
        self._size += size_of(event)
        while self._size > MOST_TEXT or len(self._held) > MOST_LAST:
            gone = self._held.popleft()
            self._size -= size_of(gone)
            self._left_out += gone.data["text"].count("\n") + 1

    def events(self) -> Iterator[Happened]:
        """Yield what is held, and before it how much is not."""
        if self._held and (self._left_out or self.incomplete):
            first = self._held[0].data
            count = "some" if self.incomplete else f"{self._left_out:,}"
            yield output(Stream(first["stream"]), first["at"], f"… {count} lines are left out")
        yield from joined(list(self._held))


def output(stream: Stream, at: int, text: str, ansi: str | None = None) -> Happened:
    """Return what was written at an offset of a stream as an event."""
    data: dict[str, Any] = {"stream": stream.value, "at": at, "text": text}
    return Happened(EventName.OUTPUT, data if ansi is None else {**data, "ansi": ansi})


def size_of(event: Happened) -> int:
    """Return how much of the record an output takes."""
    return len(event.data["text"]) + len(event.data.get("ansi", ""))


def marked(event: Happened, tries: int) -> Happened:
    """Return an event as one of the end of an output."""
    return event._replace(data={**event.data, END: tries})


def joined(happened: Iterable[Happened]) -> Iterator[Happened]:
    """Yield events with neighbouring texts joined, so that a chatty program costs few of them."""
    held: list[Mapping[str, Any]] = []
    size = 0
    for event in happened:
        data = event.data
        apart = event.name is not EventName.OUTPUT or data.keys() & {"open", "continues"}
        more = 0 if apart else max(len(data["text"]), len(data.get("ansi", "")))
        if held and (apart or size + more > LONGEST_TEXT):
            yield _together(held)
            held, size = [], 0
        if apart:
            yield event
        else:
            held.append(data)
            size += more + 1
    if held:
        yield _together(held)


def _together(held: Sequence[Mapping[str, Any]]) -> Happened:
    """Return neighbouring texts as one, with colours if one of them has some."""
    both = {**held[0], "text": "\n".join(data["text"] for data in held)}
    if any("ansi" in data for data in held):
        both["ansi"] = "\n".join(data.get("ansi", data["text"]) for data in held)
    return Happened(EventName.OUTPUT, both)
