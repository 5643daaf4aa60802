"""Operations under the names for agents, with their JSON schemas.

Models read a schema in every turn, and some clients do not resolve references. So titles, empty
defaults and text formats are left out of schemas, and definitions are inlined. Every request is
still validated in full.

An operation has the fields of its command. Operations without a command in the catalogue are not
offered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from pydantic import BaseModel

from rota.commands.catalogue import Operation, every_command
from rota.commands.task_fields import TASK_FIELDS, FieldKind
from rota.model.audit import AttemptIdentity
from rota.rules.permissions import JUDGES

TASK, RUN, THREAD = "task", "run", "thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOperation:
    """One operation for programs.

    `own` are fields that default to the task, run or thread of an attempt. `later` is the command
    for an attempt, if the operation waits for the success of the run, with `fixed` among its
    fields. `inside` operations are only for attempts, `outside` ones only for callers with a key.
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
    _verb("get_task", "show_task", "Show a task: its schedules, next slots and newest runs.", TASK),
    _verb("update_task", "change_task", "Change the given fields of a task.", TASK),
    _verb(
        "pause_task",
        "disable_task",
        "Pause a task's schedules, permanently or `until` a time.",
        TASK,
    ),
    _verb("resume_task", "enable_task", "Resume a paused task.", TASK),
    _verb("cancel_task", "delete_task", "Delete a task and cancel its runs."),
    _verb("run_task", "run_task", "Queue a run of a task now, with `input` or a payload."),
    _verb("preview_schedule", "preview_schedule", "Describe a schedule and show its next slots."),
    _verb("list_runs", "list_runs", "List runs, newest first."),
    _verb("get_run", "show_run", "Show a run: attempts, events, messages, last output.", RUN),
    _verb("cancel_run", "cancel_run", "Cancel a run; a running one is asked to stop."),
    _verb("list_waiting", "list_waiting", "List runs that wait for a person's answer."),
    _verb("why", "why_of_task", "Explain why a task did or did not run.", TASK),
    _verb("why_run", "why_of_run", "Explain the state of a run.", RUN),
    _verb("list_state", "list_state", "List the stored values of a task.", TASK),
    _verb("get_state", "get_state", "Return a stored value of a task.", TASK),
    _settled("set_state", "put_state", "Store a value for a task under a key.", "defer_state"),
    _settled(
        "delete_state", "drop_state", "Delete a stored value of a task.", "defer_state", forget=True
    ),
    _settled("mark_seen", "mark_seen", "Mark items as seen by a task.", "defer_seen"),
    _verb(
        "is_seen",
        "get_seen",
        "Show a seen item of a task; not_found if the task has not seen it.",
        TASK,
    ),
    _verb("list_sessions", "list_sessions", "List sessions of this conversation.", THREAD),
    _verb("get_session", "show_session", "Show a session with its messages and results."),
    _verb(
        "archive_session", "archive_session", "Archive the current session under a name.", THREAD
    ),
    _verb(
        "clear_session",
        "clear_session",
        "Delete the session; the next run starts a new one.",
        THREAD,
    ),
    _verb(
        "resume_session",
        "resume_session",
        "Let the next run continue in an archived session.",
        THREAD,
    ),
    _verb("search_sessions", "search_sessions", "Search the texts of sessions.", THREAD),
    _verb("list_threads", "list_threads", "List conversations with the tasks that answer in them."),
    _verb(
        "register_thread",
        "register_thread",
        "Set the title, the answering task and the trigger word of a conversation.",
    ),
    _outside(
        "create_run",
        "Queue one-off work: `agent` with instructions, or a `script`; or a run of a `task`. It "
        "returns at once; use get_run to follow it.",
    ),
    _outside(
        "answer_run",
        "Pass on a person's answer to the question of a waiting run (list_waiting); an approval "
        "needs its `action_hash`. Never answer for them.",
    ),
    _outside("ask_sql", "Run one read-only SELECT over Rota's documented views."),
    _inside("send_message", "Send a message to a conversation, by default this one."),
    _inside(
        "ask_user",
        "Ask the person a question; end your turn, and the run continues with the answer.",
    ),
    _inside("spawn_subtask", "Queue work that starts when this run has succeeded."),
    _inside("defer_message", "Send a message when this run has succeeded."),
    _inside("raise_alert", "Send an alert to people when this run has succeeded.", "defer_alert"),
    _inside("get_effect", "Return the recorded result of an action that must happen once."),
    _inside("record_effect", "Record the result of an action that must not be repeated."),
)


class AvailableOperation(NamedTuple):
    """An available operation with its command."""

    verb: AgentOperation
    command: Operation

    @property
    def fixed(self) -> Mapping[str, Any]:
        """The fields that the operation sets itself."""
        return self.verb.fixed if self.command.name == self.verb.later else {}

    def schema(self, *, attempt: bool) -> dict[str, Any]:
        """Return the JSON schema of the fields; attempts cannot set the checks of a task."""
        schema = plain_schema(self.command.takes, self.verb.own if attempt else ())
        for name in (*self.fixed, *(JUDGES if attempt else ())):
            schema["properties"].pop(name, None)
        return schema

    def filled(self, fields: Mapping[str, Any], held: AttemptIdentity) -> dict[str, Any]:
        """Add the defaults of an attempt to the fields.

        The default thread and task are omitted if the request names a session or another space.
        """
        own: dict[str, Any] = {TASK: str(held.task_id), RUN: held.run_id, THREAD: held.thread}
        said = {**fields, **self.fixed}
        if TASK not in self.command.takes.model_fields and said.get(TASK) in _names(held):
            del said[TASK]  # operations that wait for the success always belong to the run itself
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
    """Return the operations for attempts, or for callers with a key, by name."""
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
    """Return the schema of a request model with some fields optional."""
    whole = takes.model_json_schema()
    plain: dict[str, Any] = _plain(whole, whole.get("$defs", {}))
    plain.pop("description", None)
    plain.setdefault("properties", {})
    _drop_help(plain)
    needed = [name for name in plain.pop("required", ()) if name not in optional]
    return {**plain, "required": needed} if needed else plain


def _drop_help(schema: dict[str, Any]) -> None:
    """Shorten the help of task fields: agents read the schema in every turn."""
    for known in TASK_FIELDS:
        part: dict[str, Any] | None = schema
        for name in known.path.split("."):
            part = None if part is None else part.get("properties", {}).get(name)
        if part is not None and known.kind is FieldKind.LENGTH:
            part["description"] = "Duration, such as 10m"
        elif part is not None and not known.in_tools:
            part.pop("description", None)


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
    """Simplify properties, which may themselves be named `title`."""
    return {name: _plain(value, known) for name, value in properties.items()}


def _single(part: dict[str, Any]) -> dict[str, Any]:
    """Return a nullable field as an optional one."""
    choices = [one for one in part.get("anyOf", ()) if one != {"type": "null"}]
    if len(choices) == 1:
        rest = {name: value for name, value in part.items() if name != "anyOf"}
        return {**choices[0], **rest}
    if choices:
        return {**part, "anyOf": choices}
    return part
