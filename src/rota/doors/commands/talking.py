"""What an attempt says for its own run: messages, questions, subtasks, deferred writes, effects.

Nobody else may: to any other caller, and for any other run, there is no such thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from rota.doors.commands.artifacts import LONGEST_NAME
from rota.doors.commands.fields import PLAIN, UNSEEN, WHOLE, Id, Json, Spelled, Text
from rota.doors.commands.shapes import Asked, Given
from rota.doors.commands.state import Name, NewItem
from rota.doors.commands.wishes import Length, length
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import NotFound
from rota.flow.define import memory, talking
from rota.flow.define.enclosing import MOST_FILES, enclose
from rota.flow.define.policies import HIGHEST_PRIORITY
from rota.model.deliveries import Enclosure
from rota.model.keys import KeyScope
from rota.model.outcomes import Asked as Question
from rota.model.talking import Effect, Put
from rota.rules.mail import LONGEST_SUBJECT

END_YOUR_TURN = (
    "Your question is noted. End your turn now, without doing anything else: the run waits, and "
    "goes on in this session with the answer."
)
EffectName = Annotated[
    str,
    Spelled(
        rf"[^{UNSEEN}\x20\xa0/]{{1,200}}",
        "write 1 to 200 characters without spaces or slashes, such as invoice-17",
    ),
]
Target = Annotated[str, StringConstraints(min_length=1, max_length=256), PLAIN]
Said = Annotated[Text, StringConstraints(min_length=1, max_length=talking.LONGEST_MESSAGE)]
Option = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
Subject = Annotated[Text, StringConstraints(max_length=LONGEST_SUBJECT)]
Format = Annotated[Text, StringConstraints(max_length=40)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]
Priority = Annotated[int, Field(ge=-HIGHEST_PRIORITY, le=HIGHEST_PRIORITY), WHOLE]


class OfAttempt(Asked):
    """What an attempt asks for; its run is its own, and need not be named."""

    run: Id | None = None


class NewMessage(OfAttempt):
    """A message to the run's thread, where its task delivers, or to a channel:target."""

    text: Said
    to: Target | None = None
    name: EffectName | None = Field(
        default=None,
        description="What the effect is called: under one name it happens once in a slot, "
        "however often the run is tried. Without one, the same words are sent once.",
    )
    files: list[FileName] = Field(
        default_factory=list,
        max_length=MOST_FILES,
        description="Files that go with it, by their paths below $ROTA_ARTIFACTS.",
    )


class NewMail(NewMessage):
    """A message, or a mail with its subject and a format, plain or html."""

    subject: Subject = ""
    format: Format = ""

    def mail(self) -> talking.MailWish:
        """Return what it is to have as a mail."""
        return talking.MailWish(self.subject, self.format)


class NewAlert(OfAttempt):
    """Something people should know of, sent where the results of the task go."""

    text: Said
    name: EffectName | None = None


class NewQuestion(OfAttempt):
    """What a person is to decide; with an action, whether to approve exactly that."""

    question: Annotated[Text, StringConstraints(min_length=1, max_length=talking.LONGEST_QUESTION)]
    context: Annotated[Text, StringConstraints(max_length=talking.LONGEST_QUESTION)] = ""
    options: list[Option] = Field(default_factory=list, max_length=20)
    expires_in: Length | None = None
    default: Option | None = Field(
        default=None, description="The answer if nobody gives one in time; else the run expires."
    )
    action: Json = Field(
        default=None, description="Shown whole, and bound by its hash: approve or deny."
    )


class NewSubtask(OfAttempt):
    """Work for an agent after this run, in its pool, its thread and its walls; of `main` alone."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    payload: Json = None
    priority: Priority | None = None
    name: EffectName | None = None


class NewState(OfAttempt):
    """A value for the task to keep, or a key to forget."""

    key: Name
    value: Json = None
    forget: bool = False


class NewSeen(OfAttempt):
    """Items to be marked, each once."""

    items: list[NewItem] = Field(min_length=1, max_length=memory.MOST_ITEMS)


class OneEffect(OfAttempt):
    """One effect of the run's slot."""

    name: EffectName


class NewEffect(OneEffect):
    """What came of something the program did itself."""

    result: Json = None


class EffectGiven(Given):
    """Something done once; `again` says that it had been done before, with this result."""

    name: str
    result: Json
    done_at: datetime
    by_run: int
    again: bool
    warning: str | None = None


class DeferredGiven(Given):
    """What happens when the run has succeeded; `effect` is there if it has happened already."""

    put: Put
    name: str | None
    effect: EffectGiven | None
    warning: str | None


class QuestionNoted(Given):
    """That the run will wait, and what the attempt is to do now."""

    asked: bool = True
    expires_in_seconds: float
    action: str | None
    next: str = END_YOUR_TURN


def _effect(found: Effect, warning: str | None = None) -> EffectGiven:
    return EffectGiven(
        name=found.name,
        result=json.loads(found.result),
        done_at=found.at,
        by_run=found.run_id,
        again=found.again,
        warning=warning,
    )


def _sent(done: tuple[Effect, str | None]) -> EffectGiven:
    return _effect(*done)


def _noted(asked: Question) -> QuestionNoted:
    return QuestionNoted(expires_in_seconds=asked.expires_in.total_seconds(), action=asked.action)


def _deferred(made: talking.Deferral) -> DeferredGiven:
    effect = None if made.effect is None else _effect(made.effect)
    return DeferredGiven(put=made.put, name=made.name, effect=effect, warning=made.warning)


async def _speech(
    office: Office, asked: OfAttempt, shape: Callable[[Any], BaseModel] | None = None
) -> talking.Speech:
    """Return what an attempt needs to speak; `shape` makes the answer of what is told."""
    held = office.caller.attempt
    if held is None or asked.run not in {None, held.run_id}:
        raise NotFound("run", asked.run or "of yours", "an attempt speaks for its own run alone")

    told: list[talking.Telling] = []

    async def shaped(within: Office, done: object) -> BaseModel | None:
        return None if shape is None else shape(await told[-1](within.store, done))

    if shape is not None:
        office.keep_seen(shaped, "defer", "do_once")
    return await talking.speech_of(office.store, office.caller, held, office.channels, told.append)


@command("POST", "/v1/attempt/messages", KeyScope.RUN, status=201)
async def send_message(office: Office, asked: NewMessage) -> EffectGiven:
    """Send a message at once, and once: a retried run is told that it was sent."""
    speech = await _speech(office, asked, _sent)
    said = (asked.text, asked.to, asked.name)
    files = await _enclosed(office, speech, asked)
    return _sent(await talking.send_message(speech, *said, files))


async def _enclosed(
    office: Office, speech: talking.Speech, asked: NewMessage
) -> tuple[Enclosure, ...]:
    return await enclose(office.artifacts, speech.task.space, speech.run.id, asked.files)


@command("POST", "/v1/attempt/questions", KeyScope.RUN, status=201)
async def ask_user(office: Office, asked: NewQuestion) -> QuestionNoted:
    """Ask a person: when the attempt has ended its turn, its run waits for the answer."""
    speech = await _speech(office, asked, _noted)
    wait = None if asked.expires_in is None else length(asked.expires_in, "expires_in")
    noted = await talking.ask_user(
        speech,
        asked.question,
        context=asked.context,
        options=asked.options,
        expires_in=wait,
        default=asked.default,
        action=asked.action,
    )
    return _noted(noted)


@command("POST", "/v1/attempt/subtasks", KeyScope.RUN, status=202)
async def spawn_subtask(office: Office, asked: NewSubtask) -> DeferredGiven:
    """Queue work for an agent when this run has succeeded."""
    speech = await _speech(office, asked, _deferred)
    made = await talking.spawn_subtask(
        speech,
        office.agents,
        asked.instructions,
        name=asked.name,
        priority=asked.priority,
        payload=asked.payload,
    )
    return _deferred(made)


@command("POST", "/v1/attempt/deferred/state", KeyScope.RUN, status=202)
async def defer_state(office: Office, asked: NewState) -> DeferredGiven:
    """Keep a value for the task, or forget one, when this run has succeeded."""
    speech = await _speech(office, asked, _deferred)
    if asked.forget:
        return _deferred(await talking.defer_forgetting(speech, asked.key))
    return _deferred(await talking.defer_state(speech, asked.key, asked.value))


@command("POST", "/v1/attempt/deferred/seen", KeyScope.RUN, status=202)
async def defer_seen(office: Office, asked: NewSeen) -> DeferredGiven:
    """Count items as seen once more when this run has succeeded."""
    speech = await _speech(office, asked, _deferred)
    items = [(one.provider, one.item, one.data) for one in asked.items]
    return _deferred(await talking.defer_seen(speech, items))


@command("POST", "/v1/attempt/deferred/messages", KeyScope.RUN, status=202)
async def defer_message(office: Office, asked: NewMail) -> DeferredGiven:
    """Send a message, or a mail, when this run has succeeded."""
    speech = await _speech(office, asked, _deferred)
    said = (asked.text, asked.to, asked.name, asked.mail())
    files = await _enclosed(office, speech, asked)
    return _deferred(await talking.defer_message(speech, *said, files))


@command("POST", "/v1/attempt/deferred/alerts", KeyScope.RUN, status=202)
async def defer_alert(office: Office, asked: NewAlert) -> DeferredGiven:
    """Alert people when this run has succeeded."""
    speech = await _speech(office, asked, _deferred)
    return _deferred(await talking.defer_alert(speech, asked.text, asked.name))


@command("GET", "/v1/attempt/effects/{name}", KeyScope.READ)
async def get_effect(office: Office, asked: OneEffect) -> EffectGiven:
    """Return what came of an effect of this run's slot, if it has happened."""
    speech = await _speech(office, asked)
    found = await speech.store.find_effect(speech.speaker, asked.name)
    if found is None:
        raise NotFound("effect", asked.name, "it has not happened yet")
    return _effect(found)


@command("PUT", "/v1/attempt/effects/{name}", KeyScope.RUN)
async def record_effect(office: Office, asked: NewEffect) -> EffectGiven:
    """Keep what came of something the program did itself, unless that is kept already."""
    speech = await _speech(office, asked, _effect)
    return _effect(await talking.record_effect(speech, asked.name, asked.result))
