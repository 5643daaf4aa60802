"""Requests of attempts: messages, questions, subtasks, deferred operations, effects.

Everything is validated here. The store checks in its transaction that the attempt is current. A
message goes to the outbox at once; a deferred operation is applied when the run succeeds.

Attachments stay where the program left them. The sender reads them again, and sends them only if
their hashes are unchanged.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from rota.errors import Conflict, Fenced, Invalid, NotPermitted, Unavailable
from rota.flow.define import task_state, tasks
from rota.flow.define.policies import resolve_agent
from rota.flow.define.runs import encode_payload
from rota.model.attempt_requests import (
    AttemptRef,
    DeferredKind,
    DeferredOperation,
    DeferredResult,
    Effect,
)
from rota.model.attempts import WaitingForAnswer
from rota.model.audit import AttemptIdentity
from rota.model.json import to_json
from rota.model.notifications import Attachment
from rota.model.runs import Run, RunSource, RunState
from rota.model.settlement import NewDelivery
from rota.model.tasks import Task, TaskKind
from rota.model.text import CONTROLS, INVISIBLE, clean
from rota.ports.agent import AgentRegistry
from rota.ports.host import ArtifactStore, OpenArtifact
from rota.rules import task_spec
from rota.rules.approvals import APPROVE, DECISIONS, DENY, action_text
from rota.rules.effects import effect_key, effect_name, effect_slot
from rota.rules.messages import MAIL, mail_fields, original_in
from rota.rules.permissions import Caller, check_main
from rota.rules.queue import new_run
from rota.rules.task_spec import AGENT_FIELDS
from rota.store import attempt_requests as store_attempt_requests
from rota.store.attempt_requests import defer_operations, find_effect
from rota.store.store import Store
from rota.store.tasks import get_state, get_tasks
from rota.store.views import get_run
from rota.store.workers import get_open_runs

MAX_MESSAGE = 64 * 1024
MAX_QUESTION = 16 * 1024
MIN_WAIT = timedelta(minutes=1)
DEFAULT_WAIT = timedelta(hours=24)
MAX_WAIT = timedelta(days=30)
DEEPEST_SUBTASK = 4
"""Maximum number of runs between a subtask and the first run."""
HANDED_DOWN = ("agent", "command", *AGENT_FIELDS, *task_spec.SITE_FIELDS, *task_spec.LIMIT_FIELDS)
"""What a subtask inherits from its parent, in particular its isolation."""
OF_A_SCRIPT = (*task_spec.SITE_FIELDS, *task_spec.LIMIT_FIELDS)
NOWHERE = "log:"
"""Target of alerts for a task without a delivery target."""
_TARGET = re.compile(rf"[A-Za-z0-9_]+:[^{CONTROLS}{INVISIBLE}]{{0,200}}")


class MailInput(NamedTuple):
    """The mail fields of a message."""

    subject: str = ""
    format: str = ""


NO_MAIL = MailInput()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeferredOutcome:
    """The outcome of an operation, with the effect if it was done before."""

    put: DeferredResult
    name: str | None = None
    effect: Effect | None = None
    warning: str | None = None


Telling: TypeAlias = Callable[[Store, Any], Awaitable[object]]
"""Creates the answer to a request from the result of its change."""


def _keep_nothing(_telling: Telling) -> None:
    """Leave storing the answer to the caller."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRequestContext:
    """An attempt with everything that its requests need."""

    store: Store
    caller: Caller
    held: AttemptIdentity
    run: Run
    task: Task
    speaker: AttemptRef
    channels: Sequence[str] = ()
    """The available channels; empty if unknown."""
    keep: Callable[[Telling], None] = _keep_nothing
    """Stores the answer in the transaction of the change."""


async def load_attempt_context(
    store: Store,
    caller: Caller,
    held: AttemptIdentity,
    channels: Sequence[str] = (),
    keep: Callable[[Telling], None] = _keep_nothing,
) -> AttemptRequestContext:
    """Load the context of an attempt; raise Fenced if it is no longer current."""
    run = await store.read(get_run, held.run_id)
    tasks = [] if run is None else await store.read(get_tasks, [run.task_id])
    holds = run is not None and (run.state, run.epoch) == (RunState.RUNNING, held.epoch)
    if run is None or not tasks or not holds:
        raise Fenced(held.run_id, held.epoch)
    speaker = AttemptRef(
        run_id=run.id,
        epoch=held.epoch,
        task_id=run.task_id,
        space_id=tasks[0].space_id,
        slot=effect_slot(run),
    )
    return AttemptRequestContext(
        store=store, caller=caller, held=held, run=run, task=tasks[0], speaker=speaker,
        channels=channels, keep=keep,
    )  # fmt: skip


# immediate requests


async def send_message(
    speech: AttemptRequestContext,
    text: str,
    to: str | None,
    name: str | None,
    files: tuple[Attachment, ...] = (),
) -> tuple[Effect, str | None]:
    """Queue a message once; a repeated one returns the first outcome.

    Also returns a warning if the message cannot be sent.
    """
    delivery, name = _message(speech, text, _target(speech, to), name, NO_MAIL, files)
    warning = warning_of(speech, delivery)

    async def sent(_store: Store, done: Effect) -> tuple[Effect, str | None]:
        return done, warning

    speech.keep(sent)
    return await speech.store.write(
        store_attempt_requests.record_effect, speech.speaker, name, "{}", delivery
    ), warning


async def record_effect(speech: AttemptRequestContext, name: str, result: object) -> Effect:
    """Store the result of an action of the program, unless one is stored already."""
    text = task_state.encode("result", result)

    async def recorded(_store: Store, done: Effect) -> Effect:
        return done

    speech.keep(recorded)
    return await speech.store.write(
        store_attempt_requests.record_effect, speech.speaker, name, text
    )


async def ask_user(
    speech: AttemptRequestContext,
    question: str,
    *,
    context: str = "",
    options: Sequence[str] = (),
    expires_in: timedelta | None = None,
    default: str | None = None,
    action: object = None,
) -> WaitingForAnswer:
    """Store a question; the run waits for the answer when the program has ended."""
    wait = DEFAULT_WAIT if expires_in is None else expires_in
    if not MIN_WAIT <= wait <= MAX_WAIT:
        raise Invalid("expires_in", wait, "give a duration from 1m to 30d")
    shown = [clean(option) for option in options]
    if action is not None:
        if shown and tuple(shown) != DECISIONS:
            raise Invalid("options", ", ".join(shown), f"an approval has {', '.join(DECISIONS)}")
        shown = list(DECISIONS)
        if default == APPROVE:
            raise Invalid(
                "default", default, f"an approval cannot be the default: use {DENY}, or none"
            )
    if not all(shown) or len(set(shown)) != len(shown):
        raise Invalid("options", ", ".join(options), "give each option once, and no empty one")
    if default is not None and shown and default not in shown:
        raise Invalid("default", default, f"choose one of: {', '.join(shown)}")
    asked = WaitingForAnswer(
        question=_words("question", question),
        context=clean(context)[:MAX_QUESTION],
        options=tuple(shown),
        expires_in=wait,
        default=None if default is None else _words("default", default),
        action=None if action is None else _action(speech, action),
    )
    data = json.dumps(to_json(asked), ensure_ascii=False)

    async def noted(_store: Store, _puts: object) -> WaitingForAnswer:
        return asked

    speech.keep(noted)
    await speech.store.write(
        defer_operations, speech.speaker, [DeferredOperation(kind=DeferredKind.QUESTION, data=data)]
    )
    return asked


def _words(field: str, text: str) -> str:
    shown = clean(text).strip()
    if not 0 < len(shown) <= MAX_QUESTION:
        raise Invalid(field, text, f"needs 1 to {MAX_QUESTION} visible characters")
    return shown


def _action(speech: AttemptRequestContext, action: object) -> str:
    run, task = speech.run, speech.task
    return action_text(action, run=run.id, attempt=run.epoch, task=task.name, space=task.space)


# deferred requests


async def defer_state(speech: AttemptRequestContext, key: str, value: object) -> DeferredOutcome:
    """Store a value for the task when the run succeeds."""
    task_state.check_word("key", key, task_state.LONGEST_KEY)
    text = task_state.encode("value", value)
    if await speech.store.read(get_state, speech.task.id, key) is None:
        await task_state.check_room(speech.store, speech.task.id, key)
    record = {"key": key, "value": text, "who": speech.caller.name}
    return await _defer(speech, DeferredOperation(kind=DeferredKind.STATE, data=json.dumps(record)))


async def defer_forgetting(speech: AttemptRequestContext, key: str) -> DeferredOutcome:
    """Delete a value of the task when the run succeeds."""
    task_state.check_word("key", key, task_state.LONGEST_KEY)
    data = json.dumps({"key": key})
    return await _defer(speech, DeferredOperation(kind=DeferredKind.FORGET, data=data))


async def defer_seen(
    speech: AttemptRequestContext, items: Sequence[tuple[str, str, object]]
) -> DeferredOutcome:
    """Mark items as seen when the run succeeds."""
    data = json.dumps({"items": task_state.seen_rows(items)})
    name = effect_name("seen", data)
    return await _defer(speech, DeferredOperation(kind=DeferredKind.SEEN, data=data, name=name))


async def defer_message(
    speech: AttemptRequestContext,
    text: str,
    to: str | None,
    name: str | None,
    mail: MailInput = NO_MAIL,
    files: tuple[Attachment, ...] = (),
) -> DeferredOutcome:
    """Send a message when the run succeeds."""
    return await _defer_to(speech, text, _target(speech, to), name, mail, files)


async def _defer_to(
    speech: AttemptRequestContext,
    text: str,
    target: str,
    name: str | None,
    mail: MailInput = NO_MAIL,
    files: tuple[Attachment, ...] = (),
) -> DeferredOutcome:
    delivery, name = _message(speech, text, target, name, mail, files)
    record = {
        "slot": speech.speaker.slot,
        "to": f"{delivery.channel}:{delivery.target}",
        "delivery": to_json(delivery),
    }
    data = json.dumps(record, ensure_ascii=False)
    operation = DeferredOperation(kind=DeferredKind.MESSAGE, data=data, name=name)
    return await _defer(speech, operation, warning_of(speech, delivery, mail))


def warning_of(
    speech: AttemptRequestContext, delivery: NewDelivery, mail: MailInput = NO_MAIL
) -> str | None:
    """Return why a message cannot be sent, or which mail fields are dropped."""
    if not _leads(speech, f"{delivery.channel}:"):
        known = ", ".join(speech.channels)
        return f"there is no channel {delivery.channel!r}: it will not be sent; use {known}"
    if delivery.mail is not None or mail == NO_MAIL:
        return None
    return f"{delivery.channel} does not support mail: the text is sent without subject and format"


async def defer_alert(
    speech: AttemptRequestContext, text: str, name: str | None
) -> DeferredOutcome:
    """Send an alert when the run succeeds, to the target of the task or its thread."""
    places = (speech.task.policy.deliver_to, _thread(speech))
    to = next((place for place in places if place and _leads(speech, place)), NOWHERE)
    return await _defer_to(speech, text, to, name or effect_name("alert", text))


async def spawn_subtask(
    speech: AttemptRequestContext,
    agents: AgentRegistry,
    instructions: str,
    *,
    name: str | None = None,
    priority: int | None = None,
    payload: object = None,
) -> DeferredOutcome:
    """Queue work for an agent when the run succeeds, with the same pool, thread and isolation."""
    check_main(speech.caller)
    run, store = speech.run, speech.store
    facts = await store.read(get_open_runs, [run.id])
    depth = facts[0].depth + 1 if facts else 1
    if depth > DEEPEST_SUBTASK:
        message = f"subtasks can be nested {DEEPEST_SUBTASK} deep: do the work in this run"
        raise Conflict(message)
    if not instructions.strip():
        raise Invalid("instructions", instructions, "describe the work")
    owner = await tasks.task_for(store, speech.caller, TaskKind.AGENT, speech.task.space)
    spec = {**_handed_down(speech), "instructions": instructions}
    errand = resolve_agent(agents, TaskKind.AGENT, spec)
    if payload is not None:
        errand["payload"] = payload
    name = name or effect_name("subtask", instructions, payload)
    template = new_run(
        owner.id,
        owner.space_id,
        owner.route,
        owner.policy,
        RunSource.AFTER,
        store.now(),
        priority=run.priority if priority is None else priority,
        upstream_id=run.id,
        depth=depth,
        thread=_thread(speech),
        in_conversation=_thread(speech) is not None,
    )._replace(pool=run.pool)
    record = {
        "slot": speech.speaker.slot,
        "run": template._asdict(),
        "payload": encode_payload(errand),
        "key": f"subtask:{run.id}:{effect_name(name)[-32:]}",
    }
    data = json.dumps(record, ensure_ascii=False)
    return await _defer(speech, DeferredOperation(kind=DeferredKind.SUBTASK, data=data, name=name))


def _handed_down(speech: AttemptRequestContext) -> dict[str, Any]:
    """Return the spec that a subtask inherits; a one-off run has its own."""
    spec: Mapping[str, Any] = speech.task.spec
    if (
        speech.task.origin == task_spec.ONE_OFF_ORIGIN
        and speech.task.name in task_spec.ONE_OFF_NAMES.values()
    ):
        brought = json.loads(speech.run.payload)
        spec = {**spec, **brought} if isinstance(brought, dict) else spec
    names = HANDED_DOWN if speech.task.kind is TaskKind.AGENT else OF_A_SCRIPT
    return {name: spec[name] for name in names if spec.get(name) is not None}


async def _defer(
    speech: AttemptRequestContext, operation: DeferredOperation, warning: str | None = None
) -> DeferredOutcome:
    async def deferral(store: Store, puts: Sequence[DeferredResult]) -> DeferredOutcome:
        effect = None
        if puts[0] is DeferredResult.ALREADY_DONE and operation.name is not None:
            effect = await store.read(find_effect, speech.speaker, operation.name)
        return DeferredOutcome(put=puts[0], name=operation.name, effect=effect, warning=warning)

    speech.keep(deferral)
    return await deferral(
        speech.store, await speech.store.write(defer_operations, speech.speaker, [operation])
    )


def _message(
    speech: AttemptRequestContext,
    text: str,
    target: str,
    name: str | None,
    mail: MailInput,
    files: tuple[Attachment, ...],
) -> tuple[NewDelivery, str]:
    if not 0 < len(text.encode()) <= MAX_MESSAGE:
        raise Invalid("text", text, f"needs 1 to {MAX_MESSAGE} bytes")
    channel, _, rest = target.partition(":")
    enclosed = [[each.name, each.sha256] for each in files]
    named = name or effect_name("message", target, text, *enclosed)
    speaker = speech.speaker
    key = effect_key(speaker.space_id, speaker.task_id, speaker.slot, named)
    original = original_in(json.loads(speech.run.payload)) if channel == MAIL else None
    delivery = NewDelivery(
        space_id=speaker.space_id,
        channel=channel,
        target=rest,
        body=text,
        dedupe_key=key,
        mail=mail_fields(mail.subject, mail.format, original) if channel == MAIL else None,
        attachments=files,
    )
    return delivery, named


def _target(speech: AttemptRequestContext, to: str | None) -> str:
    """Return the target of a message: the thread, or the target of the task.

    The first of the two that a channel serves takes precedence. Only `main` can send to other
    targets.
    """
    own = [target for target in (_thread(speech), speech.task.policy.deliver_to) if target]
    if to is None:
        if not own:
            advice = "the run has no thread and its task no target: name a channel:target"
            raise Invalid("to", "", advice)
        to = next((place for place in own if _leads(speech, place)), own[0])
    if _TARGET.fullmatch(to) is None:
        raise Invalid("to", to, "write it as channel:target")
    if to not in own:
        try:
            check_main(speech.caller)
        except NotPermitted:
            where = " or ".join(own) or "nowhere"
            message = f"{speech.caller.name} may not send to {to}: it may send to {where}"
            raise NotPermitted(message) from None
    return to


def _leads(speech: AttemptRequestContext, place: str) -> bool:
    return not speech.channels or place.partition(":")[0] in speech.channels


def _thread(speech: AttemptRequestContext) -> str | None:
    return speech.held.thread or speech.task.thread


MAX_FILES = 10
LARGEST = 25 * 1024 * 1024
"""Total size of the files of a message."""
CHUNK = 1024 * 1024


async def attach_files(
    artifacts: ArtifactStore | None, space: str, run_id: int, names: Sequence[str]
) -> tuple[Attachment, ...]:
    """Return the attachments with these names, in their order."""
    if not names:
        return ()
    if len(names) > MAX_FILES or len(set(names)) != len(names):
        raise Invalid("files", ", ".join(names), f"name at most {MAX_FILES} files, each once")
    if artifacts is None:
        raise Unavailable(
            "files can be attached only on the machine of the run: use the daemon of its home"
        )
    return await asyncio.to_thread(_enclosed, artifacts, space, run_id, names)


def _enclosed(
    artifacts: ArtifactStore, space: str, run_id: int, names: Sequence[str]
) -> tuple[Attachment, ...]:
    found: list[Attachment] = []
    left = LARGEST
    for name in names:
        enclosed = _read(artifacts.open(space, run_id, name), left)
        left -= enclosed.size
        found.append(enclosed)
    return tuple(found)


def _read(opened: OpenArtifact, most: int) -> Attachment:
    """Read a file that its program may still be writing, up to the limit."""
    name, digest, size = opened.artifact.name, hashlib.sha256(), 0
    with opened.file as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            if size > most:
                advice = f"the files of a message have {LARGEST >> 20} MiB together at most"
                raise Invalid("files", name, advice)
            digest.update(chunk)
    return Attachment(name=name, size=size, sha256=digest.hexdigest())
