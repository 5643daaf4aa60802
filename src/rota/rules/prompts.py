"""Prompts in sections that nobody can forge.

Everything people and programs wrote is escaped, so that the only `<` in a prompt are Rota's own:
no title, message or result can open or close a section, or speak as somebody else. A prompt is
therefore well-formed XML but for its outermost element.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple
from zoneinfo import ZoneInfo

from rota.model.text import clean
from rota.model.threads import MessageFile, ThreadMessage
from rota.rules.messages import media_type

SECTIONS = (
    *("task", "instructions", "previous_result", "input"),
    *("messages", "answers", "interrupted"),
)
"""The sections of a prompt, in their order; one without content is left out."""

_SIGNS = str.maketrans(
    {
        "&": "&amp;",
        "<": "&lt;",
        ">": "&gt;",
        "\N{SMALL LESS-THAN SIGN}": "&#xfe64;",
        "\N{SMALL GREATER-THAN SIGN}": "&#xfe65;",
        "\N{FULLWIDTH LESS-THAN SIGN}": "&#xff1c;",
        "\N{FULLWIDTH GREATER-THAN SIGN}": "&#xff1e;",
    }
)
"""The signs that make a section, and those that many readers take for them."""
_QUOTES = str.maketrans({'"': "&quot;", "'": "&#39;"})
EXACT = frozenset({"media_path", "media_name"})
"""Attributes in which every space counts; nothing is in them that breaks a line."""
LOST = "this file is damaged or gone and cannot be read: ask its sender for it again"
_NO_CHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")


class PromptFile(NamedTuple):
    """A file that came with a message, and where its reader finds it; nowhere without a path."""

    name: str
    mimetype: str
    path: str | None
    error: str | None = None

    @property
    def told(self) -> dict[str, str | None]:
        """What a reader is told of it; one that has no place has a name."""
        return {
            "media_type": media_type(self.mimetype),
            "media_mimetype": self.mimetype,
            "media_path": self.path,
            "media_name": self.name if self.path is None else None,
            "media_error": self.error,
        }


class PromptMessage(NamedTuple):
    """What somebody said in a thread, and the files that came with it."""

    sender: str
    at: datetime
    thread: str
    text: str
    media: tuple[PromptFile, ...] = ()


class PromptAnswer(NamedTuple):
    """What the run has asked, and what it was answered."""

    question: str
    answer: str
    by: str | None = None
    at: datetime | None = None


class PreviousResult(NamedTuple):
    """What the last run of the task came to, and when."""

    run_id: int
    at: datetime | None
    result: str


INTERRUPTED = (
    "An attempt before this one was broken off at its work. Look at what it has done already, go "
    "on from there, and do nothing twice that cannot be taken back."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """Everything that an agent may be told of a run."""

    task_id: int
    title: str
    run_id: int
    space: str
    zone: str
    thread: str | None = None
    planned: datetime | None = None
    instructions: str = ""
    previous: PreviousResult | None = None
    given: str = ""
    messages: tuple[PromptMessage, ...] = ()
    answers: tuple[PromptAnswer, ...] = ()
    interrupted: bool = False
    """Whether an attempt before this one was lost at its work."""


def render(envelope: Prompt) -> str:
    """Return the prompt: its sections in their order, with an empty line between two."""
    return "\n\n".join(_sections(envelope))


def plain(envelope: Prompt) -> str:
    """Return what a program is told without sections; messages keep their senders."""
    previous = envelope.previous
    parts = [envelope.instructions]
    if previous is not None:
        parts.append(f"The last result was: {previous.result}")
    parts += [envelope.given, "\n".join(message(sent) for sent in envelope.messages)]
    parts += [f"You asked: {a.question}\nThe answer is: {a.answer}" for a in envelope.answers]
    parts.append(INTERRUPTED if envelope.interrupted else "")
    return "\n\n".join(part for part in parts if part)


def message(sent: PromptMessage, number: int | None = None) -> str:
    """Return a message with its sender, its time and its thread.

    One with files is an element for each of them, the first with the text. With a number each
    element has it as its id.
    """
    told = {
        "id": None if number is None else str(number),
        "sender": sent.sender,
        "time": _instant(sent.at),
        "thread": sent.thread,
    }
    texts = (sent.text, *("" for _ in sent.media[1:]))
    media = [medium.told for medium in sent.media] or [{}]
    return "\n".join(
        _element("message", {**told, **of}, text) for of, text in zip(media, texts, strict=True)
    )


def sent_of(said: ThreadMessage, files: str | None) -> PromptMessage:
    """Return what was said in a thread, for a reader that finds the files of messages in a folder.

    Each message has a folder of its own there. One who finds them nowhere is told their names.
    """
    media = tuple(_medium(said, file, files) for file in said.files)
    return PromptMessage(said.sender, said.at, said.thread, said.body, media)


def media_of(said: ThreadMessage, files: str | None) -> dict[str, list[dict[str, object]]]:
    """Return the files of a message as a program is told them in JSON; nothing if it has none."""
    told: list[dict[str, object]] = []
    for file in said.files:
        medium = _medium(said, file, files)
        known = {name: text for name, text in medium.told.items() if text is not None}
        told.append({"name": file.name, "size": file.size, **known})
    return {"files": told} if told else {}


def _medium(said: ThreadMessage, file: MessageFile, files: str | None) -> PromptFile:
    if file.name in said.lost:
        return PromptFile(file.name, file.mimetype, None, LOST)
    path = None if files is None else f"{files}/{said.id}/{file.name}"
    return PromptFile(file.name, file.mimetype, path)


def sender_line(said: ThreadMessage, files: str | None = None, *, numbered: bool = False) -> str:
    """Return what was said in a thread as it stands in a prompt, with its id if it is numbered."""
    return message(sent_of(said, files), said.id if numbered else None)


def escape(text: str) -> str:
    """Return text that cannot be taken for a section; a reader of XML gets it back."""
    return _NO_CHARACTERS.sub("\N{REPLACEMENT CHARACTER}", clean(text)).translate(_SIGNS)


def _sections(envelope: Prompt) -> Iterator[str]:
    yield f"<task{_attributes(_head(envelope))}/>"
    if envelope.instructions:
        yield _block("instructions", {}, escape(envelope.instructions))
    if envelope.previous is not None:
        told = {"run": str(envelope.previous.run_id), "time": _instant(envelope.previous.at)}
        yield _block("previous_result", told, escape(envelope.previous.result))
    if envelope.given:
        yield _block("input", {}, escape(envelope.given))
    if envelope.messages:
        yield _block("messages", {}, "\n".join(message(sent) for sent in envelope.messages))
    if envelope.answers:
        yield _block("answers", {}, "\n".join(_answer(answer) for answer in envelope.answers))
    if envelope.interrupted:
        yield _block("interrupted", {}, INTERRUPTED)


def _head(envelope: Prompt) -> dict[str, str | None]:
    planned = envelope.planned
    return {
        "title": envelope.title,
        "id": str(envelope.task_id),
        "run": str(envelope.run_id),
        "space": envelope.space,
        "thread": envelope.thread,
        "planned": None if planned is None else _instant(planned.astimezone(_zone(envelope.zone))),
        "zone": envelope.zone,
    }


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


def _answer(answered: PromptAnswer) -> str:
    told = {"by": answered.by, "time": _instant(answered.at), "question": answered.question}
    return _element("answer", told, answered.answer)


def _instant(at: datetime | None) -> str | None:
    if at is None:
        return None
    text = at.isoformat(timespec="seconds")
    return text.replace("+00:00", "Z") if at.utcoffset() == UTC.utcoffset(None) else text


def _block(name: str, told: dict[str, str | None], content: str) -> str:
    return f"<{name}{_attributes(told)}>\n{content}\n</{name}>"


def _element(name: str, told: dict[str, str | None], text: str) -> str:
    return f"<{name}{_attributes(told)}>{escape(text)}</{name}>"


def _attributes(told: dict[str, str | None]) -> str:
    spelled = {name: _exact if name in EXACT else _attribute for name in told}
    return "".join(f' {name}="{spelled[name](text)}"' for name, text in told.items() if text)


def _attribute(text: str) -> str:
    return " ".join(_exact(text).split())


def _exact(text: str) -> str:
    return escape(text).translate(_QUOTES)
