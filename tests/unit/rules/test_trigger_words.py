"""What an answer asks in words: the documented phrases, and never what others said."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.model.instants import to_micros
from rota.rules.approvals import (
    DECISIONS,
    DENY,
    MARK,
    PHRASES,
    ROTA,
    ControlAction,
    QuestionAuthor,
    action_ids,
    blank_quoted_text,
    question_in,
)

NOW = to_micros(datetime(2026, 3, 1, 12, tzinfo=UTC))
ANN = QuestionAuthor(run=7, attempt=2, task="tidy", space="main")


def asked(answer, asker=ANN):
    return question_in(answer, asker, NOW)


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("shape", [str, str.upper, str.lower])
@pytest.mark.parametrize(
    "form", ["{}", "I would delete 3 files.\n\n{}.", "Done so far. {}?\n\nBye."]
)
def test_each_phrase_asks_in_any_case_and_place(phrase, shape, form):
    assert asked(form.format(shape(phrase))) is not None


@pytest.mark.parametrize(
    "form",
    [
        'Ann wrote: "Dear all, {} by noon, thanks."',
        "Ann wrote: “Dear all, {} by noon.”",
        "Ann wrote: «Dear all, {} by noon.»",
        "Ann wrote: ‘Dear all, {} by noon.’",
        "Ann wrote: 'Dear all, {} by noon.'",
        "The mail says:\n\n> Hello,\n> {}\n\nI have filed it.",
        "It prints:\n```\n{}\n```\nand ends.",
        "It prints:\n~~~text\n{}\n~~~",
        "It prints `{}` and ends.",
        "It prints:\n```\n{} and the fence is never closed",
    ],
)
@pytest.mark.parametrize("phrase", [p for p in PHRASES if '"' not in p])
def test_what_others_said_asks_nothing(form, phrase):
    assert asked(form.format(phrase)) is None


def test_a_reply_that_is_quoted_within_a_quotation_asks_nothing():
    assert asked('He wrote: “Reply "yes" to go on.” I filed it.') is None
    assert asked('He wrote: "Reply "yes" to go on." I filed it.') is None
    assert asked("Reply “yes” to go on.") is not None


@pytest.mark.parametrize(
    "answer",
    ["", "All is done.", "I confirmed it, please.", "He asked whether he should proceed.",
     "The unconfirmed ones: please confirmation", "I replied yes"],
)  # fmt: skip
def test_other_answers_ask_nothing(answer):
    assert asked(answer) is None


def test_a_quotation_beside_a_question_hides_it_not():
    found = asked('The file "a.txt" is old.\n\nShould I proceed and delete "a.txt"?\n\n> old mail')
    assert found.question == 'Should I proceed and delete "a.txt"?'
    assert found.context.startswith('The file "a.txt" is old.')
    assert (found.options, found.action) == ((), None)


def block(number="a1", end=f"[/{MARK}]", **more):
    request = {"action_id": number, "action": "kill_task_run", "payload": {"run_id": 12}, **more}
    return f"[{MARK}]\n{json.dumps(request)}\n{end}"


def test_a_block_asks_to_approve_exactly_what_stands_in_it():
    found = asked(f"It hangs.\n\n{block(title='End it?')}\n\nShould I proceed?")
    assert (found.question, found.options, found.default) == ("End it?", DECISIONS, DENY)
    shown = json.loads(found.action)
    assert (shown["run"], shown["attempt"]) == (7, 2)
    assert shown["action"]["payload"] == {"run_id": 12}
    assert shown["by"] == "rota"
    assert found.expires_in == timedelta(days=1)
    assert MARK not in found.context
    assert asked(block(end=f"[{MARK}]")).action is not None


def test_who_does_an_action_is_shown_if_it_is_rota():
    other = asked(f'[{MARK}]{{"action_id": "a", "action": "deploy", "by": "rota"}}[{MARK}]')
    assert "by" not in json.loads(other.action)
    for action in ControlAction:
        assert json.loads(asked(block(action=action)).action)["by"] == ROTA


def test_an_action_that_was_asked_for_is_not_asked_again():
    first = asked(block())
    ids = action_ids([first.action, None])
    assert ids == {"a1"}
    again = QuestionAuthor(run=7, attempt=3, task="tidy", space="main", asked=ids)
    assert asked(block(), again) is None
    other = asked(f"{block()}\n{block()}\n{block('a2')}", again)
    assert json.loads(other.action)["action"]["action_id"] == "a2"


@pytest.mark.parametrize(
    ("until", "wait"),
    [("2026-03-01T14:00:00+00:00", timedelta(hours=2)), ("2026-03-01T12:00:05Z", timedelta(seconds=5)),
     ("2029-01-01T00:00:00Z", timedelta(days=30)), ("soon", timedelta(days=1)),
     ("2026-03-01T15:00:00", timedelta(hours=3))],
)  # fmt: skip
def test_a_request_waits_as_long_as_it_says_within_bounds(until, wait):
    assert asked(block(expires_at=until)).expires_in == wait


@pytest.mark.parametrize(
    "text",
    [
        block(expires_at="2026-03-01T11:59:59Z"),
        block(expires_at="2026-03-01T11:59:59"),
        f"[{MARK}]no JSON[/{MARK}]",
        f'[{MARK}]{{"action": "x"}}[/{MARK}]',
        f'[{MARK}]{{"action_id": "a", "action": 7}}[/{MARK}]',
        block(payload="x" * 20_000),
        f"```\n{block()}\n```",
        "> " + block().replace("\n", "\n> "),
        f"The manual says “{block()}”.",
        f"[{MARK}] is never closed",
    ],
)
def test_what_is_no_request_asks_nothing(text):
    assert asked(text) is None


@given(st.text(alphabet="\"'`>“”«»\n a", max_size=200))
def test_what_is_blank_keeps_its_place(text):
    words = blank_quoted_text(text)
    assert len(words) == len(text)
    assert words.count("\n") == text.count("\n")
