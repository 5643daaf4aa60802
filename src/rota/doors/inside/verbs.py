"""The verbs of the desk: what a program may ask for, and the command of the catalogue it is.

A verb has the fields of its command. A verb whose command is not in the catalogue is not offered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from rota.doors.inside.schemas import plain_schema
from rota.doors.kit.catalogue import Command, every_command
from rota.model.inside import Held

TASK, RUN, THREAD = "task", "run", "thread"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing a program may ask for.

    `commands` are the commands it may be, the first one that there is. `own` names the fields that
    an attempt may leave out: they mean its own task, run or thread. `inside` says that only an
    attempt can ask for it.
    """

    name: str
    commands: tuple[str, ...]
    about: str
    own: tuple[str, ...] = ()
    inside: bool = False


def _verb(name: str, command: str, about: str, *own: str) -> Verb:
    return Verb(name=name, commands=(command,), about=about, own=own)


def _settled(name: str, later: str, now: str, about: str) -> Verb:
    """Return a verb that waits for the run's success where that can be, and is done now if not."""
    return Verb(name=name, commands=(later, now), about=about, own=(TASK,))


def _inside(name: str, about: str) -> Verb:
    return Verb(name=name, commands=(name,), about=about, inside=True)


VERBS = (
    _verb(
        "schedule_task",
        "create_task",
        "Create a task: `instructions` for an agent or a `command`, and usually a `schedule` with "
        'one of every ("2h"), cron, at, times, rrule or words ("weekdays at 9"). It belongs to '
        "this conversation unless another thread is named.",
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
    _settled("set_state", "defer_state", "put_state", "Keep a value for a task under a key."),
    _settled("delete_state", "defer_drop_state", "drop_state", "Forget a value of a task."),
    _settled("mark_seen", "defer_seen", "mark_seen", "Count items as seen by a task."),
    _verb("is_seen", "get_seen", "Show an item as a task has seen it; not_found if never.", TASK),
    _verb("list_sessions", "list_sessions", "List sessions of this conversation.", THREAD),
    _verb("archive_session", "archive_session", "Keep the present session under a name.", THREAD),
    _verb("clear_session", "clear_session", "Let the next run begin a new session.", THREAD),
    _verb("resume_session", "resume_session", "Let the next run go on in a kept session.", THREAD),
    _verb("search_sessions", "search_sessions", "Search what was said in sessions.", THREAD),
    _inside("send_message", "Send a message to a conversation, by default this one."),
    _inside("ask_user", "Ask the person a question; the run ends here and goes on when answered."),
    _inside("spawn_subtask", "Queue work that begins once this run has succeeded."),
    _inside("send_mail", "Write a mail that is sent once this run has succeeded."),
    _inside("raise_alert", "Raise an alert once this run has succeeded."),
    _inside("next_check", "Choose when this task runs next, within its bounds."),
)


class Offered(NamedTuple):
    """A verb that can be had, and its command."""

    verb: Verb
    command: Command

    def schema(self, *, attempt: bool) -> dict[str, Any]:
        """Return what its fields may be, as a JSON schema."""
        optional = self.verb.own if attempt else ()
        return plain_schema(self.command.takes, optional)

    def filled(self, fields: Mapping[str, Any], held: Held) -> dict[str, Any]:
        """Return the fields with what an attempt has left out: its own."""
        own: dict[str, Any] = {
            TASK: str(held.task_id),
            RUN: held.run_id,
            THREAD: held.thread,
        }
        said = dict(fields)
        elsewhere = said.get("space") not in {None, held.space}
        for name in self.verb.own:
            taken = name if name in self.command.takes.model_fields else f"{name}_key"
            if said.get(taken) is None and own[name] is not None and not elsewhere:
                said[taken] = own[name]
        return said


@cache
def offered() -> Mapping[str, Offered]:
    """Return every verb that can be had, by name."""
    return {found.verb.name: found for found in _offered()}


def _offered() -> Iterator[Offered]:
    known = {command.name: command for command in every_command()}
    for verb in VERBS:
        command = next((known[name] for name in verb.commands if name in known), None)
        if command is not None:
            yield Offered(verb, command)
