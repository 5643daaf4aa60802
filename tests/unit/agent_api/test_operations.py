"""The verbs of the desk: each is a command of the catalogue, with a schema that models can read."""

import json

import jsonschema_rs
import pytest

from rota.agent_api.operations import VERBS, available_operations
from rota.commands.catalogue import every_command
from rota.model.audit import AttemptIdentity
from rota.model.keys import KeyScope
from rota.rules.permissions import CHECK_FIELDS, OF_ATTEMPTS

COMMANDS = {
    "schedule_task": "create_task",
    "list_tasks": "list_tasks",
    "get_task": "show_task",
    "update_task": "change_task",
    "pause_task": "disable_task",
    "resume_task": "enable_task",
    "cancel_task": "delete_task",
    "run_task": "run_task",
    "preview_schedule": "preview_schedule",
    "list_runs": "list_runs",
    "get_run": "show_run",
    "cancel_run": "cancel_run",
    "list_waiting": "list_open_questions",
    "why": "explain_task",
    "why_run": "explain_run",
    "list_state": "list_state",
    "get_state": "get_state",
    "is_seen": "get_seen",
}
FOR_PEOPLE = {"answer_run", "create_key", "revoke_key", "pause_all", "resume_all", "ask_sql"}
HELD = AttemptIdentity(run_id=7, epoch=2, task_id=3, task="job", thread="ann:chat", space="ann")


def test_every_verb_reaches_its_command():
    found = {name: one.command.name for name, one in available_operations(attempt=True).items()}
    assert found.items() >= COMMANDS.items()
    assert len({verb.name for verb in VERBS}) == len(VERBS)
    for verb in VERBS:
        assert verb.name not in found or found[verb.name] in {verb.command, verb.later}


def test_a_verb_without_a_command_is_not_offered():
    known = {command.name for command in every_command()}
    for verb in VERBS:
        inside, outside = (
            available_operations(attempt=attempt).get(verb.name) for attempt in (True, False)
        )
        is_known = bool({verb.command, verb.later} & known)
        assert (inside is not None) == (is_known and not verb.outside)
        assert (outside is not None) == (verb.command in known and not verb.inside)
        assert outside is None or outside.command.name == verb.command


def test_no_verb_is_for_people_or_administrators():
    assert {KeyScope.ADMIN, KeyScope.SQL}.isdisjoint(OF_ATTEMPTS)
    for one in available_operations(attempt=True).values():
        assert one.command.scope in OF_ATTEMPTS
        assert one.command.name not in FOR_PEOPLE


@pytest.mark.parametrize("attempt", [True, False])
@pytest.mark.parametrize("name", list(available_operations(attempt=True)))
def test_a_schema_is_sound_short_and_has_the_fields_of_its_command(name, attempt):
    one = available_operations(attempt=True)[name]
    schema = one.schema(attempt=attempt)
    assert jsonschema_rs.meta.is_valid(schema)
    assert schema["type"] == "object"
    left_out = {*one.fixed, *(CHECK_FIELDS if attempt else ())}
    assert set(schema["properties"]) == set(one.command.takes.model_fields) - left_out
    text = json.dumps(schema)
    assert "$ref" not in text
    assert '"type": "null"' not in text
    assert len(text) < 7_500


def test_all_of_them_are_short_enough_to_be_read_in_every_turn():
    every = [one.schema(attempt=True) for one in available_operations(attempt=True).values()]
    assert len(json.dumps(every)) < 23_000


def test_what_an_attempt_leaves_out_is_its_own():
    get, run, make = (
        available_operations(attempt=True)[name]
        for name in ("get_task", "get_run", "schedule_task")
    )
    assert get.filled({}, HELD) == {"task": "3"}
    assert get.filled({"task": "other"}, HELD) == {"task": "other"}
    assert run.filled({}, HELD) == {"run": 7}
    assert make.filled({}, HELD) == {"thread": "ann:chat"}
    assert make.filled({"space": "ann"}, HELD)["thread"] == "ann:chat"
    assert make.filled({"space": "bob"}, HELD) == {"space": "bob"}
    assert make.filled({"thread": None}, HELD) == {"thread": None}
    assert available_operations(attempt=True)["cancel_task"].filled({}, HELD) == {}
