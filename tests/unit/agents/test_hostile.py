"""Whatever a program prints: nothing raises, nothing grows, and what is said is safe."""

import json
import tracemalloc
from dataclasses import fields, is_dataclass

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from rota.agents.claude.reader import ClaudeReader
from rota.agents.codex.reader import CodexReader
from rota.agents.command.reader import CommandReader
from rota.agents.pi.reader import PiRpcReader
from rota.agents.shared.reader import MAX_EVENTS
from rota.agents.shared.stream import MAX_TEXT
from rota.model.agents import (
    AgentAnswer,
    AgentErrorKind,
    AgentProgress,
    AgentUsage,
    OutputFormat,
    ProcessExit,
)
from rota.model.attempts import MAX_RESULT_BYTES, Succeeded
from rota.model.text import clean
from tests.unit.agents.golden import FOLDER


def commanded(reader):
    """Return a reader that has heard an answer to a command."""
    reader.feed(b'{"type":"response"}')
    return reader


READERS = {
    "claude": ClaudeReader,
    "codex": CodexReader,
    "pi": PiRpcReader,
    "steered pi": lambda: commanded(PiRpcReader()),
    "text": lambda: CommandReader(OutputFormat.TEXT),
    "last_line": lambda: CommandReader(OutputFormat.LAST_LINE),
    "lines": lambda: CommandReader(OutputFormat.LINES),
}
KEYS = sorted(
    {
        "type", "subtype", "message", "content", "text", "usage", "input_tokens", "result",
        "is_error", "errors", "session_id", "model", "name", "input", "todos", "item", "items",
        "error", "args", "role", "stopReason", "cost", "total", "rota", "percent", "options",
        "data", "id", "class", "until", "status", "modelUsage", "thread_id", "changes",
        "model_usage_since_last_result", "rate_limit_info", "resetsAt", "api_error_status",
        "taskId", "task", "tasks", "tool_use_id", "tool_use_result",
    }
)  # fmt: skip
WORDS = [
    "assistant", "system", "result", "success", "text", "tool_use", "message_end", "stop", "error",
    "item.completed", "todo_list", "agent_message", "turn.completed", "turn.failed", "question",
    "progress", "usage", "session", "tool", "rate_limit_event", "api_retry", "TodoWrite",
    "TaskCreate", "TaskUpdate", "TaskList", "tool_result", "length",
]  # fmt: skip
LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, -(10**30), 1e308, "\ud800", "\x00", "\x1b]0;x\x07"])
    | st.sampled_from(WORDS)
    | st.text(max_size=20)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=6)
    ),
    max_leaves=25,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, min_size=1, max_size=8)
RECORDED = [
    json.loads(line)
    for path in sorted(FOLDER.glob("*.jsonl"))
    for line in path.read_text().splitlines()
]


@pytest.mark.parametrize("size", [64 * 1024, 1024 * 1024, 1_500_000])
def test_an_answer_of_codex_that_is_too_long_to_be_read_is_no_result(size):
    def item(text):
        return {"type": "item.completed",
                "item": {"id": "item_1", "type": "agent_message", "text": text}}  # fmt: skip

    reader = CodexReader()
    for record in (item("I will look first."), item("x" * size), {"type": "turn.completed"}):
        line, part = json.dumps(record, separators=(",", ":")).encode() + b"\n", 64 * 1024
        for at in range(0, len(line), part):
            reader.feed(line[at : at + part], cut=at + part < len(line))
    verdict = reader.end(ProcessExit(code=0))
    read = size < 1024 * 1024
    assert (verdict.error, verdict.text == "x" * size) == (
        None if read else AgentErrorKind.NO_RESULT,
        read,
    )


@pytest.mark.parametrize("reader", [PiRpcReader, ClaudeReader])
def test_a_tool_may_be_used_for_whatever_is_deep(reader):
    for depth in range(100, 1_100):
        deep = b'{"a":' * depth + b"1" + b"}" * depth
        one = b'{"type":"tool_execution_start","toolName":"x","args":' + deep + b"}\n"
        two = b'{"type":"tool_use","name":"x","input":' + deep + b"}"
        other = b'{"type":"assistant","message":{"content":[' + two + b"]}}\n"
        reader().feed(one if reader is PiRpcReader else other)


@st.composite
def bent(draw):
    """A recorded line in which some values are something else."""
    record = json.loads(json.dumps(draw(st.sampled_from(RECORDED))))
    for _ in range(draw(st.integers(1, 4))):
        place = record
        while isinstance(place, dict) and place:
            key = draw(st.sampled_from(sorted(place)))
            if not isinstance(place[key], dict) or draw(st.booleans()):
                place[key] = draw(VALUES)
                break
            place = place[key]
    return record


LINES = st.one_of(
    st.binary(max_size=200),
    OBJECTS.map(json.dumps).map(str.encode),
    bent().map(json.dumps).map(str.encode),
    st.sampled_from([b"", b"{", b"[" * 100_000, b'{"rota":' * 50_000, b"\xff\xfe{", b"null"]),
)
ENDS = st.builds(
    ProcessExit,
    code=st.none() | st.integers(-1, 300),
    signal=st.none() | st.integers(1, 64),
    stderr_tail=st.binary(max_size=300),
)


def texts_of(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from texts_of(one)
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts_of(getattr(value, field.name))


def assert_safe(value):
    for text in texts_of(value):
        text.encode()
        assert not any(ord(c) < 32 and c not in "\n\t" for c in text), repr(text)
        assert "\x7f" not in text
        if not isinstance(value, AgentAnswer):
            assert len(text) <= MAX_TEXT
    if isinstance(value, AgentProgress) and value.percent is not None:
        assert 0 <= value.percent <= 100
    if isinstance(value, AgentUsage):
        assert min(value.input, value.output, value.cached) >= 0
        assert value.cost is None or 0 <= value.cost < float("inf")


@pytest.mark.parametrize("kind", READERS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(lines=st.lists(st.tuples(LINES, st.booleans()), max_size=6), end=ENDS)
@example(lines=[(b'{"rota":"result","data":"\\ud800"}', False)], end=ProcessExit(code=0))
@example(
    lines=[(b'{"type":"result","total_cost_usd":-1,"usage":{}}', False)], end=ProcessExit(code=0)
)
def test_any_lines_and_any_end_give_safe_words_and_one_verdict(kind, lines, end):
    reader = READERS[kind]()
    for line, cut in lines:
        said = reader.feed(line, cut=cut)
        assert len(said) <= MAX_EVENTS
        for one in said:
            assert_safe(one)
    verdict = reader.end(end)
    assert_safe(verdict.usage)
    assert not isinstance(verdict.outcome, Succeeded) or end.code == 0
    json.dumps(verdict.outcome.result if isinstance(verdict.outcome, Succeeded) else "").encode()
    if isinstance(verdict.outcome, Succeeded) and verdict.outcome.result is not None:
        json.loads(verdict.outcome.result)
        assert len(verdict.outcome.result.encode()) <= MAX_RESULT_BYTES


FLOODS = {
    "lines": (b"x" * 10_000, False),
    "no line end": (b"x" * 65_536, True),
    "line ends": (b"", False),
    "rota lines": (b'{"rota": "text", "text": "%s"}' % (b"x" * 10_000), False),
    "claude": (
        b'{"type":"assistant","session_id":"a","message":{"id":"b","content":'
        b'[{"type":"text","text":"%s"}]}}' % (b"x" * 10_000),
        False,
    ),
    "codex": (
        b'{"type":"item.completed","item":{"type":"agent_message","text":"%s"}}' % (b"x" * 10_000),
        False,
    ),
}


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("kind", ["claude", "codex", "pi", "steered pi", "text"])
def test_a_flood_does_not_fill_the_memory(kind, flood):
    piece, cut = FLOODS[flood]
    reader = READERS[kind]()
    times = 16 * 1024 * 1024 // 65_536 if cut else 1_000
    tracemalloc.start()
    try:
        for _ in range(times):
            reader.feed(piece, cut=cut)
        held, _ = tracemalloc.get_traced_memory()
        reader.end(ProcessExit(code=0))
    finally:
        tracemalloc.stop()
    assert held < 4 * 1024 * 1024


def test_the_result_of_a_flood_has_both_ends_of_it():
    reader = READERS["text"]()
    for number in range(60_000):
        reader.feed(b"line %d" % number)
    text = reader.end(ProcessExit(code=0)).text
    assert text.startswith("line 0\n")
    assert text.endswith("line 59999")
    assert "characters left out]" in text


@pytest.mark.parametrize(
    ("raw", "safe"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07after", "after"),
        ("\x1b]8;;http://evil\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1b]52;c;cGFzdGU=\x07", ""),
        ("\x9b31mred", "red"),
        ("50%\r100%", "50%\n100%"),
        ("a\x00b\x08c\x7fd\x85e", "abcde"),
        ("half \ud800 character", "half \ufffd character"),
        ("safe \u202etxt.exe", "safe txt.exe"),
        ("tab\tand\nline, ümläut, 😀", "tab\tand\nline, ümläut, 😀"),
        ("\x1b", ""),
    ],
)
def test_text_is_made_safe(raw, safe):
    assert clean(raw) == safe


@pytest.mark.parametrize("kind", ["claude", "codex", "pi"])
def test_streams_that_are_mixed_up_or_of_another_agent_do_no_harm(kind):
    reader = READERS[kind]()
    for path in sorted(FOLDER.glob("*.jsonl")):
        for line in path.read_bytes().splitlines():
            for one in reader.feed(line):
                assert_safe(one)
    reader.end(ProcessExit(code=0))
