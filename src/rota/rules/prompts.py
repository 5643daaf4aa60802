"""Prompts in sections that their content cannot forge.

All text from people and programs is escaped, so that every `<` in a prompt was written by Rota: no
title, message or result can open or close a section, or pretend to come from somebody else. Apart
from its missing root element, a prompt is well-formed XML.
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
"""The sections of a prompt in order; empty ones are omitted."""

_TAG_CHARACTERS = str.maketrans(
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
"""The characters that form tags, and those that readers may take for them."""
_QUOTES = str.maketrans({'"': "&quot;", "'": "&#39;"})
EXACT = frozenset({"media_path", "media_name"})
"""Attributes in which every space counts; they contain no line breaks."""
LOST = "this file is damaged or missing and cannot be read: ask its sender to send it again"
_NONCHARACTERS = re.compile("[\ufdd0-\ufdef\ufffe\uffff]")


class PromptFile(NamedTuple):
    """A file of a message and its path; None if the reader has no access to it."""

    name: str
    mimetype: str
    path: str | None
    error: str | None = None

    @property
    def attributes(self) -> dict[str, str | None]:
        """Its attributes in a prompt; the name is only given if there is no path."""
        return {
            "media_type": media_type(self.mimetype),
            "media_mimetype": self.mimetype,
            "media_path": self.path,
            "media_name": self.name if self.path is None else None,
            "media_error": self.error,
        }


class PromptMessage(NamedTuple):
    """A message of a thread with its files."""

    sender: str
    at: datetime
    thread: str
    text: str
    media: tuple[PromptFile, ...] = ()


class PromptAnswer(NamedTuple):
    """A question of the run with its answer."""

    question: str
    answer: str
    by: str | None = None
    at: datetime | None = None


class PreviousResult(NamedTuple):
    """Result of the task's last run, and when it ended."""

    run_id: int
    at: datetime | None
    result: str


INTERRUPTED = (
    "An earlier attempt was interrupted during its work. Check what it has done already, continue "
    "from there, and do not repeat anything that cannot be undone."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """The content of a prompt."""

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
    """Whether an earlier attempt was lost while it worked."""


def render_prompt(prompt: Prompt) -> str:
    """Return a prompt in sections, separated by empty lines."""
    return "\n\n".join(_sections(prompt))


def plain_prompt(prompt: Prompt) -> str:
    """Return a prompt without sections; messages keep their senders."""
    previous = prompt.previous
    parts = [prompt.instructions]
    if previous is not None:
        parts.append(f"The last result was: {previous.result}")
    parts += [prompt.given, "\n".join(message_element(sent) for sent in prompt.messages)]
    parts += [f"You asked: {a.question}\nThe answer is: {a.answer}" for a in prompt.answers]
    parts.append(INTERRUPTED if prompt.interrupted else "")
    return "\n\n".join(part for part in parts if part)


def message_element(message: PromptMessage, number: int | None = None) -> str:
    """Return a message as an element with its sender, time and thread.

    A message with files is one element per file, the first of them with the text. `number` becomes
    the id of each element.
    """
    attributes = {
        "id": None if number is None else str(number),
        "sender": message.sender,
        "time": _instant(message.at),
        "thread": message.thread,
    }
    texts = (message.text, *("" for _ in message.media[1:]))
    media = [medium.attributes for medium in message.media] or [{}]
    return "\n".join(
        _element("message", {**attributes, **file_attributes}, text)
        for file_attributes, text in zip(media, texts, strict=True)
    )


def prompt_message(message: ThreadMessage, files: str | None) -> PromptMessage:
    """Return a message for a reader that finds its files in `files`, in a folder per message.

    Without `files`, the reader is only given their names.
    """
    media = tuple(_prompt_file(message, file, files) for file in message.files)
    return PromptMessage(message.sender, message.at, message.thread, message.body, media)


def message_files(message: ThreadMessage, files: str | None) -> dict[str, list[dict[str, object]]]:
    """Return the files of a message as JSON for programs; empty if it has none."""
    listed: list[dict[str, object]] = []
    for file in message.files:
        listed_file = _prompt_file(message, file, files)
        given = {name: text for name, text in listed_file.attributes.items() if text is not None}
        listed.append({"name": file.name, "size": file.size, **given})
    return {"files": listed} if listed else {}


def _prompt_file(message: ThreadMessage, file: MessageFile, files: str | None) -> PromptFile:
    if file.name in message.lost:
        return PromptFile(file.name, file.mimetype, None, LOST)
    path = None if files is None else f"{files}/{message.id}/{file.name}"
    return PromptFile(file.name, file.mimetype, path)


def sender_line(message: ThreadMessage, files: str | None = None, *, numbered: bool = False) -> str:
    """Return a message as an element of a prompt, optionally with its id."""
    return message_element(prompt_message(message, files), message.id if numbered else None)


def escape(text: str) -> str:
    """Return text escaped as XML, so that it cannot form a section."""
    return _NONCHARACTERS.sub("\N{REPLACEMENT CHARACTER}", clean(text)).translate(_TAG_CHARACTERS)


def _sections(prompt: Prompt) -> Iterator[str]:
    yield f"<task{_attributes(_task_attributes(prompt))}/>"
    if prompt.instructions:
        yield _block("instructions", {}, escape(prompt.instructions))
    if prompt.previous is not None:
        attributes = {"run": str(prompt.previous.run_id), "time": _instant(prompt.previous.at)}
        yield _block("previous_result", attributes, escape(prompt.previous.result))
    if prompt.given:
        yield _block("input", {}, escape(prompt.given))
    if prompt.messages:
        yield _block("messages", {}, "\n".join(message_element(sent) for sent in prompt.messages))
    if prompt.answers:
        yield _block("answers", {}, "\n".join(_answer(answer) for answer in prompt.answers))
    if prompt.interrupted:
        yield _block("interrupted", {}, INTERRUPTED)


def _task_attributes(prompt: Prompt) -> dict[str, str | None]:
    planned = prompt.planned
    return {
        "title": prompt.title,
        "id": str(prompt.task_id),
        "run": str(prompt.run_id),
        "space": prompt.space,
        "thread": prompt.thread,
        "planned": None if planned is None else _instant(planned.astimezone(_zone(prompt.zone))),
        "zone": prompt.zone,
    }


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return ZoneInfo("UTC")


def _answer(answer: PromptAnswer) -> str:
    attributes = {"by": answer.by, "time": _instant(answer.at), "question": answer.question}
    return _element("answer", attributes, answer.answer)


def _instant(at: datetime | None) -> str | None:
    if at is None:
        return None
    text = at.isoformat(timespec="seconds")
    return text.replace("+00:00", "Z") if at.utcoffset() == UTC.utcoffset(None) else text


def _block(name: str, attributes: dict[str, str | None], content: str) -> str:
    return f"<{name}{_attributes(attributes)}>\n{content}\n</{name}>"


def _element(name: str, attributes: dict[str, str | None], text: str) -> str:
    return f"<{name}{_attributes(attributes)}>{escape(text)}</{name}>"


def _attributes(attributes: dict[str, str | None]) -> str:
    encoders = {
        name: _escape_attribute if name in EXACT else _collapse_attribute for name in attributes
    }
    return "".join(f' {name}="{encoders[name](text)}"' for name, text in attributes.items() if text)


def _collapse_attribute(text: str) -> str:
    return " ".join(_escape_attribute(text).split())


def _escape_attribute(text: str) -> str:
    return escape(text).translate(_QUOTES)
