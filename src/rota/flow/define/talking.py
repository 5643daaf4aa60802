"""What an attempt may say for its own run: messages, questions, subtasks, deferred writes.

Everything is decided here and carried out by the store, which checks in the same transaction that
the run is still this attempt's. A message is in the outbox at once; what is deferred happens when
the run has succeeded, and never otherwise.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple, TypeAlias

from rota.errors import Conflict, Fenced, Invalid, NotPermitted
from rota.flow.define import adhoc, memory
from rota.flow.define.agents import with_agent
from rota.flow.define.runs import encode_payload
from rota.model.codec import to_json
from rota.model.deliveries import Enclosure
from rota.model.inside import Held
from rota.model.outcomes import Asked
from rota.model.runs import Run, Source
from rota.model.settlements import NewDelivery
from rota.model.states import RunState
from rota.model.talking import Deferred, DeferredKind, Effect, Put, Speaker
from rota.model.tasks import Task, TaskKind
from rota.model.texts import CONTROLS, INVISIBLE, clean
from rota.ports.agent import Agents
from rota.ports.store import Store
from rota.rules import sites
from rota.rules.approvals import APPROVE, DECISIONS, DENY, action_text
from rota.rules.effects import effect_key, effect_name, slot_of
from rota.rules.mail import MAIL, envelope, original_in
from rota.rules.permission import Caller, check_main
from rota.rules.queueing import new_run
from rota.rules.wishes import WISHES

LONGEST_MESSAGE = 64 * 1024
LONGEST_QUESTION = 16 * 1024
SHORTEST_WAIT = timedelta(minutes=1)
USUAL_WAIT = timedelta(hours=24)
LONGEST_WAIT = timedelta(days=30)
DEEPEST_SUBTASK = 4
"""How many runs may stand between a subtask and the run that began it all."""
HANDED_DOWN = ("agent", "command", *WISHES, *sites.FIELDS, *sites.BOUNDS)
"""What a subtask has from its parent, its walls above all."""
OF_A_SCRIPT = (*sites.FIELDS, *sites.BOUNDS)
NOWHERE = "log:"
"""Where an alert of a task goes that delivers nowhere."""
_TARGET = re.compile(rf"[A-Za-z0-9_]+:[^{CONTROLS}{INVISIBLE}]{{0,200}}")


class MailWish(NamedTuple):
    """What a message is to have as a mail."""

    subject: str = ""
    format: str = ""


NO_MAIL = MailWish()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferral:
    """What became of an operation, and the effect if it was done already."""

    put: Put
    name: str | None = None
    effect: Effect | None = None
    warning: str | None = None


Telling: TypeAlias = Callable[[Store, Any], Awaitable[object]]
"""Makes what an attempt is told of what its change has come to."""


def _keep_nothing(_telling: Telling) -> None:
    """Leave it to the caller what is kept of an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speech:
    """An attempt with all that is needed to speak for its run."""

    store: Store
    caller: Caller
    held: Held
    run: Run
    task: Task
    speaker: Speaker
    channels: tuple[str, ...] = ()
    """What messages can leave by; empty if nobody knows."""
    keep: Callable[[Telling], None] = _keep_nothing
    """Keeps what is told in the transaction of the change."""


async def speech_of(
    store: Store,
    caller: Caller,
    held: Held,
    channels: tuple[str, ...] = (),
    keep: Callable[[Telling], None] = _keep_nothing,
) -> Speech:
    """Return what an attempt needs to speak; Fenced where its run is no longer its own."""
    run = await store.get_run(held.run_id)
    tasks = [] if run is None else await store.get_tasks([run.task_id])
    holds = run is not None and (run.state, run.epoch) == (RunState.RUNNING, held.epoch)
    if run is None or not tasks or not holds:
        raise Fenced(held.run_id, held.epoch)
    speaker = Speaker(
        run_id=run.id,
        epoch=held.epoch,
        task_id=run.task_id,
        space_id=tasks[0].space_id,
        slot=slot_of(run),
    )
    return Speech(
        store=store, caller=caller, held=held, run=run, task=tasks[0], speaker=speaker,
        channels=channels, keep=keep,
    )  # fmt: skip


# at once


async def send_message(
    speech: Speech,
    text: str,
    to: str | None,
    name: str | None,
    files: tuple[Enclosure, ...] = (),
) -> tuple[Effect, str | None]:
    """Put a message into the outbox at once, once; a repeated one is told what became of it.

    With it comes a warning, if it will not leave the outbox.
    """
    delivery, name = _message(speech, text, _target(speech, to), name, NO_MAIL, files)
    warning = warning_of(speech, delivery)

    async def sent(_store: Store, done: Effect) -> tuple[Effect, str | None]:
        return done, warning

    speech.keep(sent)
    return await speech.store.do_once(speech.speaker, name, "{}", delivery), warning


async def record_effect(speech: Speech, name: str, result: object) -> Effect:
    """Keep what came of something the program did itself, unless that is kept already."""
    text = memory.encode("result", result)

    async def recorded(_store: Store, done: Effect) -> Effect:
        return done

    speech.keep(recorded)
    return await speech.store.do_once(speech.speaker, name, text)


async def ask_user(
    speech: Speech,
    question: str,
    *,
    context: str = "",
    options: Sequence[str] = (),
    expires_in: timedelta | None = None,
    default: str | None = None,
    action: object = None,
) -> Asked:
    """Note what the attempt asks; its run waits for the answer as soon as the program has ended."""
    wait = USUAL_WAIT if expires_in is None else expires_in
    if not SHORTEST_WAIT <= wait <= LONGEST_WAIT:
        raise Invalid("expires_in", wait, "give a length from 1m to 30d")
    shown = [clean(option) for option in options]
    if action is not None:
        if shown and tuple(shown) != DECISIONS:
            raise Invalid("options", ", ".join(shown), f"an approval has {', '.join(DECISIONS)}")
        shown = list(DECISIONS)
        if default == APPROVE:
            raise Invalid("default", default, f"silence is no approval: use {DENY}, or none")
    if not all(shown) or len(set(shown)) != len(shown):
        raise Invalid("options", ", ".join(options), "give each once, and none that is empty")
    if default is not None and shown and default not in shown:
        raise Invalid("default", default, f"choose one of: {', '.join(shown)}")
    asked = Asked(
        question=_words("question", question),
        context=clean(context)[:LONGEST_QUESTION],
        options=tuple(shown),
        expires_in=wait,
        default=None if default is None else _words("default", default),
        action=None if action is None else _action(speech, action),
    )
    data = json.dumps(to_json(asked), ensure_ascii=False)

    async def noted(_store: Store, _puts: object) -> Asked:
        return asked

    speech.keep(noted)
    await speech.store.defer(speech.speaker, [Deferred(kind=DeferredKind.QUESTION, data=data)])
    return asked


def _words(field: str, text: str) -> str:
    shown = clean(text).strip()
    if not 0 < len(shown) <= LONGEST_QUESTION:
        raise Invalid(field, text, f"needs 1 to {LONGEST_QUESTION} characters that can be seen")
    return shown


def _action(speech: Speech, action: object) -> str:
    run, task = speech.run, speech.task
    return action_text(action, run=run.id, attempt=run.epoch, task=task.name, space=task.space)


# when it has succeeded


async def defer_state(speech: Speech, key: str, value: object) -> Deferral:
    """Keep a value for the task when the run has succeeded."""
    memory.check_word("key", key, memory.LONGEST_KEY)
    text = memory.encode("value", value)
    if await speech.store.get_state(speech.task.id, key) is None:
        await memory.check_room(speech.store, speech.task.id, key)
    record = {"key": key, "value": text, "who": speech.caller.name}
    return await _defer(speech, Deferred(kind=DeferredKind.STATE, data=json.dumps(record)))


async def defer_forgetting(speech: Speech, key: str) -> Deferral:
    """Forget a value of the task when the run has succeeded."""
    memory.check_word("key", key, memory.LONGEST_KEY)
    data = json.dumps({"key": key})
    return await _defer(speech, Deferred(kind=DeferredKind.FORGET, data=data))


async def defer_seen(speech: Speech, items: Sequence[tuple[str, str, object]]) -> Deferral:
    """Count items as seen once more when the run has succeeded."""
    data = json.dumps({"items": memory.seen_rows(items)})
    name = effect_name("seen", data)
    return await _defer(speech, Deferred(kind=DeferredKind.SEEN, data=data, name=name))


async def defer_message(
    speech: Speech,
    text: str,
    to: str | None,
    name: str | None,
    mail: MailWish = NO_MAIL,
    files: tuple[Enclosure, ...] = (),
) -> Deferral:
    """Send a message when the run has succeeded."""
    return await _defer_to(speech, text, _target(speech, to), name, mail, files)


async def _defer_to(
    speech: Speech,
    text: str,
    target: str,
    name: str | None,
    mail: MailWish = NO_MAIL,
    files: tuple[Enclosure, ...] = (),
) -> Deferral:
    delivery, name = _message(speech, text, target, name, mail, files)
    record = {
        "slot": speech.speaker.slot,
        "to": f"{delivery.channel}:{delivery.target}",
        "delivery": to_json(delivery),
    }
    data = json.dumps(record, ensure_ascii=False)
    operation = Deferred(kind=DeferredKind.MESSAGE, data=data, name=name)
    return await _defer(speech, operation, warning_of(speech, delivery, mail))


def warning_of(speech: Speech, delivery: NewDelivery, mail: MailWish = NO_MAIL) -> str | None:
    """Return why a message will not be sent, or what is dropped of one that is no mail."""
    if not _leads(speech, f"{delivery.channel}:"):
        known = ", ".join(speech.channels)
        return f"there is no channel {delivery.channel!r}: it will not be sent; use {known}"
    if delivery.mail is not None or mail == NO_MAIL:
        return None
    return f"{delivery.channel} takes no mail: the text is sent, subject and format are dropped"


async def defer_alert(speech: Speech, text: str, name: str | None) -> Deferral:
    """Alert people when the run has succeeded: where its results go, or else in its thread."""
    places = (speech.task.policy.deliver_to, _thread(speech))
    to = next((place for place in places if place and _leads(speech, place)), NOWHERE)
    return await _defer_to(speech, text, to, name or effect_name("alert", text))


async def spawn_subtask(
    speech: Speech,
    agents: Agents,
    instructions: str,
    *,
    name: str | None = None,
    priority: int | None = None,
    payload: object = None,
) -> Deferral:
    """Queue work for an agent when the run has succeeded: in its pool, its thread, its walls."""
    check_main(speech.caller)
    run, store = speech.run, speech.store
    facts = await store.open_runs([run.id])
    depth = facts[0].depth + 1 if facts else 1
    if depth > DEEPEST_SUBTASK:
        message = f"subtasks may follow each other {DEEPEST_SUBTASK} deep: do the work in this run"
        raise Conflict(message)
    if not instructions.strip():
        raise Invalid("instructions", instructions, "say what is to be done")
    owner = await adhoc.task_for(store, speech.caller, TaskKind.AGENT, speech.task.space)
    spec = {**_handed_down(speech), "instructions": instructions}
    errand = with_agent(agents, TaskKind.AGENT, spec)
    if payload is not None:
        errand["payload"] = payload
    name = name or effect_name("subtask", instructions, payload)
    template = new_run(
        owner.id,
        owner.space_id,
        owner.route,
        owner.policy,
        Source.AFTER,
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
    return await _defer(speech, Deferred(kind=DeferredKind.SUBTASK, data=data, name=name))


def _handed_down(speech: Speech) -> dict[str, Any]:
    """Return what the parent is, as far as a subtask is it too; a run may have brought its own."""
    spec: Mapping[str, Any] = speech.task.spec
    if speech.task.origin == adhoc.ORIGIN and speech.task.name in adhoc.NAMES.values():
        brought = json.loads(speech.run.payload)
        spec = {**spec, **brought} if isinstance(brought, dict) else spec
    names = HANDED_DOWN if speech.task.kind is TaskKind.AGENT else OF_A_SCRIPT
    return {name: spec[name] for name in names if spec.get(name) is not None}


async def _defer(speech: Speech, operation: Deferred, warning: str | None = None) -> Deferral:
    async def deferral(store: Store, puts: Sequence[Put]) -> Deferral:
        effect = None
        if puts[0] is Put.ALREADY_DONE and operation.name is not None:
            effect = await store.find_effect(speech.speaker, operation.name)
        return Deferral(put=puts[0], name=operation.name, effect=effect, warning=warning)

    speech.keep(deferral)
    return await deferral(speech.store, await speech.store.defer(speech.speaker, [operation]))


def _message(
    speech: Speech,
    text: str,
    target: str,
    name: str | None,
    mail: MailWish,
    files: tuple[Enclosure, ...],
) -> tuple[NewDelivery, str]:
    if not 0 < len(text.encode()) <= LONGEST_MESSAGE:
        raise Invalid("text", text, f"needs 1 to {LONGEST_MESSAGE} bytes")
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
        mail=envelope(mail.subject, mail.format, original) if channel == MAIL else None,
        files=files,
    )
    return delivery, named


def _target(speech: Speech, to: str | None) -> str:
    """Return where a message goes: to its thread, or else where the results of its task go.

    One of the two that a channel leads to comes first. Only `main` speaks to others; an attempt of
    a member speaks where its own run is heard.
    """
    own = [target for target in (_thread(speech), speech.task.policy.deliver_to) if target]
    if to is None:
        if not own:
            advice = "the run has no thread and its task delivers nowhere: name a channel:target"
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


def _leads(speech: Speech, place: str) -> bool:
    return not speech.channels or place.partition(":")[0] in speech.channels


def _thread(speech: Speech) -> str | None:
    return speech.held.thread or speech.task.thread
