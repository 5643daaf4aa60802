"""Operations by the names that agents know, with their JSON schemas.

What pydantic says of a request is exact and long. Models read every word of it in every turn, and
some clients cannot follow a reference. So titles, empty defaults and what a text may hold are left
out, and definitions are put where they are used; every request is looked at in full when it comes.

A verb has the fields of its command. A verb whose command is not in the catalogue is not offered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel

from rota.commands.catalogue import Operation, every_command
from rota.model.audit import AttemptIdentity
from rota.rules.permissions import CHECK_FIELDS

TASK, RUN, THREAD = "task", "run", "thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOperation:
    """One thing a program may ask for.

    `own` names the fields that an attempt may leave out: they mean its own task, run or thread.
    `later` is the command it is for an attempt, where there is one: that waits until the run has
    succeeded, with `fixed` among its fields. `inside` says that only an attempt can ask for it,
    `outside` that no attempt can, only somebody with a key.
    """

    name: str
    command: str
    about: str
    own: tuple[str, ...] = ()
    inside: bool = False
    outside: bool = False
    later: str | None = None
    fixed: Mapping[str, Any] = field(default_factory=dict)


def _verb(name: str, command: str, about: str, *own: str) -> AgentOperation:
    return AgentOperation(name=name, command=command, about=about, own=own)


def _settled(name: str, command: str, about: str, later: str, **fixed: object) -> AgentOperation:
    return AgentOperation(
        name=name, command=command, about=about, own=(TASK,), later=later,
        fixed=fixed,
    )  # fmt: skip


def _inside(name: str, about: str, command: str = "") -> AgentOperation:
    return AgentOperation(name=name, command=command or name, about=about, inside=True)


def _outside(name: str, about: str) -> AgentOperation:
    return AgentOperation(name=name, command=name, about=about, outside=True)


VERBS = (
    _verb(
        "schedule_task",
        "create_task",
        "Create a task: `instructions` for an agent or a `command`, and usually a `schedule` with "
        'one of every ("2h"), cron, at, times, rrule or words ("weekdays at 9"). It belongs to '
        "this conversation unless another thread is named. Ask the person first if nobody asked "
        "for it.",
        THREAD,
    ),
    _verb("list_tasks", "list_tasks", "List tasks, newest first."),
    _verb("get_task", "show_task", "Show a task: its schedules, next fires and newest runs.", TASK),
    _verb("update_task", "change_task", "Change what is given of a task, leave the rest.", TASK),
    _verb("pause_task", "disable_task", "Stop a task's slots, for good or `until` a time.", TASK),
    _verb("resume_task", "enable_task", "Let a paused task's slots run again.", TASK),
    _verb("cancel_task", "delete_task", "Take a task out of use and end its runs."),
    _verb("run_task", "run_task", "Queue a run of a task now, with `input` or a payload."),
    _verb("preview_schedule", "preview_schedule", "Say a rule in words and when it would fire."),
    _verb("list_runs", "list_runs", "List runs, newest first."),
    _verb("get_run", "show_run", "Show a run: attempts, events, messages, last output.", RUN),
    _verb("cancel_run", "cancel_run", "End a run, or ask whoever works on it to stop."),
    _verb("list_waiting", "list_waiting", "List runs that wait for a person's answer."),
    _verb("why", "why_of_task", "Explain why a task did or did not run.", TASK),
    _verb("why_run", "why_of_run", "Explain why a run is as it is.", RUN),
    _verb("list_state", "list_state", "List the values that a task keeps.", TASK),
    _verb("get_state", "get_state", "Return a value that a task keeps under a key.", TASK),
    _settled("set_state", "put_state", "Keep a value for a task under a key.", "defer_state"),
    _settled("delete_state", "drop_state", "Forget a value of a task.", "defer_state", forget=True),
    _settled("mark_seen", "mark_seen", "Count items as seen by a task.", "defer_seen"),
    _verb("is_seen", "get_seen", "Show an item as a task has seen it; not_found if never.", TASK),
    _verb("list_sessions", "list_sessions", "List sessions of this conversation.", THREAD),
    _verb("get_session", "show_session", "Show a session and what was said in it."),
    _verb("archive_session", "archive_session", "Keep the present session under a name.", THREAD),
    _verb("clear_session", "clear_session", "Let the next run begin a new session.", THREAD),
    _verb("resume_session", "resume_session", "Let the next run go on in a kept session.", THREAD),
    _verb("search_sessions", "search_sessions", "Search what was said in sessions.", THREAD),
    _verb("list_threads", "list_threads", "List conversations, and who answers there."),
    _verb(
        "register_thread",
        "register_thread",
        "Name a conversation, say which task answers in it, and the word that asks for it.",
    ),
    _outside(
        "create_run",
        "Queue work that is done once: `agent` with instructions, or a `script`; or a run of a "
        "`task`. It returns at once: look at it with get_run.",
    ),
    _outside(
        "answer_run",
        "Pass on a person's answer to the question that a run waits for (list_waiting); an "
        "approval needs its `action_hash`. Never answer in their place.",
    ),
    _outside("ask_sql", "Ask one read-only SELECT over Rota's documented views."),
    _inside("send_message", "Send a message to a conversation, by default this one."),
    _inside("ask_user", "Ask the person a question; the run ends here and goes on when answered."),
    _inside("spawn_subtask", "Queue work that begins once this run has succeeded."),
    _inside("defer_message", "Send a message once this run has succeeded."),
    _inside("raise_alert", "Tell people of something once this run has succeeded.", "defer_alert"),
    _inside("get_effect", "Show what came of something that is done once, if it was done."),
    _inside("record_effect", "Note what came of something that must not be done again."),
)


class AvailableOperation(NamedTuple):
    """A verb that can be had, and its command."""

    verb: AgentOperation
    command: Operation

    @property
    def fixed(self) -> Mapping[str, Any]:
        """The fields that the verb says itself."""
        return self.verb.fixed if self.command.name == self.verb.later else {}

    def schema(self, *, attempt: bool) -> dict[str, Any]:
        """Return what its fields may be, as a JSON schema; attempts judge no task's work."""
        schema = plain_schema(self.command.takes, self.verb.own if attempt else ())
        for name in (*self.fixed, *(CHECK_FIELDS if attempt else ())):
            schema["properties"].pop(name, None)
        return schema

    def filled(self, fields: Mapping[str, Any], held: AttemptIdentity) -> dict[str, Any]:
        """Return the fields with what an attempt has left out: its own.

        A session belongs to a conversation, and so does whatever is in another space.
        """
        own: dict[str, Any] = {TASK: str(held.task_id), RUN: held.run_id, THREAD: held.thread}
        said = {**fields, **self.fixed}
        if TASK not in self.command.takes.model_fields and said.get(TASK) in _names(held):
            del said[TASK]  # what waits for a success is always its own
        elsewhere = said.get("space") not in {None, held.space} or "session" in said
        for name in self.verb.own:
            known = name in self.command.takes.model_fields
            if known and name not in said and own[name] is not None and not elsewhere:
                said[name] = own[name]
        return said


def _names(held: AttemptIdentity) -> tuple[str, str]:
    return held.task, str(held.task_id)


@cache
def available_operations(*, attempt: bool) -> Mapping[str, AvailableOperation]:
    """Return every verb that an attempt can ask for, or anybody else, by name."""
    return {found.verb.name: found for found in _offered(attempt=attempt)}


def _offered(*, attempt: bool) -> Iterator[AvailableOperation]:
    known = {command.name: command for command in every_command()}
    for verb in VERBS:
        wanted = [verb.later, verb.command] if attempt else [verb.command]
        command = next((known[name] for name in wanted if name in known), None)
        barred = verb.outside if attempt else verb.inside
        if command is not None and not barred:
            yield AvailableOperation(verb, command)


DEFINITIONS = "#/$defs/"
DROPPED = frozenset(
    {
        *("title", "$defs", "pattern", "not", "additionalProperties"),
        *("minLength", "maxLength", "minItems", "maxItems"),
    }
)


def plain_schema(takes: type[BaseModel], optional: Collection[str] = ()) -> dict[str, Any]:
    """Return the schema of a request in which some fields may be left out."""
    whole = takes.model_json_schema()
    plain: dict[str, Any] = _plain(whole, whole.get("$defs", {}))
    plain.pop("description", None)
    plain.setdefault("properties", {})
    needed = [name for name in plain.pop("required", ()) if name not in optional]
    return {**plain, "required": needed} if needed else plain


def _plain(part: Any, known: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any value of JSON
    if isinstance(part, list):
        return [_plain(one, known) for one in part]
    if not isinstance(part, dict):
        return part
    if "$ref" in part:
        meant = known[part["$ref"].removeprefix(DEFINITIONS)]
        rest = {name: value for name, value in part.items() if name != "$ref"}
        return _plain({**meant, **rest}, known)
    kept = {
        name: _named(value, known) if name == "properties" else _plain(value, known)
        for name, value in part.items()
        if name not in DROPPED and not (name == "default" and not value)
    }
    return _single(kept)


def _named(properties: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """Return properties, of which any may be called `title`."""
    return {name: _plain(value, known) for name, value in properties.items()}


def _single(part: dict[str, Any]) -> dict[str, Any]:
    """Return a field that may be null as one that may be left out."""
    choices = [one for one in part.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        rest = {name: value for name, value in part.items() if name != "anyOf"}
        return {**choices[0], **rest}
    if choices:
        return {**part, "anyOf": choices}
    return part
