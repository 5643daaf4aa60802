"""What is spelled otherwise is refused in a sentence with an example, and never with a pattern."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from rota.api.event_stream import EventsQuery, RunEventsQuery
from rota.commands.catalogue import every_command, read_request
from rota.errors import Invalid

TAKES = {command.name: command.takes for command in every_command()}
TAKES |= {"events": EventsQuery, "run_events": RunEventsQuery}
BAD = "two words/\n\x00"


def spelled(schema):
    """Return whether a schema, or a part of it, has a pattern."""
    if isinstance(schema, dict):
        return "pattern" in schema or any(spelled(part) for part in schema.values())
    return isinstance(schema, list) and any(spelled(part) for part in schema)


def test_there_are_patterns_to_look_at():
    assert sum(spelled(takes.model_json_schema()) for takes in TAKES.values()) > 30


@pytest.mark.parametrize("name", sorted(TAKES))
def test_no_pattern_is_shown_to_people(name):
    takes = TAKES[name]
    for field, schema in takes.model_json_schema().get("properties", {}).items():
        for value in (BAD, [BAD], {BAD: BAD}) if spelled(schema) else ():
            with pytest.raises(ValidationError) as refused:
                takes.model_validate({field: value})
            told = [error["msg"] for error in refused.value.errors() if error["loc"][0] == field]
            assert not [words for words in told if "pattern" in words], (field, told)


@pytest.mark.parametrize(
    ("name", "said", "advice"),
    [
        ("say", {"thread_key": "bad thread", "text": "x"}, "such as telegram:chat:42"),
        ("answer_run", {"run": 1, "answer": "x", "action_hash": "zz"}, "such as 9f86d081…"),
        ("create_space", {"name": "Anna B"}, "such as anna or team-2"),
        ("show_task", {"task": "a b"}, "such as daily-report"),
        ("put_schedule", {"task": "a", "name": "x y", "every": "1h"}, "such as daily-report"),
        ("create_task", {"call": "os.system"}, "such as reports:daily"),
        ("put_secret", {"secret": "Git Hub", "value": "x"}, "such as github"),
        ("get_state", {"task": "a", "key": "x y"}, "such as last-mail"),
        ("get_effect", {"name": "a b"}, "such as invoice-17"),
        ("say", {"thread_key": "a:b", "text": "x", "sender": "a\nb"}, "one line without"),
        ("events", {"after": "a b"}, "such as 1.42"),
        ("show_task", {"task": "name\n"}, "such as daily-report"),
    ],
)
def test_the_sentence_has_an_example(name, said, advice):
    with pytest.raises(Invalid) as fault:
        read_request(TAKES[name], said)
    assert advice in str(fault.value)
    assert "^" not in str(fault.value)
