"""Any program: what it prints, and what comes of it."""

import json
import re
from pathlib import Path

import jsonschema_rs
import pytest

from rota.agents.command.agent import CommandAgent
from rota.errors import Invalid
from rota.model.agents import (
    MEANINGS,
    AgentAnswer,
    AgentError,
    AgentErrorKind,
    AgentMessageAccepted,
    AgentProgress,
    AgentQuestion,
    AgentSessionStarted,
    AgentSpec,
    AgentText,
    AgentToolCall,
    AgentUsage,
    OutputFormat,
    ProcessExit,
    PromptInput,
)
from rota.model.attempts import MAX_RESULT_BYTES, Failed, Succeeded, WaitingForAnswer
from rota.ports.agent import AgentWorkspace

AGENT = CommandAgent()
ROOM = AgentWorkspace(folder="/attempt", cwd="/work", home="/home/x")
PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "agent-lines.md").read_text()
EXAMPLES = [line for line in PAGE.splitlines() if line.startswith('{"rota"')]
SCHEMA = json.loads(re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)[1])
WELL = ProcessExit(code=0)


def wish(**choices):
    return AgentSpec(**{"instructions": "do it", "program": ("prog", "--flag"), **choices})


def told(*lines, end=WELL, output=OutputFormat.TEXT):
    reader = AGENT.reader(wish(output=output), ROOM)
    said = [
        one
        for line in lines
        for one in reader.feed(line if isinstance(line, bytes) else json.dumps(line).encode())
    ]
    return said, reader.end(end)


def test_the_whole_text_is_the_result_by_default():
    said, verdict = told(b"one", b"", b"two")
    assert said == [AgentText(text="one"), AgentText(text="two")]
    assert verdict.outcome == Succeeded(result='"one\\n\\ntwo"')


def test_the_last_line_can_be_the_result():
    assert told(b"one", b"two", b"  ", output=OutputFormat.LAST_LINE)[1].text == "two"


def test_agreed_on_lines_a_program_that_gives_no_result_has_failed():
    _, verdict = told(b"one", output=OutputFormat.LINES)
    assert verdict.error is AgentErrorKind.NO_RESULT
    assert verdict.outcome.message.endswith("one")


@pytest.mark.parametrize(
    "line",
    [
        {"rota": 5, "my": "own data"},
        {"rota": "progres", "percent": 4},
        {"rota": "progress"},
        {"rota": "tool"},
        {"rota": "text"},
        {"rota": "session", "id": 5},
        {"rota": "read"},
        {"rota": "progress", "percent": "x", "message": 5},
    ],
)
def test_a_line_that_is_not_understood_is_text(line):
    said, verdict = told(line, output=OutputFormat.LAST_LINE)
    assert said == [AgentText(text=json.dumps(line))]
    assert verdict.text == json.dumps(line)


def test_usage_in_words_that_nobody_knows_is_shown():
    line = {"rota": "usage", "cost": 0.01}
    assert told(line)[0] == [AgentText(text=json.dumps(line))]
    line = {"rota": "usage", "input_tokens": 3, "cost": 0.01}
    assert told(line)[0] == [AgentText(text=json.dumps(line)), AgentUsage(input=3)]


def test_a_line_that_has_no_text_says_nothing():
    assert told({"rota": "text", "text": ""})[0] == []


@pytest.mark.parametrize(
    ("line", "lacks"),
    [
        ({"rota": "question", "question": "Delete them?"}, "a question needs a text"),
        ({"rota": "question", "text": " "}, "a question needs a text"),
        ({"rota": "result", "value": 7}, "a result needs text or data, not value"),
        ({"rota": "result", "data": "x" * MAX_RESULT_BYTES}, "data may have at most 256 KiB"),
    ],
)
def test_a_question_or_a_result_that_cannot_be_kept_is_shown_and_is_a_failure(line, lacks):
    said, verdict = told(line, b"more", output=OutputFormat.LAST_LINE)
    shown = "".join(one.text for one in said if isinstance(one, AgentText))
    assert shown == json.dumps(line) + "more"
    assert isinstance(verdict.outcome, Failed)
    assert (verdict.error, lacks in verdict.outcome.message) == (AgentErrorKind.BAD_RESULT, True)
    _, better = told(line, {"rota": "result", "text": "in the end"})
    assert better.text == "in the end"


def test_a_program_that_says_nothing_and_ends_well_has_succeeded():
    assert told()[1].outcome == Succeeded()


def test_a_result_line_wins_over_the_text():
    _, verdict = told(b"noise", {"rota": "result", "text": "yes"}, b"noise")
    assert verdict.outcome == Succeeded(result='"yes"')


def test_data_are_kept_as_they_are():
    _, verdict = told({"rota": "result", "text": "two", "data": {"n": 2, "ä": [None]}})
    assert json.loads(verdict.outcome.result) == {"n": 2, "ä": [None]}


@pytest.mark.parametrize(
    "data",
    ["[" * 101 + "]" * 101, '{"n": 1e999}', '{"n": [-1e999]}', '{"k":' * 300 + "1" + "}" * 300],
)
def test_data_that_nobody_could_read_again_are_a_bad_result(data):
    _, verdict = told(f'{{"rota": "result", "text": "a", "data": {data}}}'.encode())
    assert (verdict.error, verdict.outcome.result if verdict.error is None else None) == (
        AgentErrorKind.BAD_RESULT,
        None,
    )


def test_data_of_a_hundred_levels_are_kept():
    _, verdict = told(b'{"rota": "result", "data": ' + b"[" * 99 + b"]" * 99 + b"}")
    assert isinstance(verdict.outcome, Succeeded)


def test_data_that_are_too_long_are_a_bad_result():
    _, verdict = told({"rota": "result", "data": "x" * (MAX_RESULT_BYTES + 1)})
    assert verdict.error is AgentErrorKind.BAD_RESULT


@pytest.mark.parametrize(
    ("character", "times"),
    [("x", 500_000), ("ä", 300_000), ('"', 300_000), ("\n", 300_000), ("😀", 200_000)],
)
def test_a_long_text_is_cut_in_its_middle_until_it_fits(character, times):
    line = {"rota": "result", "text": "begin" + character * times + "end"}
    _, verdict = told(json.dumps(line, ensure_ascii=False).encode())
    result = verdict.outcome.result
    assert MAX_RESULT_BYTES // 2 < len(result.encode()) <= MAX_RESULT_BYTES
    text = json.loads(result)
    assert text.startswith("begin")
    assert text.endswith("end")
    assert "characters left out" in text


def test_a_question_without_a_result_asks():
    _, verdict = told({"rota": "question", "text": "Which?", "options": ["a", "b"], "context": "c"})
    assert verdict.outcome == WaitingForAnswer(question="Which?", context="c", options=("a", "b"))


def test_a_program_cannot_say_that_somebody_stopped_it():
    _, verdict = told({"rota": "error", "class": "cancelled", "message": "x"})
    assert verdict.error is AgentErrorKind.OTHER


def test_a_line_that_is_too_long_is_text():
    long = json.dumps({"rota": "result", "text": "x" * 1_100_000}).encode()
    said, verdict = told(long, output=OutputFormat.LINES)
    assert verdict.error is AgentErrorKind.NO_RESULT
    assert all(isinstance(one, AgentText) for one in said)


def test_a_stream_may_end_within_a_line():
    reader = AGENT.reader(wish(), ROOM)
    assert not reader.feed(b'{"rota": "result", ', cut=True)
    assert not reader.feed(b'"text": "done"}', cut=True)
    assert reader.end(WELL).text == "done"


@pytest.mark.parametrize("line", EXAMPLES)
def test_the_examples_of_the_page_fit_its_schema_and_say_what_they_mean(line):
    jsonschema_rs.validator_for(SCHEMA).validate(json.loads(line))
    (said,) = told(line.encode())[0]
    assert type(said) is {
        "text": AgentText,
        "progress": AgentProgress,
        "tool": AgentToolCall,
        "usage": AgentUsage,
        "session": AgentSessionStarted,
        "read": AgentMessageAccepted,
        "question": AgentQuestion,
        "result": AgentAnswer,
        "error": AgentError,
    }.pop(json.loads(line)["rota"])


def test_every_kind_of_line_has_an_example():
    kinds = {kind["properties"]["rota"]["const"] for kind in SCHEMA["oneOf"]}
    assert {json.loads(line)["rota"] for line in EXAMPLES} == kinds


def test_the_page_lists_every_class():
    listed = dict(
        re.findall(r"^\| `(\w+)` \| (?:yes|no) \| (?:yes|no) \| (.*) \|$", PAGE, re.MULTILINE)
    )
    assert listed == {kind.value: meaning.sentence for kind, meaning in MEANINGS.items()}
    for kind, meaning in MEANINGS.items():
        soon, again = ("yes" if known else "no" for known in (meaning.transient, meaning.retry))
        assert f"| `{kind}` | {soon} | {again} |" in PAGE
    error = SCHEMA["oneOf"][-1]["properties"]["class"]["enum"]
    assert {*error, "cancelled"} == {kind.value for kind in AgentErrorKind}


@pytest.mark.parametrize(
    "line",
    [
        {"rota": "progress", "percent": 140},
        {"rota": "progress"},
        {"rota": "nonsense"},
        {"rota": "session", "id": "-rf"},
        {"rota": "error", "class": "cancelled"},
    ],
)
def test_the_schema_refuses_what_is_wrong(line):
    assert not jsonschema_rs.validator_for(SCHEMA).is_valid(line)


def test_the_instructions_go_to_the_input():
    command = AGENT.prepare(wish(), ROOM).command
    assert command.argv == ("prog", "--flag")
    assert command.stdin == b"do it"
    assert not command.keep_stdin_open


@pytest.mark.parametrize(
    ("program", "argv"),
    [
        (("prog",), ("prog", "do it")),
        (("prog", "--", "{instructions}", "x"), ("prog", "--", "do it", "x")),
    ],
)
def test_the_instructions_go_among_the_words(program, argv):
    command = AGENT.prepare(wish(program=program, prompt_by=PromptInput.ARGV), ROOM).command
    assert (command.argv, command.stdin) == (argv, b"")


@pytest.mark.parametrize("text", ["--version", "-", "-rf /", "--\n--x"])
@pytest.mark.parametrize(
    ("program", "literally"),
    [
        (("prog",), False),
        (("prog", "--say", "{instructions}"), False),
        (("env", "--", "prog", "{instructions}"), False),
        (("prog", "--", "{instructions}"), True),
    ],
)
def test_instructions_are_never_taken_for_an_option(text, program, literally):
    asked = wish(program=program, prompt_by=PromptInput.ARGV, instructions=text)
    argv = AGENT.prepare(asked, ROOM).command.argv
    assert argv[-1] == (text if literally else f" {text}")
    assert argv[:-1] == tuple(word for word in program if word != "{instructions}")


def test_only_a_whole_word_is_replaced():
    program = ("sh", "-c", "think {instructions}")
    argv = AGENT.prepare(wish(program=program, prompt_by=PromptInput.ARGV), ROOM).command.argv
    assert argv == ("sh", "-c", "think {instructions}", "do it")


def test_a_session_comes_back_in_the_environment():
    room = AgentWorkspace(folder="/attempt", cwd="/work", home="/home/x", session="7f3a")
    assert AGENT.prepare(wish(), room).command.env["ROTA_SESSION"] == "7f3a"


@pytest.mark.parametrize(
    ("field", "choices"),
    [
        ("command", {"program": ()}),
        ("command", {"program": ("a\x00b",)}),
        ("command", {"program": ("{instructions}",), "prompt_by": PromptInput.ARGV}),
        ("instructions", {"instructions": " "}),
        ("instructions", {"instructions": "a\x00b"}),
        ("instructions", {"instructions": "x" * 200_000, "prompt_by": PromptInput.ARGV}),
        ("instructions", {"instructions": "x" * 1_100_000}),
        ("variables", {"variables": ("A=B",)}),
        ("model", {"model": "opus"}),
        ("tools", {"tools": ("Bash",)}),
        ("thinking", {"thinking": "high"}),
    ],
)
def test_what_a_plain_program_cannot_do_is_refused(field, choices):
    with pytest.raises(Invalid) as refused:
        AGENT.check(wish(**choices))
    assert refused.value.field == field


def test_a_failing_program_tells_by_its_last_words_on_standard_error():
    end = ProcessExit(code=3, stderr_tail=b"\x1b[31mTraceback\x1b[0m\nValueError: no")
    outcome = told(b"fine", end=end)[1].outcome
    assert isinstance(outcome, Failed)
    assert outcome.message.splitlines()[1:] == ["exit code 3", "Traceback", "ValueError: no"]
