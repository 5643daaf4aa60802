"""Output: every byte counts once, whole lines at a time, and its end is on record."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rota.agents.claude.reader import ClaudeReader
from rota.agents.command.reader import CommandReader
from rota.flow.attempt import output as hearing_module
from rota.flow.attempt.output import (
    END,
    MAX_LINE,
    MOST_EVENTS,
    MOST_LAST,
    MOST_TEXT,
    NOT_COUNTED,
    OutputParser,
    clean_for_display,
    lines_of,
)
from rota.flow.attempt.prepare import result_line
from rota.model.agents import OutputFormat, ProcessExit
from rota.model.attempts import ExitReason, ExitRecord, OutputStream, SpoolState
from rota.model.events import EventName
from rota.model.text import COLOUR, MORE, clean, coloured
from rota.store.attempts import list_kept_attempts
from rota.store.views import list_run_output
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on

# reading


def hearing():
    return OutputParser(CommandReader(OutputFormat.LAST_LINE))


def told(*parts):
    """Return the text of what was heard."""
    events = [event for part in parts if part is not None for event in part.happened]
    return "\n".join(e.data["text"] for e in events if e.name is EventName.OUTPUT)


def test_only_whole_lines_count_until_the_end():
    heard = hearing()
    first = heard.take(OutputStream.OUT, b"one\ntw")
    assert (first.start, first.end, told(first)) == (0, 4, "one")
    assert heard.take(OutputStream.OUT, b"tw") is None
    last = heard.take(OutputStream.OUT, b"two", last=True)
    assert (last.start, last.end, told(last)) == (4, 7, "two")
    assert heard.reader.end(ProcessExit(code=0)).outcome.result == '"two"'


@pytest.mark.parametrize("blank", [b"  ", b"\r", b" \t"])
def test_blanks_before_a_line_of_rotas_do_not_make_it_text(blank):
    heard = OutputParser(CommandReader(OutputFormat.LINES))
    line = blank + b'{"rota": "usage", "input_tokens": 5, "cost_usd": 50}\n'
    assert heard.take_part(OutputStream.OUT, blank) is None
    part = heard.take(OutputStream.OUT, line)
    assert part.used.used.cost == 50_000_000


def test_the_streams_are_counted_apart():
    heard = hearing()
    out, err = (
        heard.take(OutputStream.OUT, b"a\n"),
        heard.take(OutputStream.ERR, b"oh\x1b[31m no\n"),
    )
    assert (out.end, err.start, err.end) == (2, 0, 11)
    assert [event.data["stream"] for event in (*out.happened, *err.happened)] == ["out", "err"]
    assert told(err) == "oh no"


def test_neighbouring_lines_share_an_event():
    (event,) = hearing().take(OutputStream.OUT, b"".join(b"%d\n" % n for n in range(100))).happened
    assert event.data["text"].splitlines() == [str(n) for n in range(100)]


def test_what_is_no_text_is_an_event_of_its_own():
    data = b'a\n{"rota": "progress", "percent": 40, "message": "half"}\nb\n'
    names = [event.name for event in hearing().take(OutputStream.OUT, data).happened]
    assert names == [EventName.OUTPUT, EventName.PROGRESS, EventName.OUTPUT]


def test_an_endless_program_fills_no_database():
    heard, line = hearing(), b"x" * 1000 + b"\n"
    parts = [heard.take(OutputStream.OUT, line * 100) for _ in range(30)]
    assert heard.at(OutputStream.OUT) == 30 * 100 * len(line)
    text = told(*parts)
    assert len(text) < MOST_TEXT + 10_000
    assert text.endswith(MORE)


def test_many_short_lines_are_kept_and_what_is_no_text_is_kept_behind_all_text():
    heard = hearing()
    parts = [heard.take(OutputStream.OUT, b"%d\n" % n * 100) for n in range(300)]
    assert told(*parts).count("\n") == 300 * 100 - 1
    parts = [
        heard.take(OutputStream.OUT, b"x" * 1000 + b"\n") for _ in range(2 * MOST_TEXT // 1000)
    ]
    assert told(*parts).endswith(MORE)
    line = b'{"rota": "progress", "percent": 90, "message": "nearly"}\n'
    (event,) = heard.take(OutputStream.OUT, line).happened
    assert event.data["percent"] == 90


@pytest.mark.parametrize("line", [b"a\n", b'{"rota": "progress", "percent": 1}\n'])
def test_an_endless_program_that_says_little_at_a_time_fills_no_database(line):
    heard = hearing()
    happened = [
        event
        for _ in range(MOST_EVENTS + 9)
        for event in heard.take(OutputStream.OUT, line).happened
    ]
    assert len(happened) == MOST_EVENTS
    assert happened[-1].data["text"] == MORE


def test_a_new_reader_fed_from_the_start_comes_to_the_same():
    data = b'one\ntwo\n{"rota": "result", "text": "three"}\n'
    first = hearing()
    first.take(OutputStream.OUT, data)
    again = hearing()
    for n in range(0, len(data), 7):
        again.take(OutputStream.OUT, data[again.at(OutputStream.OUT) : n + 7])
    again.take(OutputStream.OUT, data[again.at(OutputStream.OUT) :], last=True)
    end = ProcessExit(code=0)
    assert again.reader.end(end).outcome == first.reader.end(end).outcome


@given(st.binary(max_size=400), st.booleans())
def test_lines_are_the_bytes_they_were(data, last):
    lines = [line for line, _ in lines_of(data, last=last)]
    joined = b"".join(lines)
    assert data.startswith(joined)
    assert joined == data if last else b"\n" not in data[len(joined) :]


def test_a_line_that_is_too_long_comes_in_parts():
    data = b"y" * (2 * MAX_LINE + 5) + b"\nend\n"
    parts = list(lines_of(data, last=False))
    assert [cut for _, cut in parts] == [True, True, False, False]
    assert b"".join(line for line, _ in parts) == data


def test_colours_are_kept_beside_the_text_and_nothing_else_a_terminal_obeys():
    hearing = OutputParser(CommandReader(OutputFormat.TEXT))
    red = b"\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jand \x1b[1;38:2:9mmore"
    heard = hearing.take(OutputStream.OUT, b"plain\n" + red + b"\n")
    (event,) = heard.happened
    assert event.data["text"] == "plain\nred and more"
    assert event.data["ansi"] == "plain\n\x1b[31mred\x1b[0m and \x1b[1;38:2:9mmore\x1b[0m"
    heard = hearing.take(OutputStream.ERR, b"\x1b[33mcareful\x1b[0m\n")
    assert heard.happened[0].data["ansi"] == "\x1b[33mcareful\x1b[0m\x1b[0m"
    heard = hearing.take(OutputStream.OUT, b"plain again\n")
    assert "ansi" not in heard.happened[0].data


@pytest.mark.parametrize(
    "raw",
    [
        "\x1b\x1b[31m[2J", "\x1b[31\x1b[0mm", "\x1b]0;\x1b[31mtitle\x07", "\x9b\x1b[31m2J",
        "\x1bP\x1b[31mq\x1b\\", "\x1b[\x1b[31m2J", "\x1b[31;" + "1" * 99 + "m\x1b[32mx",
    ],
)  # fmt: skip
def test_no_colour_carries_another_sequence(raw):
    shown = coloured(raw) or ""
    left = COLOUR.sub("", shown)
    assert "\x1b" not in left
    assert "\x9b" not in left
    assert clean(left) == left


@pytest.mark.parametrize(
    ("part", "shown"),
    [
        (b"Continue? [y/N] ", b"Continue? [y/N] "),
        (b"loading....", b"loading...."),
        (b"loading.... 12", b"loading.... "),
        (b"my key is sk-12", b"my key is "),
        (b"half", b""),
        (b"\x1b[31mred \x1b[0m now", b"\x1b[31mred \x1b[0m "),
        (b"red \x1b]0;a title", b"red "),
        ("a caf\N{LATIN SMALL LETTER E WITH ACUTE}".encode()[:-1], b"a "),
    ],
)
def test_of_a_line_that_is_not_whole_only_whole_words_are_shown(part, shown):
    assert clean_for_display(part) == shown


@pytest.mark.parametrize("stream", list(OutputStream))
def test_a_line_may_be_heard_in_parts_and_each_byte_counts_once(stream):
    heard = hearing()
    assert heard.take(stream, b"one\nContinue? ye").end == 4
    part = heard.take_part(stream, b"Continue? ye")
    assert (part.start, part.end, told(part)) == (4, 14, "Continue? ")
    assert part.happened[0].data["open"]
    assert heard.take_part(stream, b"ye") is None
    rest = heard.take(stream, b"yes\ntwo\n")
    assert (rest.start, rest.end) == (14, 22)
    first, second = rest.happened
    assert (first.data["text"], first.data.get("continues")) == ("yes", True)
    assert (second.data["text"], "continues" in second.data) == ("two", False)


def test_a_line_in_parts_is_one_line_for_its_reader():
    heard = hearing()
    heard.take_part(OutputStream.OUT, b"all of ")
    heard.take_part(OutputStream.OUT, b"this is ")
    heard.take(OutputStream.OUT, b"it", last=True)
    assert heard.last_line == "all of this is it"
    assert heard.reader.end(ProcessExit(code=0)).outcome.result == '"all of this is it"'


def test_a_line_of_rota_is_never_shown_in_parts():
    heard = hearing()
    assert heard.take_part(OutputStream.OUT, b'  {"rota": "text", ') is None
    assert OutputParser(ClaudeReader()).take_part(OutputStream.OUT, b"some words ") is None


def test_who_comes_later_goes_on_in_the_middle_of_a_line():
    later = hearing()
    later.take(OutputStream.OUT, b"one\nContinue? ", known=True)
    rest = later.take(OutputStream.OUT, b"yes\n")
    assert (rest.start, told(rest)) == (14, "yes")
    assert rest.happened[0].data["continues"]
    assert later.reader.end(ProcessExit(code=0)).outcome.result == '"Continue? yes"'


# the end of an output

WELL = ExitRecord(reason=ExitReason.EXITED, code=0)
LINES = [f"line {n} {'x' * 990}".encode() for n in range(3_000)]


def parser_for(output=OutputFormat.LAST_LINE):
    return OutputParser(CommandReader(output))


def texts(heard):
    return [] if heard is None else [event.data["text"] for event in heard.happened]


def test_what_is_wholly_on_record_has_no_end_besides():
    heard = parser_for()
    heard.take(OutputStream.OUT, b"one\ntwo\n", last=True)
    assert heard.finish(WELL, 0) is None


def test_the_last_lines_of_a_long_output_are_recorded_and_what_is_missing_is_counted():
    heard = parser_for()
    parts = [heard.take(OutputStream.OUT, line + b"\n") for line in LINES]
    recorded = [text for part in parts for text in texts(part)][:-1]
    last = heard.finish(WELL, 2)
    assert {event.data[END] for event in last.happened} == {2}
    assert (last.start, last.end) == (heard.at(OutputStream.OUT), heard.at(OutputStream.OUT))
    first, *rest = texts(last)
    ends = "\n".join(rest)
    kept = ends.split("\n")
    assert kept == [line.decode() for line in LINES[-len(kept) :]]
    assert MOST_TEXT - 1_000 < len(ends) <= MOST_TEXT + MOST_EVENTS
    left_out = len(LINES) - len(recorded) - len(kept)
    assert first == f"… {left_out} lines are left out"


def test_nothing_is_missing_of_an_output_that_is_a_little_too_long():
    heard, lines = parser_for(), LINES[: MOST_TEXT // len(LINES[0]) + 100]
    parts = [heard.take(OutputStream.OUT, line + b"\n") for line in lines]
    recorded = [text for part in parts for text in texts(part)][:-1]
    last = "\n".join(texts(heard.finish(WELL, 0)))
    assert [*recorded, *last.split("\n")] == [line.decode() for line in lines]


def test_many_short_lines_hold_little_memory():
    heard = parser_for()
    for start in range(0, 40_000, 1_000):
        lines = (b"%050d\n" % n for n in range(start, start + 1_000))
        heard.take(OutputStream.OUT, b"".join(lines))
    first, *rest = texts(heard.finish(WELL, 0))
    kept = "\n".join(rest).split("\n")
    assert (first.endswith(" lines are left out"), len(kept)) == (True, MOST_LAST)
    assert int(kept[-1]) == 39_999


def test_the_result_is_found_behind_more_than_a_spool_holds():
    heard = parser_for(OutputFormat.LINES)
    heard.take(OutputStream.OUT, b"head\n", last=True)
    tail = b'cut off\nthe end\n{"rota": "result", "text": "done"}\n'
    out = SpoolState(size=5, total=1_005 + len(tail), tail=tail)
    last = heard.finish(ExitRecord(reason=ExitReason.EXITED, code=0, out=out), 0)
    assert texts(last) == ["… 1,000 bytes are left out\nthe end"]
    assert heard.reader.end(ProcessExit(code=0)).text == "done"


@pytest.mark.parametrize("size", [1, 2, 17])
def test_a_result_is_found_behind_a_long_line_that_a_spool_ended_in(size):
    heard = parser_for(OutputFormat.LINES)
    heard.take(OutputStream.OUT, b"y" * size * MAX_LINE, last=True)
    tail = b'yyy\n{"rota": "result", "text": "done"}\n'
    out = SpoolState(size=size * MAX_LINE, total=10**9, tail=tail)
    heard.finish(ExitRecord(reason=ExitReason.EXITED, code=0, out=out), 0)
    assert heard.reader.end(ProcessExit(code=0)).text == "done"


def test_a_result_file_counts_though_the_last_line_has_no_end():
    heard = parser_for(OutputFormat.LAST_LINE)
    heard.take(OutputStream.OUT, b"y" * MAX_LINE, last=True)
    last = heard.finish(ExitRecord(reason=ExitReason.EXITED, code=0), 0)
    assert len("".join(texts(last))) == MAX_LINE
    heard.reader.feed(result_line(b"done"))
    assert heard.reader.end(ProcessExit(code=0)).text == "done"


@pytest.mark.parametrize(
    "ending",
    [
        ExitRecord(reason=ExitReason.CANCELLED),
        ExitRecord(reason=ExitReason.HARD_TIMEOUT),
        ExitRecord(reason=ExitReason.EXITED, code=3),
    ],
)
@pytest.mark.parametrize("result", [{"text": "paid"}, {"data": {"paid": 3}}])
def test_a_result_that_does_not_count_can_be_read(ending, result):
    heard = parser_for(OutputFormat.LINES)
    heard.take(OutputStream.OUT, json.dumps({"rota": "result", **result}).encode(), last=True)
    (text,) = texts(heard.finish(ending, 0))
    assert text.startswith(f"{NOT_COUNTED}\n")
    assert "paid" in text


async def test_who_carries_on_records_an_end_once(desk, chance, monkeypatch):
    yard = FakeYard()
    monkeypatch.setattr(hearing_module, "HEAD_TEXT", 10)
    given = await assignment(desk)
    for _ in range(2):
        if not yard.out:
            yard.end(b"more than ten\nand the end\n")
        await work_on(desk.store, yard, chance).run(given)
        (kept,) = await desk.store.read(list_kept_attempts, yard.home)
        given = given._replace(kept=kept)
    events = await desk.store.read(list_run_output, given.lease.run_id, 100)
    ends = [event.data["text"] for event in events if END in event.data]
    assert ends == ["more than ten\nand the end"]


# what spools say of the end

UNSTARTED = b"cannot start count: No such file or directory\n"


async def outcome_of(desk, chance, out=b"", err=b"", **facts):
    given = await assignment(desk)
    yard = FakeYard()
    yard.err = err
    yard.end(out, **facts)
    return (await work_on(desk.store, yard, chance).run(given)).outcome


@pytest.mark.parametrize("code", [126, 127])
@pytest.mark.parametrize(
    ("out", "err"),
    [
        (b"built\n", b"sh: 3: upload: not found\n"),
        (b"built\n" + UNSTARTED, b""),
        (b"built\n", UNSTARTED),
        (b"", b"built\n" + UNSTARTED),
        (b"", b""),
    ],
)
async def test_a_script_that_called_what_is_missing_is_tried_again(desk, chance, code, out, err):
    outcome = await outcome_of(desk, chance, out, err, code=code)
    assert (outcome.code, outcome.retryable) == ("other", True)
    assert f"exit code {code} (" in outcome.message


@pytest.mark.parametrize("stream", ["out", "err"])
async def test_a_script_that_its_executor_cannot_start_is_not_tried_again(desk, chance, stream):
    outcome = await outcome_of(desk, chance, **{stream: UNSTARTED}, code=126)
    assert (outcome.code, outcome.retryable) == ("script_unavailable", False)
    assert "It cannot be started: count: No such file or directory;" in outcome.message
