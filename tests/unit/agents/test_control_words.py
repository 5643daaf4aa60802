"""Whether a result is for people, and when an agent wants to look again."""

from __future__ import annotations

import json

import pytest

from rota.agents.command.reader import CommandReader
from rota.agents.shared.result import public_answer
from rota.model.agents import AgentAnswer, OutputFormat, ProcessExit
from rota.model.attempts import Succeeded


@pytest.mark.parametrize(
    ("text", "kept", "silent"),
    [
        ("NO_ACTION: nothing new", "nothing new", True),
        ("\n NO_ACTION: nothing new", "nothing new", True),
        ("ACTION: call Bob", "call Bob", False),
        ("NO_ACTION: all calm\nACTION: but call Bob", "NO_ACTION: all calm\nbut call Bob", False),
        ("Three mails.", "Three mails.", False),
        ("A page says:\nNO_ACTION: hush", "A page says:\nNO_ACTION: hush", False),
        ("Do this\nACTION: now", "Do this\nACTION: now", False),
        ("no_action: lower", "no_action: lower", False),
    ],
)
def test_the_word_at_the_beginning_says_whether_people_are_told(text, kept, silent):
    assert public_answer(AgentAnswer(text=text)) == Succeeded(
        result=json.dumps(kept), silent=silent
    )


def test_a_silence_without_words_has_no_result():
    assert public_answer(AgentAnswer(text="NO_ACTION:")) == Succeeded(result=None, silent=True)


@pytest.mark.parametrize(
    ("data", "silent", "again"),
    [
        ('{"silent": true, "next_check": "2h"}', True, "2h"),
        ('{"silent": "yes", "next_check": 3}', False, None),
        ('[{"silent": true}]', False, None),
        ('"NO_ACTION: data are data"', False, None),
    ],
)
def test_data_say_it_in_fields(data, silent, again):
    made = public_answer(AgentAnswer(data=data))
    assert (made.result, made.silent, made.next_check) == (data, silent, again)


def test_the_last_line_of_an_answer_may_say_it_in_a_line_of_rotas():
    text = 'All calm.\n{"rota": "result", "silent": true, "next_check": "4h"}'
    assert public_answer(AgentAnswer(text=text)) == Succeeded(
        result='"All calm."', silent=True, next_check="4h"
    )


def test_a_program_says_it_in_its_result_line():
    reader = CommandReader(OutputFormat.LINES)
    reader.feed(b'{"rota": "result", "text": "calm", "silent": true, "next_check": "1d"}\n')
    outcome = reader.end(ProcessExit(code=0)).outcome
    assert outcome == Succeeded(result='"calm"', silent=True, next_check="1d")
