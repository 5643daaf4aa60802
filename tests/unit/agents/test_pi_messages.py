"""pi that is told more while it works: the commands it reads, and what is read of its answers."""

import json

import pytest

from rota.agents.pi.agent import PiAgent
from rota.agents.shared.stream import MAX_LINE
from rota.model.agents import (
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentInputClosed,
    AgentInputRequested,
    AgentMessageAccepted,
    AgentSessionStarted,
    AgentSpec,
    AgentTurnAnswer,
    ProcessExit,
)
from rota.model.attempts import Succeeded
from tests.unit.agents.test_messages import HELLO, ROOM, SAID

OPENING = [
    {"id": "session", "type": "response", "command": "get_state", "success": True,
     "data": {"isStreaming": False, "sessionId": "7f3a"}},
    {"id": "prompt", "type": "response", "command": "prompt", "success": True},
]  # fmt: skip
START, END = {"type": "agent_start"}, {"type": "agent_end", "messages": []}
RETRY = {"type": "auto_retry_start", "attempt": 1, "maxAttempts": 3, "errorMessage": "529"}


def told(text):
    return {"type": "message_end", "message": {"role": "user", "content": [
        {"type": "text", "text": text}]}}  # fmt: skip


def answered(text, stop="stop", **more):
    said = {"role": "assistant", "content": [{"type": "text", "text": text}], "stopReason": stop}
    return {"type": "message_end", "message": {**said, **more}}


def state(number, *, streaming=False):
    answer = {"type": "response", "command": "get_state", "success": True}
    return {"id": f"rest-{number}", **answer, "data": {"isStreaming": streaming}}


MESSAGE = told('<message id="171" sender="Ann">more</message>')
BROKEN = answered("", "error", errorMessage="529 Overloaded")


def heard(*records, since=OPENING):
    reader = PiAgent().reader(HELLO, ROOM)
    said = [one for record in (*since, *records) for one in reader.feed(line_of(record))]
    return said, reader.end(ProcessExit(code=0))


def line_of(record):
    return json.dumps(record, separators=(",", ":")).encode() + b"\n"


def of(kind, said):
    return [one for one in said if isinstance(one, kind)]


def test_its_prompt_and_messages_are_commands():
    wish = AgentSpec(instructions="say hello", model="stub/m", thinking="off", tools=())
    command = PiAgent().prepare(wish, ROOM).command
    assert list(command.argv) == [
        *("pi", "--mode", "rpc", "--model", "stub/m", "--thinking", "off", "--no-tools"),
    ]
    assert command.keep_stdin_open
    assert command.stdin == (
        b'{"id": "session", "type": "get_state"}\n'
        b'{"id": "prompt", "type": "prompt", "message": "say hello"}\n'
    )


def test_a_message_is_one_line_that_has_its_number_and_is_escaped_as_in_a_prompt():
    line = PiAgent().message_line(SAID)
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "id": "message-171",
        "type": "steer",
        "message": '<message id="171" sender="Ann&quot; &lt;root&gt;" time="2026-03-01T12:00:00Z" '
        'thread="cli:default">stop &lt;now&gt;\nand “wait”</message>',
    }
    assert PiAgent().message_in(line) == 171
    assert PiAgent().message_line(SAID) == line


@pytest.mark.parametrize(
    "line",
    [b"", b"nonsense", b'{"id": 7}', b'{"id": "message-171", "type": "prompt"}',
     b'{"id": "message-x", "type": "steer"}'],
)  # fmt: skip
def test_other_lines_are_no_messages(line):
    assert PiAgent().message_in(line) is None


def test_it_is_over_when_its_work_ends():
    said, verdict = heard(START, told("say hello"), answered("done"), END)
    assert of(AgentSessionStarted, said) == [AgentSessionStarted(id="7f3a")]
    assert said[-2:] == [AgentAnswer(text="done"), AgentInputClosed()]
    assert verdict.outcome == Succeeded(result='"done"')
    assert verdict.session == "7f3a"


def test_a_message_is_taken_when_the_model_has_answered_with_it_in_view():
    before = (START, told("say hello"), answered("the first"), MESSAGE)
    said, _ = heard(*before)
    assert not of(AgentMessageAccepted, said)
    assert not of(AgentAnswer, said)
    said, verdict = heard(*before, answered("the second"), END)
    assert of(AgentMessageAccepted, said) == [AgentMessageAccepted(message=171)]
    assert of(AgentTurnAnswer, said) == [AgentTurnAnswer(result='"the first"')]
    assert verdict.outcome == Succeeded(result='"the first\\n\\nthe second"', rest='"the second"')


def test_an_answer_that_broke_off_has_taken_nothing():
    said, _ = heard(START, told("say hello"), MESSAGE, BROKEN, END)
    assert not of(AgentMessageAccepted, said)


def test_a_prompt_that_looks_like_a_message_is_none():
    said, _ = heard(START, told('<message id="171" sender="Ann">x</message>'), answered("y"), END)
    assert not of(AgentMessageAccepted, said)


def test_after_an_error_it_is_asked_whether_it_goes_on():
    said, _ = heard(START, told("say hello"), BROKEN, END)
    assert of(AgentInputRequested, said)[-1] == AgentInputRequested(
        line='{"id": "rest-2", "type": "get_state"}\n'
    )
    assert not of(AgentInputClosed, said)
    assert not of(AgentError, said)
    said, verdict = heard(START, told("say hello"), BROKEN, END, state(2))
    assert said[-1] == AgentInputClosed()
    assert verdict.error is AgentErrorKind.OVERLOAD


def test_one_that_tries_again_by_itself_is_not_over():
    again = (START, told("say hello"), BROKEN, END, RETRY, state(2))
    said, _ = heard(*again)
    assert not of(AgentInputClosed, said)
    said, verdict = heard(*again, START, answered("done"), END)
    assert verdict.outcome == Succeeded(result='"done"')
    given_up = {"type": "auto_retry_end", "success": False, "finalError": "529 Overloaded"}
    said, verdict = heard(*again, START, BROKEN, END, given_up)
    assert said[-1] == AgentInputClosed()
    assert verdict.error is AgentErrorKind.OVERLOAD


def test_a_newer_one_says_itself_when_it_has_settled():
    settled, end = {"type": "agent_settled", "aborted": False}, {**END, "willRetry": False}
    said, _ = heard(START, told("say hello"), answered("the first"), end)
    assert not of(AgentInputClosed, said)
    more = (START, MESSAGE, answered("the second"), end, settled)
    said, verdict = heard(START, told("say hello"), answered("the first"), end, *more)
    assert said[-1] == AgentInputClosed()
    assert verdict.outcome == Succeeded(result='"the first\\n\\nthe second"', rest='"the second"')


def test_what_was_told_on_the_way_is_not_left_when_nothing_comes_after_it():
    _, verdict = heard(START, told("say hello"), answered("the first"), MESSAGE, END)
    assert verdict.outcome == Succeeded(result='"the first"', rest="")


def test_an_extension_that_asks_a_person_is_told_that_there_is_nobody():
    asked = {"type": "extension_ui_request", "id": "9d1c", "method": "confirm", "title": "Sure?"}
    said, _ = heard(START, asked, {**asked, "method": "notify"})
    answer = '{"type": "extension_ui_response", "id": "9d1c", "cancelled": true}\n'
    assert of(AgentInputRequested, said)[1:] == [AgentInputRequested(line=answer)]


def test_a_run_that_breaks_without_a_message_is_a_failure():
    end = {"type": "agent_end", "messages": [BROKEN["message"]]}
    assert heard(START, told("say hello"), end, state(2))[1].error is AgentErrorKind.OVERLOAD


def test_a_prompt_that_begins_nothing_is_over():
    said, verdict = heard(state(1))
    assert said[-1] == AgentInputClosed()
    assert verdict.error is AgentErrorKind.NO_RESULT
    assert not of(AgentInputClosed, heard(state(1, streaming=True))[0])
    assert not of(AgentInputClosed, heard(START, state(1))[0])


def test_a_prompt_that_is_refused_is_over():
    refused = {"id": "prompt", "type": "response", "success": False, "error": "No API key found"}
    said, verdict = heard(refused, since=OPENING[:1])
    assert said[-1] == AgentInputClosed()
    assert verdict.error is AgentErrorKind.AUTHENTICATION


@pytest.mark.parametrize("size", [MAX_LINE, 3 * MAX_LINE])
def test_an_end_that_is_too_long_to_be_read_is_an_end(size):
    end = {"type": "agent_end", "messages": ["x" * size]}
    reader = PiAgent().reader(HELLO, ROOM)
    for record in (*OPENING, START, told("say hello"), answered("done")):
        reader.feed(line_of(record))
    said = in_pieces(reader, line_of(end))
    assert said == [AgentAnswer(text="done"), AgentInputClosed()]


def test_an_answer_that_is_too_long_to_be_read_is_none_and_has_taken_its_message():
    reader = PiAgent().reader(HELLO, ROOM)
    for record in (*OPENING, START, told("say hello"), answered("the first"), MESSAGE):
        reader.feed(line_of(record))
    assert in_pieces(reader, line_of(answered("x" * MAX_LINE))) == [
        AgentMessageAccepted(message=171)
    ]
    said = [*reader.feed(line_of(END)), *reader.feed(line_of(state(2)))]
    assert said[-1] == AgentInputClosed()
    assert reader.end(ProcessExit(code=0)).error is AgentErrorKind.NO_RESULT


def in_pieces(reader, line, size=64 * 1024):
    starts = range(0, len(line), size)
    return [
        said
        for start in starts
        for said in reader.feed(line[start : start + size], cut=start + size < len(line))
    ]
