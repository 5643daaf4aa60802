"""What an attempt asks for its own run: messages, questions, subtasks, deferred writes.

Nobody else may: to any other caller, and for any other run, there is no such thing.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, Field, StringConstraints

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import (
    PLAIN,
    UNSEEN,
    WHOLE,
    Id,
    Json,
    Length,
    Text,
    TextFormat,
    length,
)
from rota.commands.responses import From, RequestModel, ResponseModel
from rota.commands.runs import MAX_NAME
from rota.commands.task_state import Name, SeenItemInput
from rota.errors import NotFound
from rota.flow.define import attempt_requests, task_state
from rota.flow.define.attempt_requests import MAX_FILES, attach_files
from rota.model.attempt_requests import DeferredResult, Effect
from rota.model.keys import KeyScope
from rota.model.notifications import Attachment
from rota.model.tasks import MAX_PRIORITY
from rota.rules.messages import MAX_SUBJECT
from rota.store import attempt_requests as store_attempt_requests
from rota.store.attempt_requests import defer_operations, find_effect

END_YOUR_TURN = (
    "Your question is noted. End your turn now, without doing anything else: the run waits, and "
    "goes on in this session with the answer."
)
EffectName = Annotated[
    str,
    TextFormat(
        rf"[^{UNSEEN}\x20\xa0/]{{1,200}}",
        "write 1 to 200 characters without spaces or slashes, such as invoice-17",
    ),
]
Target = Annotated[str, StringConstraints(min_length=1, max_length=256), PLAIN]
Said = Annotated[Text, StringConstraints(min_length=1, max_length=attempt_requests.MAX_MESSAGE)]
Option = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
Subject = Annotated[Text, StringConstraints(max_length=MAX_SUBJECT)]
Format = Annotated[Text, StringConstraints(max_length=40)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY), WHOLE]


class AttemptRequestModel(RequestModel):
    """What an attempt asks for; its run is its own, and need not be named."""

    run: Id | None = None


class SendMessage(AttemptRequestModel):
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
        max_length=MAX_FILES,
        description="Files that go with it, by their paths below $ROTA_ARTIFACTS.",
    )


class SendMail(SendMessage):
    """A message, or a mail with its subject and a format, plain or html."""

    subject: Subject = ""
    format: Format = ""

    def mail(self) -> attempt_requests.MailInput:
        """Return what it is to have as a mail."""
        return attempt_requests.MailInput(self.subject, self.format)


class RaiseAlert(AttemptRequestModel):
    """Something people should know of, sent where the results of the task go."""

    text: Said
    name: EffectName | None = None


class AskUser(AttemptRequestModel):
    """What a person is to decide; with an action, whether to approve exactly that."""

    question: Annotated[
        Text, StringConstraints(min_length=1, max_length=attempt_requests.MAX_QUESTION)
    ]
    context: Annotated[Text, StringConstraints(max_length=attempt_requests.MAX_QUESTION)] = ""
    options: list[Option] = Field(default_factory=list, max_length=20)
    expires_in: Length | None = None
    default: Option | None = Field(
        default=None, description="The answer if nobody gives one in time; else the run expires."
    )
    action: Json = Field(
        default=None, description="Shown whole, and bound by its hash: approve or deny."
    )


class SpawnSubtask(AttemptRequestModel):
    """Work for an agent after this run, in its pool, its thread and its walls; of `main` alone."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    payload: Json = None
    priority: Priority | None = None
    name: EffectName | None = None


class DeferState(AttemptRequestModel):
    """A value for the task to keep, or a key to forget."""

    key: Name
    value: Json = None
    forget: bool = False


class DeferSeen(AttemptRequestModel):
    """Items to be marked, each once."""

    items: list[SeenItemInput] = Field(min_length=1, max_length=task_state.MOST_ITEMS)


class EffectSelector(AttemptRequestModel):
    """One effect of the run's slot."""

    name: EffectName


class RecordEffect(EffectSelector):
    """What came of something the program did itself."""

    result: Json = None


class EffectResponse(ResponseModel):
    """Something done once; `again` says that it had been done before, with this result."""

    name: str
    result: Annotated[Json, From(read=json.loads)]
    done_at: Annotated[datetime, From("at")]
    by_run: Annotated[int, From("run_id")]
    again: bool
    warning: str | None = None


class DeferredResponse(ResponseModel):
    """What happens when the run has succeeded; `effect` is there if it has happened already."""

    put: DeferredResult
    name: str | None
    effect: EffectResponse | None
    warning: str | None


class QuestionAcceptedResponse(ResponseModel):
    """That the run will wait, and what the attempt is to do now."""

    asked: bool = True
    expires_in_seconds: Annotated[float, From("expires_in", timedelta.total_seconds)]
    action: str | None
    next: str = END_YOUR_TURN


def _sent(done: tuple[Effect, str | None]) -> EffectResponse:
    return EffectResponse.from_model(done[0], warning=done[1])


async def _speech(
    office: RequestContext,
    asked: AttemptRequestModel,
    shape: Callable[[Any], BaseModel] | None = None,
) -> attempt_requests.AttemptRequestContext:
    """Return what an attempt needs to speak; `shape` makes the answer of what is told."""
    held = office.caller.attempt
    if held is None or asked.run not in {None, held.run_id}:
        raise NotFound("run", asked.run or "of yours", "an attempt speaks for its own run alone")

    told: list[attempt_requests.Telling] = []

    async def shaped(within: RequestContext, done: object) -> BaseModel | None:
        return None if shape is None else shape(await told[-1](within.store, done))

    if shape is not None:
        office.keep_seen(shaped, defer_operations, store_attempt_requests.record_effect)
    return await attempt_requests.load_attempt_context(
        office.store, office.caller, held, office.app.plugins.channel_names, told.append
    )


@command("POST", "/v1/attempt/messages", KeyScope.RUN, status=201)
async def send_message(office: RequestContext, asked: SendMessage) -> EffectResponse:
    """Send a message at once, and once: a retried run is told that it was sent."""
    speech = await _speech(office, asked, _sent)
    said = (asked.text, asked.to, asked.name)
    files = await _enclosed(office, speech, asked)
    return _sent(await attempt_requests.send_message(speech, *said, files))


async def _enclosed(
    office: RequestContext, speech: attempt_requests.AttemptRequestContext, asked: SendMessage
) -> tuple[Attachment, ...]:
    return await attach_files(office.app.artifacts, speech.task.space, speech.run.id, asked.files)


@command("POST", "/v1/attempt/questions", KeyScope.RUN, status=201)
async def ask_user(office: RequestContext, asked: AskUser) -> QuestionAcceptedResponse:
    """Ask a person: when the attempt has ended its turn, its run waits for the answer."""
    speech = await _speech(office, asked, QuestionAcceptedResponse.from_model)
    wait = None if asked.expires_in is None else length(asked.expires_in, "expires_in")
    noted = await attempt_requests.ask_user(
        speech,
        asked.question,
        context=asked.context,
        options=asked.options,
        expires_in=wait,
        default=asked.default,
        action=asked.action,
    )
    return QuestionAcceptedResponse.from_model(noted)


@command("POST", "/v1/attempt/subtasks", KeyScope.RUN, status=202)
async def spawn_subtask(office: RequestContext, asked: SpawnSubtask) -> DeferredResponse:
    """Queue work for an agent when this run has succeeded."""
    speech = await _speech(office, asked, DeferredResponse.from_model)
    made = await attempt_requests.spawn_subtask(
        speech,
        office.app.plugins.agents,
        asked.instructions,
        name=asked.name,
        priority=asked.priority,
        payload=asked.payload,
    )
    return DeferredResponse.from_model(made)


@command("POST", "/v1/attempt/deferred/state", KeyScope.RUN, status=202)
async def defer_state(office: RequestContext, asked: DeferState) -> DeferredResponse:
    """Keep a value for the task, or forget one, when this run has succeeded."""
    speech = await _speech(office, asked, DeferredResponse.from_model)
    if asked.forget:
        return DeferredResponse.from_model(
            await attempt_requests.defer_forgetting(speech, asked.key)
        )
    return DeferredResponse.from_model(
        await attempt_requests.defer_state(speech, asked.key, asked.value)
    )


@command("POST", "/v1/attempt/deferred/seen", KeyScope.RUN, status=202)
async def defer_seen(office: RequestContext, asked: DeferSeen) -> DeferredResponse:
    """Count items as seen once more when this run has succeeded."""
    speech = await _speech(office, asked, DeferredResponse.from_model)
    items = [(one.provider, one.item, one.data) for one in asked.items]
    return DeferredResponse.from_model(await attempt_requests.defer_seen(speech, items))


@command("POST", "/v1/attempt/deferred/messages", KeyScope.RUN, status=202)
async def defer_message(office: RequestContext, asked: SendMail) -> DeferredResponse:
    """Send a message, or a mail, when this run has succeeded."""
    speech = await _speech(office, asked, DeferredResponse.from_model)
    said = (asked.text, asked.to, asked.name, asked.mail())
    files = await _enclosed(office, speech, asked)
    return DeferredResponse.from_model(await attempt_requests.defer_message(speech, *said, files))


@command("POST", "/v1/attempt/deferred/alerts", KeyScope.RUN, status=202)
async def defer_alert(office: RequestContext, asked: RaiseAlert) -> DeferredResponse:
    """Alert people when this run has succeeded."""
    speech = await _speech(office, asked, DeferredResponse.from_model)
    return DeferredResponse.from_model(
        await attempt_requests.defer_alert(speech, asked.text, asked.name)
    )


@command("GET", "/v1/attempt/effects/{name}", KeyScope.READ)
async def get_effect(office: RequestContext, asked: EffectSelector) -> EffectResponse:
    """Return what came of an effect of this run's slot, if it has happened."""
    speech = await _speech(office, asked)
    found = await speech.store.read(find_effect, speech.speaker, asked.name)
    if found is None:
        raise NotFound("effect", asked.name, "it has not happened yet")
    return EffectResponse.from_model(found)


@command("PUT", "/v1/attempt/effects/{name}", KeyScope.RUN)
async def record_effect(office: RequestContext, asked: RecordEffect) -> EffectResponse:
    """Keep what came of something the program did itself, unless that is kept already."""
    speech = await _speech(office, asked, EffectResponse.from_model)
    return EffectResponse.from_model(
        await attempt_requests.record_effect(speech, asked.name, asked.result)
    )
