"""The end of an output: people look there first, so it is on record whatever came before it."""

from __future__ import annotations

import json

import pytest

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
)
from rota.flow.attempt.prepare import result_line
from rota.model.agents import OutputFormat, ProcessExit
from rota.model.attempts import ExitReason, ExitRecord, OutputStream, SpoolState
from rota.store.attempts import list_kept_attempts
from rota.store.views import list_run_output
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on

WELL = ExitRecord(reason=ExitReason.EXITED, code=0)
LINES = [f"line {n} {'x' * 990}".encode() for n in range(3_000)]


def hearing(output=OutputFormat.LAST_LINE):
    return OutputParser(CommandReader(output))


def texts(heard):
    return [] if heard is None else [event.data["text"] for event in heard.happened]


def test_what_is_wholly_on_record_has_no_end_besides():
    heard = hearing()
    heard.take(OutputStream.OUT, b"one\ntwo\n", last=True)
    assert heard.finish(WELL, 0) is None


def test_the_last_lines_of_a_long_output_are_recorded_and_what_is_missing_is_counted():
    heard = hearing()
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
    heard, lines = hearing(), LINES[: MOST_TEXT // len(LINES[0]) + 100]
    parts = [heard.take(OutputStream.OUT, line + b"\n") for line in lines]
    recorded = [text for part in parts for text in texts(part)][:-1]
    last = "\n".join(texts(heard.finish(WELL, 0)))
    assert [*recorded, *last.split("\n")] == [line.decode() for line in lines]


def test_many_short_lines_hold_little_memory():
    heard = hearing()
    for start in range(0, 40_000, 1_000):
        lines = (b"%050d\n" % n for n in range(start, start + 1_000))
        heard.take(OutputStream.OUT, b"".join(lines))
    first, *rest = texts(heard.finish(WELL, 0))
    kept = "\n".join(rest).split("\n")
    assert (first.endswith(" lines are left out"), len(kept)) == (True, MOST_LAST)
    assert int(kept[-1]) == 39_999


def test_the_result_is_found_behind_more_than_a_spool_holds():
    heard = hearing(OutputFormat.LINES)
    heard.take(OutputStream.OUT, b"head\n", last=True)
    tail = b'cut off\nthe end\n{"rota": "result", "text": "done"}\n'
    out = SpoolState(size=5, total=1_005 + len(tail), tail=tail)
    last = heard.finish(ExitRecord(reason=ExitReason.EXITED, code=0, out=out), 0)
    assert texts(last) == ["… 1,000 bytes are left out\nthe end"]
    assert heard.reader.end(ProcessExit(code=0)).text == "done"


@pytest.mark.parametrize("size", [1, 2, 17])
def test_a_result_is_found_behind_a_long_line_that_a_spool_ended_in(size):
    heard = hearing(OutputFormat.LINES)
    heard.take(OutputStream.OUT, b"y" * size * MAX_LINE, last=True)
    tail = b'yyy\n{"rota": "result", "text": "done"}\n'
    out = SpoolState(size=size * MAX_LINE, total=10**9, tail=tail)
    heard.finish(ExitRecord(reason=ExitReason.EXITED, code=0, out=out), 0)
    assert heard.reader.end(ProcessExit(code=0)).text == "done"


def test_a_result_file_counts_though_the_last_line_has_no_end():
    heard = hearing(OutputFormat.LAST_LINE)
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
    heard = hearing(OutputFormat.LINES)
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
