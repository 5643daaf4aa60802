"""Notifications: levels, progress and results for people, and removal of internal text.

Text between `<internal>` and `</internal>` is never sent to people. An unclosed tag hides
everything after it. Tags may arrive in pieces, so text that may turn out to be a tag is held back.

While a run works, its interim results, the start of work and its progress are sent where its result
goes, each of them once: the key of a message is the same for every attempt that sends it.
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

MIN_PRIORITIES = {
    NotificationLevel.NORMAL: -2_000_000_000,
    NotificationLevel.HIGH: 10,
    NotificationLevel.URGENT: 100,
}
"""Lowest priority of each level."""
MAX_CONTEXT = 4_000


def level_of(priority: int) -> NotificationLevel:
    """Return the level of a priority."""
    return max(
        (level for level in NotificationLevel if MIN_PRIORITIES[level] <= priority),
        key=MIN_PRIORITIES.__getitem__,
    )


def end_notification(run: OpenRun, state: RunState, sentence: str) -> Notification | None:
    """Return the notification about the end of a run; None unless it failed or expired."""
    if state not in {RunState.FAILED, RunState.EXPIRED}:
        return None
    return Notification(text=f"run {run.run_id} {sentence}")


def question_notification(run: OpenRun, question: NewQuestion, to: str | None) -> Notification:
    """Return a notification with everything needed to answer a question.

    Every line written by the run is marked with `>`, so that none can pass for a line of Rota.
    """
    number = run.run_id
    lines = [f"run {number} asks:", *_quoted(question.question)]
    lines += _quoted(question.context[:MAX_CONTEXT])
    bound = ""
    if question.action is not None:
        lines += ["Approve or deny exactly this action:", question.action]
        bound = f" --hash {question.digest}"
    lines.append(f"Answer until {from_micros(question.expires_at):%Y-%m-%d %H:%M} UTC:")
    choices = [shlex.quote(option) for option in question.options] or ["TEXT"]
    lines += [f"  rota answer {number} {choice}{bound}" for choice in choices]
    if question.default is not None:
        lines += ["If nobody answers, the answer is:", *_quoted(question.default)]
    return Notification(text="\n".join(lines), to=to, asking=True)


def _quoted(text: str) -> list[str]:
    return [f"> {line}" for line in text.splitlines()]


STARTED_PHRASES = (
    "On it.",
    "Working on it.",
    "I am looking into it.",
    "Let me see.",
    "One moment.",
)
"""Phrases that announce the start of work; the run's id selects one."""
MAX_ANSWERS = 50
"""Interim results of a launch that are sent."""
MAX_PROGRESS = 20
"""Upper bound of the progress messages a task may request."""
PROGRESS_GAP = 8 * 1_000_000
"""Microseconds between two progress messages, at least."""


class AddressedResult(NamedTuple):
    """A result ready to be sent: its target, and its text."""

    channel: str
    target: str
    body: str
    mail: MailFields | None = None


class RunConversation(NamedTuple):
    """A run in a thread, and the target of its result."""

    run_id: RunId
    space_id: SpaceId
    to: str


def address_result(to: str, result: str) -> AddressedResult:
    """Return a result, JSON text or plain text, as a message to a target."""
    channel, _, target = to.partition(":")
    if channel == MAIL:
        return AddressedResult(channel, target, *as_mail(result))
    return AddressedResult(channel, target, mail_text(result))


def answer_notice(there: RunConversation, result: str, nth: int) -> NewDelivery | None:
    """Return an interim result as a message; None if all of it is internal.

    `nth` counts equal results of a run: a retry that repeats one is not sent again, but an agent
    that gives the same result twice is.
    """
    public = public_result(result)
    addressed = None if public is None else address_result(there.to, public)
    if addressed is None or not addressed.body.strip():
        return None
    return _delivery(
        there, addressed, DeliveryKind.RESULT, f"answer\n{result_digest(result)}\n{nth}"
    )


def result_digest(result: str) -> str:
    """Return a hash that identifies a result."""
    return hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest()


def start_notice(there: RunConversation) -> NewDelivery:
    """Return the message that work has started."""
    addressed = address_result(
        there.to, json.dumps(STARTED_PHRASES[there.run_id % len(STARTED_PHRASES)])
    )
    return _delivery(there, addressed, DeliveryKind.NOTIFICATION, "begun")


def progress_notice(there: RunConversation, line: str, at: str) -> NewDelivery | None:
    """Return a progress line as a message, None if it is empty; `at` identifies the line."""
    public = " ".join(public_text(line).split())
    if not public:
        return None
    addressed = address_result(there.to, json.dumps(public))
    return _delivery(there, addressed, DeliveryKind.NOTIFICATION, f"progress\n{at}")


def _delivery(
    there: RunConversation, result: AddressedResult, kind: DeliveryKind, what: str
) -> NewDelivery:
    key = f"told\n{there.space_id}\n{there.run_id}\n{what}"
    return NewDelivery(
        space_id=there.space_id,
        channel=result.channel,
        target=result.target,
        body=result.body,
        dedupe_key=hashlib.sha256(key.encode()).hexdigest(),
        kind=kind,
        mail=result.mail,
    )


_TAG_START = r"<[ \t]{0,4}(/?)[ \t]{0,4}"
_TAG = re.compile(rf"{_TAG_START}internal\b[^<>]*>", re.IGNORECASE)
_MARK = re.compile(rf"{_TAG_START}internal\b", re.IGNORECASE)
_PARTIAL_TAG = re.compile(
    rf"{_TAG_START}(?:internal\b[^<>]*|{'(?:'.join('interna')}{')?' * 6})?\Z", re.IGNORECASE
)
MAX_HELD = 1_000
"""Characters held back at most because they may become a tag."""


class InternalTextFilter:
    """Passes on the public part of a text that arrives in pieces."""

    def __init__(self) -> None:
        self._depth = 0
        self._held = ""

    def feed(self, piece: str) -> str:
        """Return the text that is known to be public after a piece."""
        text, self._held = self._held + piece, ""
        public: list[str] = []
        at = 0
        for tag in _TAG.finditer(text):
            self._let_through(text[at : tag.start()], public)
            self._depth = max(0, self._depth - 1) if tag[1] else self._depth + 1
            at = tag.end()
        rest = text[at:]
        begun = _PARTIAL_TAG.search(rest)
        if begun is not None:
            self._held = rest[begun.start() :]
            rest = rest[: begun.start()]
        self._let_through(rest, public)
        if begun is not None and len(self._held) > MAX_HELD:  # too long: count it as a tag
            self._held = ""
            self._depth += 0 if begun[1] else 1
        return "".join(public)

    def end(self) -> str:
        """Return held text that is not a tag; an incomplete internal tag is dropped."""
        held, self._held = self._held, ""
        public: list[str] = []
        if _MARK.match(held) is None:
            self._let_through(held, public)
        return "".join(public)

    def _let_through(self, text: str, public: list[str]) -> None:
        if self._depth == 0:
            public.append(text)


def public_text(text: str) -> str:
    """Return a text without its internal parts, and without the blank lines they leave."""
    if _MARK.search(text) is None:
        return text
    text_filter = InternalTextFilter()
    public = text_filter.feed(text) + text_filter.end()
    return re.sub(r"\n{3,}", "\n\n", public).strip()


def public_result(result: str | None) -> str | None:
    """Return a result, JSON text, without internal parts of its strings; None if none is left."""
    if result is None or _MARK.search(result) is None:
        return result
    try:
        found = _public(json.loads(result))
    except RecursionError:
        return None  # nested too deep to be filtered, so nothing of it is shown
    return None if found == "" else json.dumps(found, ensure_ascii=False)


def _public(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return public_text(value)
    if isinstance(value, list):
        return [_public(one) for one in value]
    if isinstance(value, dict):
        return {name: _public(one) for name, one in value.items()}
    return value
