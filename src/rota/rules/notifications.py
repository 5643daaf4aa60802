"""Levels of notifications, progress and results for people, internal text removed.

Nothing of it reaches people. What is opened and never closed is internal to its end, and a tag may
come in pieces: whatever is not certain to be public is held back.

Each result that is not the last, that the work has begun, and what it does. All of it goes where
the result goes, and none of it twice: its key is the same for whoever finds it again.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from typing import Any, NamedTuple

from rota.model.ids import RunId, SpaceId
from rota.model.instants import from_micros
from rota.model.notifications import DeliveryKind, MailFields, Notification, NotificationLevel
from rota.model.runs import OpenRun, RunState
from rota.model.settlement import NewDelivery, NewQuestion
from rota.rules.messages import MAIL, as_mail, mail_text

FLOORS = {
    NotificationLevel.NORMAL: -2_000_000_000,
    NotificationLevel.HIGH: 10,
    NotificationLevel.URGENT: 100,
}
"""The least priority of each level; whatever is not more is normal."""
MAX_CONTEXT = 4_000


def level_of(priority: int) -> NotificationLevel:
    """Return how much a priority matters."""
    return max(
        (level for level in NotificationLevel if FLOORS[level] <= priority), key=FLOORS.__getitem__
    )


def of_end(run: OpenRun, state: RunState, sentence: str) -> Notification | None:
    """Return what is told of a run that has ended: only what came to nothing is worth a notice."""
    if state not in {RunState.FAILED, RunState.EXPIRED}:
        return None
    return Notification(text=f"run {run.run_id} {sentence}")


def of_question(run: OpenRun, question: NewQuestion, to: str | None) -> Notification:
    """Return a question with everything that is needed to answer it from anywhere.

    Each line that the run wrote is marked, so that none passes for one of Rota's own.
    """
    number = run.run_id
    lines = [f"run {number} asks:", *_quoted(question.question)]
    lines += _quoted(question.context[:MAX_CONTEXT])
    bound = ""
    if question.action is not None:
        lines += ["To approve or deny is exactly this:", question.action]
        bound = f" --hash {question.digest}"
    lines.append(f"Answer until {from_micros(question.expires_at):%Y-%m-%d %H:%M} UTC:")
    choices = [shlex.quote(option) for option in question.options] or ["TEXT"]
    lines += [f"  rota answer {number} {choice}{bound}" for choice in choices]
    if question.default is not None:
        lines += ["Without an answer this counts:", *_quoted(question.default)]
    return Notification(text="\n".join(lines), to=to, asking=True)


def _quoted(text: str) -> list[str]:
    return [f"> {line}" for line in text.splitlines()]


BEGUN = ("On it.", "Working on it.", "I am looking into it.", "Let me see.", "One moment.")
"""What says that the work has begun: another of them from run to run."""
MAX_ANSWERS = 50
"""How many results of a try are told before its last one."""
MAX_PROGRESS = 20
"""How many lines of progress a task may want."""
PROGRESS_GAP = 8 * 1_000_000
"""How many microseconds lie between two lines of progress, at least."""


class AddressedResult(NamedTuple):
    """A result as it leaves: where to, and what is written there."""

    channel: str
    target: str
    body: str
    mail: MailFields | None = None


class RunConversation(NamedTuple):
    """A run in a thread whose results go to a place."""

    run_id: RunId
    space_id: SpaceId
    to: str


def address_result(to: str, result: str) -> AddressedResult:
    """Return a result, JSON text or a sentence, as people read it at a place."""
    channel, _, target = to.partition(":")
    if channel == MAIL:
        return AddressedResult(channel, target, *as_mail(result))
    return AddressedResult(channel, target, mail_text(result))


def of_answer(there: RunConversation, result: str, nth: int) -> NewDelivery | None:
    """Return a result that is not the last as a message; None if all of it is internal.

    `nth` counts those that say the same. A run that is tried again and says the same once more is
    not heard twice, and one that says it twice is.
    """
    shown = public_result(result)
    words = None if shown is None else address_result(there.to, shown)
    if words is None or not words.body.strip():
        return None
    return _delivery(there, words, DeliveryKind.RESULT, f"answer\n{digest_of(result)}\n{nth}")


def digest_of(result: str) -> str:
    """Return what tells a result from any other."""
    return hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest()


def of_begin(there: RunConversation) -> NewDelivery:
    """Return the message that the work for what a person said has begun."""
    words = address_result(there.to, json.dumps(BEGUN[there.run_id % len(BEGUN)]))
    return _delivery(there, words, DeliveryKind.NOTICE, "begun")


def of_progress(there: RunConversation, line: str, at: str) -> NewDelivery | None:
    """Return a line of progress as a message; `at` is where it was said. None if it is empty."""
    public = " ".join(public_text(line).split())
    if not public:
        return None
    words = address_result(there.to, json.dumps(public))
    return _delivery(there, words, DeliveryKind.NOTICE, f"progress\n{at}")


def _delivery(
    there: RunConversation, words: AddressedResult, kind: DeliveryKind, what: str
) -> NewDelivery:
    key = f"told\n{there.space_id}\n{there.run_id}\n{what}"
    return NewDelivery(
        space_id=there.space_id,
        channel=words.channel,
        target=words.target,
        body=words.body,
        dedupe_key=hashlib.sha256(key.encode()).hexdigest(),
        kind=kind,
        mail=words.mail,
    )


_OPENED = r"<[ \t]{0,4}(/?)[ \t]{0,4}"
_TAG = re.compile(rf"{_OPENED}internal\b[^<>]*>", re.IGNORECASE)
_MARK = re.compile(rf"{_OPENED}internal\b", re.IGNORECASE)
_BEGUN = re.compile(
    rf"{_OPENED}(?:internal\b[^<>]*|{'(?:'.join('interna')}{')?' * 6})?\Z", re.IGNORECASE
)
MAX_HELD = 1_000
"""How much is held back at most because it may become a tag."""


class InternalTextFilter:
    """Lets the public part of a text through that comes in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return what has become public with a piece."""
        text, self._held = self._held + piece, ""
        public: list[str] = []
        at = 0
        for tag in _TAG.finditer(text):
            self._let_through(text[at : tag.start()], public)
            self._depth = max(0, self._depth - 1) if tag[1] else self._depth + 1
            at = tag.end()
        rest = text[at:]
        begun = _BEGUN.search(rest)
        if begun is not None:
            self._held = rest[begun.start() :]
            rest = rest[: begun.start()]
        self._let_through(rest, public)
        if begun is not None and len(self._held) > MAX_HELD:  # a tag that does not end is one
            self._held = ""
            self._depth += 0 if begun[1] else 1
        return "".join(public)

    def end(self) -> str:
        """Return what was held back and turns out to be no tag; half a tag is none of people's."""
        held, self._held = self._held, ""
        public: list[str] = []
        if _MARK.match(held) is None:
            self._let_through(held, public)
        return "".join(public)

    def _let_through(self, text: str, public: list[str]) -> None:
        if self._depth == 0:
            public.append(text)


def public_text(text: str) -> str:
    """Return a text without what is internal, and without the gap that it leaves."""
    if _MARK.search(text) is None:
        return text
    sieve = InternalTextFilter()
    public = sieve.feed(text) + sieve.end()
    return re.sub(r"\n{3,}", "\n\n", public).strip()


def public_result(result: str | None) -> str | None:
    """Return a result, JSON text, without what is internal in any of its texts.

    None if nothing is left of a text.
    """
    if result is None or _MARK.search(result) is None:
        return result
    try:
        found = _public(json.loads(result))
    except RecursionError:
        return None  # what cannot be looked through is not shown
    return None if found == "" else json.dumps(found, ensure_ascii=False)


def _public(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, list):
        return [_public(one) for one in value]
    if isinstance(value, dict):
        return {name: _public(one) for name, one in value.items()}
    return value
