"""Requests of an attempt for its own run: messages, questions, subtasks, deferred operations.

Other callers, and requests for other runs, get `not_found`.
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
    UNPRINTABLE,
    WHOLE,
    Id,
    Json,
    Length,
    Text,
    TextFormat,
    parse_length,
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
    "Your question is recorded. End your turn now, without doing anything else: the run waits and "
    "continues in this session with the answer."
)
EffectName = Annotated[
    str,
    TextFormat(
        rf"[^{UNPRINTABLE}\x20\xa0/]{{1,200}}",
        "use 1 to 200 characters without spaces or slashes, such as invoice-17",
    ),
]
Target = Annotated[str, StringConstraints(min_length=1, max_length=256), PLAIN]
MessageText = Annotated[
    Text, StringConstraints(min_length=1, max_length=attempt_requests.MAX_MESSAGE)
]
Option = Annotated[str, StringConstraints(min_length=1, max_length=200), PLAIN]
Subject = Annotated[Text, StringConstraints(max_length=MAX_SUBJECT)]
Format = Annotated[Text, StringConstraints(max_length=40)]
FileName = Annotated[str, StringConstraints(min_length=1, max_length=MAX_NAME)]
Priority = Annotated[int, Field(ge=-MAX_PRIORITY, le=MAX_PRIORITY), WHOLE]


class AttemptRequestModel(RequestModel):
    """A request of an attempt; its own run need not be named."""

    run: Id | None = None


class SendMessage(AttemptRequestModel):
    """A message to the run's thread, to its task's target, or to another target."""

    text: MessageText
    to: Target | None = None
    name: EffectName | None = Field(
        default=None,
        description="Name of the effect: under one name it happens once in a slot, "
        "however often the run is retried. Without a name, equal texts are sent once.",
    )
    files: list[FileName] = Field(
        default_factory=list,
        max_length=MAX_FILES,
        description="Files to attach, by their paths below $ROTA_ARTIFACTS.",
    )


class SendMail(SendMessage):
    """A message, or a mail with its subject and a format, plain or html."""

    subject: Subject = ""
    format: Format = ""

    def mail(self) -> attempt_requests.MailInput:
        """Return the fields of the mail."""
        return attempt_requests.MailInput(self.subject, self.format)


class RaiseAlert(AttemptRequestModel):
    """An alert, sent to the target of the task's results."""

    text: MessageText
    name: EffectName | None = None


class AskUser(AttemptRequestModel):
    """A question to a person; with an action, the approval of exactly that action."""

    question: Annotated[
        Text, StringConstraints(min_length=1, max_length=attempt_requests.MAX_QUESTION)
    ]
    context: Annotated[Text, StringConstraints(max_length=attempt_requests.MAX_QUESTION)] = ""
    options: list[Option] = Field(default_factory=list, max_length=20)
    expires_in: Length | None = None
    default: Option | None = Field(
        default=None, description="Answer if nobody answers in time; without it the run expires."
    )
    action: Json = Field(
        default=None,
        description="Action to approve or deny, shown completely and identified by its hash.",
    )


class SpawnSubtask(AttemptRequestModel):
    """A run of an agent after this one, in its pool, thread and site; for `main` only."""

    instructions: Annotated[Text, StringConstraints(min_length=1)]
    payload: Json = None
    priority: Priority | None = None
    name: EffectName | None = None


class DeferState(AttemptRequestModel):
    """A value to store in the task state, or a key to delete."""

    key: Name
    value: Json = None
    forget: bool = False


class DeferSeen(AttemptRequestModel):
    """Items to mark as seen, each once."""

    items: list[SeenItemInput] = Field(min_length=1, max_length=task_state.MOST_ITEMS)


class EffectSelector(AttemptRequestModel):
    """An effect of the run's slot."""

    name: EffectName


class RecordEffect(EffectSelector):
    """The result of an action that the program executed itself."""

    result: Json = None


class EffectResponse(ResponseModel):
    """An effect; `again` means that it happened before, with this result."""

    name: str
    result: Annotated[Json, From(read=json.loads)]
    done_at: Annotated[datetime, From("at")]
    by_run: Annotated[int, From("run_id")]
    again: bool
    warning: str | None = None


class DeferredResponse(ResponseModel):
    """A deferred operation; `effect` is set if it has happened already."""

    put: DeferredResult
    name: str | None
    effect: EffectResponse | None
    warning: str | None


class QuestionAcceptedResponse(ResponseModel):
    """Confirmation of a question, and what the attempt must do next."""

    asked: bool = True
    expires_in_seconds: Annotated[float, From("expires_in", timedelta.total_seconds)]
    action: str | None
    next: str = END_YOUR_TURN


def _sent_effect(done: tuple[Effect, str | None]) -> EffectResponse:
    return EffectResponse.from_model(done[0], warning=done[1])


async def _attempt_context(
    context: RequestContext,
    request: AttemptRequestModel,
    shape: Callable[[Any], BaseModel] | None = None,
) -> attempt_requests.AttemptRequestContext:
    """Return the context of an attempt's request; `shape` makes the response from its result."""
    identity = context.caller.attempt
    if identity is None or request.run not in {None, identity.run_id}:
        raise NotFound("run", request.run or "of yours", "an attempt can act only for its own run")

    results: list[attempt_requests.Telling] = []

    async def shaped(within: RequestContext, done: object) -> BaseModel | None:
        return None if shape is None else shape(await results[-1](within.store, done))

    if shape is not None:
        context.record_with(shaped, defer_operations, store_attempt_requests.record_effect)
    return await attempt_requests.load_attempt_context(
        context.store, context.caller, identity, context.app.plugins.channel_names, results.append
    )


@command("POST", "/v1/attempt/messages", KeyScope.RUN, status=201)
async def send_message(context: RequestContext, request: SendMessage) -> EffectResponse:
    """Send a message now, once: a retried run gets the result of the first time."""
    attempt = await _attempt_context(context, request, _sent_effect)
    fields = (request.text, request.to, request.name)
    files = await _attachments(context, attempt, request)
    return _sent_effect(await attempt_requests.send_message(attempt, *fields, files))


async def _attachments(
    context: RequestContext, attempt: attempt_requests.AttemptRequestContext, request: SendMessage
) -> tuple[Attachment, ...]:
    return await attach_files(
        context.app.artifacts, attempt.task.space, attempt.run.id, request.files
    )


@command("POST", "/v1/attempt/questions", KeyScope.RUN, status=201)
async def ask_user(context: RequestContext, request: AskUser) -> QuestionAcceptedResponse:
    """Ask a person: after the attempt's turn the run waits for the answer."""
    attempt = await _attempt_context(context, request, QuestionAcceptedResponse.from_model)
    wait = None if request.expires_in is None else parse_length(request.expires_in, "expires_in")
    question = await attempt_requests.ask_user(
        attempt,
        request.question,
        context=request.context,
        options=request.options,
        expires_in=wait,
        default=request.default,
        action=request.action,
    )
    return QuestionAcceptedResponse.from_model(question)


@command("POST", "/v1/attempt/subtasks", KeyScope.RUN, status=202)
async def spawn_subtask(context: RequestContext, request: SpawnSubtask) -> DeferredResponse:
    """Queue a run of an agent if this run succeeds."""
    attempt = await _attempt_context(context, request, DeferredResponse.from_model)
    made = await attempt_requests.spawn_subtask(
        attempt,
        context.app.plugins.agents,
        request.instructions,
        name=request.name,
        priority=request.priority,
        payload=request.payload,
    )
    return DeferredResponse.from_model(made)


@command("POST", "/v1/attempt/deferred/state", KeyScope.RUN, status=202)
async def defer_state(context: RequestContext, request: DeferState) -> DeferredResponse:
    """Store or delete a value of the task state if this run succeeds."""
    attempt = await _attempt_context(context, request, DeferredResponse.from_model)
    if request.forget:
        return DeferredResponse.from_model(
            await attempt_requests.defer_forgetting(attempt, request.key)
        )
    return DeferredResponse.from_model(
        await attempt_requests.defer_state(attempt, request.key, request.value)
    )


@command("POST", "/v1/attempt/deferred/seen", KeyScope.RUN, status=202)
async def defer_seen(context: RequestContext, request: DeferSeen) -> DeferredResponse:
    """Mark items as seen if this run succeeds."""
    attempt = await _attempt_context(context, request, DeferredResponse.from_model)
    items = [(one.provider, one.item, one.data) for one in request.items]
    return DeferredResponse.from_model(await attempt_requests.defer_seen(attempt, items))


@command("POST", "/v1/attempt/deferred/messages", KeyScope.RUN, status=202)
async def defer_message(context: RequestContext, request: SendMail) -> DeferredResponse:
    """Send a message or mail if this run succeeds."""
    attempt = await _attempt_context(context, request, DeferredResponse.from_model)
    fields = (request.text, request.to, request.name, request.mail())
    files = await _attachments(context, attempt, request)
    return DeferredResponse.from_model(
        await attempt_requests.defer_message(attempt, *fields, files)
    )


@command("POST", "/v1/attempt/deferred/alerts", KeyScope.RUN, status=202)
async def defer_alert(context: RequestContext, request: RaiseAlert) -> DeferredResponse:
    """Send an alert if this run succeeds."""
    attempt = await _attempt_context(context, request, DeferredResponse.from_model)
    return DeferredResponse.from_model(
        await attempt_requests.defer_alert(attempt, request.text, request.name)
    )


@command("GET", "/v1/attempt/effects/{name}", KeyScope.READ)
async def get_effect(context: RequestContext, request: EffectSelector) -> EffectResponse:
    """Return the result of an effect of this run's slot."""
    attempt = await _attempt_context(context, request)
    found = await attempt.store.read(find_effect, attempt.speaker, request.name)
    if found is None:
        raise NotFound("effect", request.name, "it has not happened yet")
    return EffectResponse.from_model(found)


@command("PUT", "/v1/attempt/effects/{name}", KeyScope.RUN)
async def record_effect(context: RequestContext, request: RecordEffect) -> EffectResponse:
    """Record the result of an effect that the program executed itself, once."""
    attempt = await _attempt_context(context, request, EffectResponse.from_model)
    return EffectResponse.from_model(
        await attempt_requests.record_effect(attempt, request.name, request.result)
    )
