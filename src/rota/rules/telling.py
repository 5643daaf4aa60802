"""Telling: what people in a conversation hear of a run before it has ended.

Each result that is not the last, that the work has begun, and what it does. All of it goes where
the result goes, and none of it twice: its key is the same for whoever finds it again.
"""

from __future__ import annotations

import hashlib
import json
from typing import NamedTuple

from rota.model.deliveries import DeliveryKind, Mail
from rota.model.ids import RunId, SpaceId
from rota.model.settlements import NewDelivery
from rota.rules.internal import public_result, public_text
from rota.rules.mail import MAIL, as_mail, words_of

BEGUN = ("On it.", "Working on it.", "I am looking into it.", "Let me see.", "One moment.")
"""What says that the work has begun: another of them from run to run."""
MOST_ANSWERS = 50
"""How many results of a try are told before its last one."""
MOST_PROGRESS = 20
"""How many lines of progress a task may want."""
PROGRESS_GAP = 8 * 1_000_000
"""How many microseconds lie between two lines of progress, at least."""


class Addressed(NamedTuple):
    """A result as it leaves: where to, and what is written there."""

    channel: str
    target: str
    body: str
    mail: Mail | None = None


class Conversation(NamedTuple):
    """A run in a thread whose results go to a place."""

    run_id: RunId
    space_id: SpaceId
    to: str


def addressed(to: str, result: str) -> Addressed:
    """Return a result, JSON text or a sentence, as people read it at a place."""
    channel, _, target = to.partition(":")
    if channel == MAIL:
        return Addressed(channel, target, *as_mail(result))
    return Addressed(channel, target, words_of(result))


def of_answer(there: Conversation, result: str, nth: int) -> NewDelivery | None:
    """Return a result that is not the last as a message; None if all of it is internal.

    `nth` counts those that say the same. A run that is tried again and says the same once more is
    not heard twice, and one that says it twice is.
    """
    shown = public_result(result)
    words = None if shown is None else addressed(there.to, shown)
    if words is None or not words.body.strip():
        return None
    return _delivery(there, words, DeliveryKind.RESULT, f"answer\n{digest_of(result)}\n{nth}")


def digest_of(result: str) -> str:
    """Return what tells a result from any other."""
    return hashlib.sha256(result.encode("utf-8", "surrogatepass")).hexdigest()


def of_begin(there: Conversation) -> NewDelivery:
    """Return the message that the work for what a person said has begun."""
    words = addressed(there.to, json.dumps(BEGUN[there.run_id % len(BEGUN)]))
    return _delivery(there, words, DeliveryKind.NOTICE, "begun")


def of_progress(there: Conversation, line: str, at: str) -> NewDelivery | None:
    """Return a line of progress as a message; `at` is where it was said. None if it is empty."""
    public = " ".join(public_text(line).split())
    if not public:
        return None
    words = addressed(there.to, json.dumps(public))
    return _delivery(there, words, DeliveryKind.NOTICE, f"progress\n{at}")


def _delivery(there: Conversation, words: Addressed, kind: DeliveryKind, what: str) -> NewDelivery:
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
