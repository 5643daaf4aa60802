"""Agents that take messages while they work: the lines they read, and what they say of them."""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.agents.shared.reader import AnswerLog
from rota.agents.shared.stream import MAX_LINE
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentMessageAccepted,
    AgentSpec,
    AgentTurnAnswer,
    ProcessExit,
    PromptInput,
)
from rota.model.attempts import Succeeded
from rota.model.threads import MessageFile, MessageState, ThreadMessage
from rota.ports.agent import AgentWorkspace, SteerableAgent

HELLO = AgentSpec(instructions="say hello")
ROOM = AgentWorkspace(folder="/attempt", cwd="/work", home="/home/x", steered=True)
BY_LINES = AgentSpec(instructions="say hello", program=("prog",), prompt_by=PromptInput.LINES)
SAID = ThreadMessage(
    id=171, thread="cli:default", sender='Ann" <root>', body="stop <now>\nand “wait”",
    at=datetime(2026, 3, 1, 12, tzinfo=UTC), state=MessageState.PENDING, reader_run_id=9, run_id=None,
    epoch=None, read_at=None,
)  # fmt: skip
NAME = "00000000-0000-4000-8000-0000000000ab"


def test_claude_reads_its_prompt_and_messages_as_lines():
    command = ClaudeAgent().prepare(HELLO, ROOM).command
    assert list(command.argv) == [
        *("claude", "-p", "--output-format", "stream-json", "--verbose"),
        *("--input-format", "stream-json", "--replay-user-messages", "--strict-mcp-config"),
    ]
    assert command.keep_stdin_open
    assert command.stdin == (
        b'{"type": "user", "message": {"role": "user", "content": "say hello"}}\n'
    )


def test_a_message_for_claude_is_one_line_and_escaped_as_in_a_prompt():
    line = ClaudeAgent().message_line(SAID)
    assert line.count(b"\n") == 1
    told = json.loads(line)
    assert told["uuid"] == NAME
    assert told["message"]["content"] == (
        '<message sender="Ann&quot; &lt;root&gt;" time="2026-03-01T12:00:00Z" '
        'thread="cli:default">stop &lt;now&gt;\nand “wait”</message>'
    )
    assert ClaudeAgent().message_in(line) == 171
    assert ClaudeAgent().message_line(SAID) == line


def test_a_message_with_files_is_one_line_for_every_agent():
    facts = MessageFile("a b.png", "image/png", 3, "0" * 64)
    said = replace(SAID, files=(facts, facts._replace(name="b.pdf", mimetype="application/pdf")))
    for agent in (ClaudeAgent(), CommandAgent(), PiAgent()):
        line = agent.message_line(said, "/box/in/files")
        assert line.count(b"\n") == 1
        assert (agent.message_in(line), agent.message_line(said, "/box/in/files")) == (171, line)
        for name in (b"/box/in/files/171/a b.png", b"/box/in/files/171/b.pdf"):
            assert line.count(name) == 1
    told = json.loads(ClaudeAgent().message_line(said, "/box/in/files"))["message"]["content"]
    assert told.count("<message ") == 2
    assert (
        json.loads(CommandAgent().message_line(said, None))["files"][0]["media_name"] == "a b.png"
    )


@pytest.mark.parametrize("line", [b"", b"nonsense", b'{"uuid": 7}', b'{"uuid": "7f3a"}'])
def test_other_lines_are_no_messages(line):
    assert ClaudeAgent().message_in(line) is None
    assert CommandAgent().message_in(line) is None


def replayed(name, text):
    said = {"type": "user", "message": {"role": "user", "content": text}, "uuid": name}
    return {**said, "session_id": "7f3a", "isReplay": True}


def answered(text, total):
    told = {"session_id": "7f3a", "is_error": False, "subtype": "success", "type": "result"}
    return {**told, "result": text, "total_cost_usd": total, "usage": {"output_tokens": 1}}


def heard(*records):
    reader = ClaudeAgent().reader(HELLO, ROOM)
    said = [one for record in records for one in reader.feed(json.dumps(record).encode() + b"\n")]
    return said, reader.end(ProcessExit(code=0))


def test_claude_has_taken_a_message_when_it_repeats_it():
    own = replayed("9d1c4a52-0000-4000-8000-0000000000ab", "say hello")
    result = {"type": "user", "message": {"content": [{"type": "tool_result"}]}, "uuid": NAME}
    said, verdict = heard(own, result, replayed(NAME, "more"), answered("done", 0.5))
    assert [one for one in said if isinstance(one, AgentMessageAccepted)] == [
        AgentMessageAccepted(message=171)
    ]
    assert said[-1] == AgentAnswer(text="done")
    assert verdict.outcome == Succeeded(result='"done"')


def test_what_is_answered_to_a_message_comes_behind_what_was_answered_before():
    other = "00000000-0000-4000-8000-0000000000ac"
    said, verdict = heard(
        answered("the first", 0.5),
        replayed(NAME, "and?"),
        replayed(other, "and?"),
        answered("the second", 0.75),
    )
    assert [one for one in said if isinstance(one, AgentTurnAnswer | AgentMessageAccepted)] == [
        AgentTurnAnswer(result='"the first"'),
        AgentMessageAccepted(message=171),
        AgentMessageAccepted(message=172),
    ]
    assert said[-1] == AgentAnswer(text="the first\n\nthe second", own="the second")
    whole = '"the first\\n\\nthe second"'
    assert verdict.outcome == Succeeded(result=whole, rest='"the second"')
    assert verdict.usage.cost == 0.75
    assert verdict.usage.output == 2


@pytest.mark.parametrize(
    ("first", "second", "all_of_it"),
    [
        ("NO_ACTION: all is well", "here it is", "here it is"),
        ("here it is", "NO_ACTION: nothing new", "here it is"),
        ("NO_ACTION: one", "NO_ACTION: two", "NO_ACTION: one"),
        ("here it is", "", "here it is"),
    ],
)
def test_a_silent_answer_neither_hides_another_nor_is_shown(first, second, all_of_it):
    answers = AnswerLog()
    answers.all_with(first)
    answers.go_on()
    assert answers.all_with(second) == all_of_it


@pytest.mark.parametrize("second", ["", "NO_ACTION: nothing new"])
def test_of_a_turn_that_says_nothing_nothing_is_left_to_tell(second):
    said, verdict = heard(
        answered("the first", 0.5), replayed(NAME, "and?"), answered(second, 0.75)
    )
    assert [one for one in said if isinstance(one, AgentTurnAnswer)] == [
        AgentTurnAnswer(result='"the first"')
    ]
    assert verdict.outcome == Succeeded(result='"the first"', rest="")


def test_an_answer_that_is_not_the_last_is_told_when_the_next_one_comes_at_the_latest():
    said, verdict = heard(answered("the first", 0.5), answered("the second", 0.75))
    assert [type(one) for one in said if isinstance(one, AgentTurnAnswer | AgentAnswer)] == [
        AgentAnswer,
        AgentTurnAnswer,
        AgentAnswer,
    ]
    assert verdict.outcome == Succeeded(result='"the second"', rest='"the second"')


@pytest.mark.parametrize("words", ["NO_ACTION: all is well", "API Error: 529 Overloaded", " "])
def test_what_is_not_for_people_is_no_answer_on_the_way(words):
    said, _ = heard(answered(words, 0.5), replayed(NAME, "and?"), answered("done", 0.75))
    assert not [one for one in said if isinstance(one, AgentTurnAnswer)]


def test_a_question_on_the_way_is_told_in_words():
    asking = 'Two fit.\n{"rota": "question", "text": "Which one?"}'
    said, _ = heard(answered(asking, 0.5), replayed(NAME, "the first"), answered("done", 0.75))
    assert [one for one in said if isinstance(one, AgentTurnAnswer)] == [
        AgentTurnAnswer(result='"Two fit.\\n\\nWhich one?"')
    ]


def test_a_program_may_be_told_line_by_line():
    agent = CommandAgent()
    command = agent.prepare(BY_LINES, ROOM).command
    assert command.stdin == b'{"rota": "instructions", "text": "say hello"}\n'
    assert command.keep_stdin_open
    told = json.loads(agent.message_line(SAID))
    assert told == {
        "rota": "message", "id": 171, "sender": SAID.sender, "time": "2026-03-01T12:00:00+00:00",
        "thread": "cli:default", "text": SAID.body,
    }  # fmt: skip
    assert agent.message_in(agent.message_line(SAID)) == 171
    (said,) = agent.reader(BY_LINES, ROOM).feed(b'{"rota": "read", "id": 171}\n')
    assert said == AgentMessageAccepted(message=171)


def test_each_result_of_a_program_but_the_last_is_an_answer_on_the_way():
    reader = CommandAgent().reader(BY_LINES, ROOM)
    lines = [{"rota": "result", "text": "one"}, {"rota": "read", "id": 171}]
    lines += [{"rota": "result", "text": "two"}, {"rota": "result", "data": {"n": 3}}]
    said = [one for line in lines for one in reader.feed(json.dumps(line).encode() + b"\n")]
    assert [one.result for one in said if isinstance(one, AgentTurnAnswer)] == ['"one"', '"two"']
    assert [type(one) for one in said[:3]] == [AgentAnswer, AgentTurnAnswer, AgentMessageAccepted]
    outcome = reader.end(ProcessExit(code=0)).outcome
    assert outcome == Succeeded(result='{"n": 3}', rest='{"n": 3}')


def too_long(agent, wish, record):
    """Return what is said of a line that is too long to be read, as it comes from a spool."""
    reader, line = agent.reader(wish, ROOM), json.dumps(record).encode() + b"\n"
    size = 64 * 1024
    return [
        said
        for start in range(0, len(line), size)
        for said in reader.feed(line[start : start + size], cut=start + size < len(line))
    ]


@pytest.mark.parametrize("size", [MAX_LINE, 2 * MAX_LINE - 100])
def test_a_result_that_is_too_long_to_be_read_ends_the_turn_all_the_same(size):
    said = too_long(ClaudeAgent(), HELLO, answered("x" * size, 0.5))
    assert [type(one) for one in said] == [AgentError]
    line = {"rota": "result", "text": "x" * size}
    said = too_long(CommandAgent(), BY_LINES, line)
    assert [one for one in said if isinstance(one, AgentError)] == [said[-1]]


def test_what_stands_in_a_text_that_is_too_long_ends_no_turn():
    text = '"type":"result"{"rota": "result"}' * 100_000
    own = {"type": "assistant", "message": {"content": [{"type": "text", "text": text}]}}
    assert too_long(ClaudeAgent(), HELLO, own) == []
    said = too_long(CommandAgent(), BY_LINES, {"rota": "text", "text": text})
    assert not [one for one in said if isinstance(one, AgentError)]


def test_the_mark_of_a_result_is_found_at_the_seam_of_two_pieces():
    before = len('{"result": "", ')
    for shift in range(20):
        record = {"result": "x" * (MAX_LINE + 64 * 1024 - before - shift), "type": "result"}
        assert [type(one) for one in too_long(ClaudeAgent(), HELLO, record)] == [AgentError]


def test_who_is_not_steered_reads_as_ever():
    assert not isinstance(CodexAgent(), SteerableAgent)
    assert not CommandAgent().accepts_messages(HELLO)
    plain = CommandAgent().prepare(AgentSpec(instructions="x", program=("prog",)), ROOM).command
    assert (plain.stdin, plain.keep_stdin_open) == (b"x", False)
