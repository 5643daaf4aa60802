"""Records in words: lengths, shares, and nothing where there is nothing."""

from __future__ import annotations

import pytest

from rota.cli.display import NOTHING
from rota.cli.run_text import (
    agent_error_text,
    drop_partial_lines,
    event_row,
    merge_retries,
    without_output,
)
from rota.cli.status import gone_text, worker_rows
from rota.model.text import MORE

HELLO = ("--call", "rota.samples:hello")


def worker(name, *, alive, running=0):
    seen = {"seen_at": "2026-11-15T12:00:00Z", "slots": 5, "roles": ["worker"]}
    return {"id": name, "alive": alive, "running": running, **seen}


def test_a_policy_tells_lengths_as_people_say_them(rota):
    rota.ok("task", "create", "x", *HELLO, "--timeout", "600s", "--deadline", "90m")
    shown = rota.ok("task", "show", "x").out
    assert "timeout 10 min, deadline 1 h 30 min" in shown


@pytest.mark.parametrize(("percent", "told"), [(4.0, "4 %"), (12.5, "12.5 %"), (None, "")])
def test_a_share_is_told_in_percent(percent, told):
    event = {"name": "run.progress", "at": "2026-11-15T12:00:00Z", "data": {"percent": percent}}
    assert event_row(event, "UTC")[2].startswith(told)


def test_what_an_event_does_not_know_is_left_out():
    used = {"input": 3, "output": 0, "cost": None, "model": None, "of_session": False}
    event = {"name": "run.usage", "at": "2026-11-15T12:00:00Z", "data": used}
    assert event_row(event, "UTC")[2] == "input=3 output=0"


def an_event(number, name, **data):
    return {"id": number, "name": name, "at": "2026-11-15T12:00:00Z", "data": data}


def test_a_fault_and_the_wait_that_follows_are_told_once():
    busy = an_event(1, "run.agent_error", kind="overload", detail="busy at provider")
    wait = {"kind": "overload", "retry": 1, "of": 3, "at": "2026-11-15T12:00:05Z"}
    again, end = an_event(2, "run.agent_error", **wait), an_event(3, "run.settled")
    one, last = merge_retries([busy, again, end])
    told = "The model's provider is overloaded (busy at provider); Rota tries again"
    assert agent_error_text(one["data"], "UTC") == f"{told} at 2026-11-15 12:00:05 (1 of 3)."
    assert last == end
    assert list(merge_retries([busy, end])) == [busy, end]
    assert list(merge_retries([busy])) == [busy]


def test_the_end_of_an_output_is_not_promised_once_it_is_there():
    begin = an_event(1, "run.output", stream="out", text=f"a\n{MORE}")
    alone, end = an_event(2, "run.output", text=MORE), an_event(3, "run.output", text="z")
    assert [event["data"]["text"] for event in drop_partial_lines([begin, alone, end])] == [
        "a\n",
        "z",
    ]
    assert drop_partial_lines([begin]) == [begin]


def test_an_error_does_not_repeat_what_the_output_has_told():
    wrote = "Traceback:\n  File x\nValueError: no"
    run = {"logs": [{"text": f"{wrote}\n"}]}
    assert (
        without_output(f"ValueError: no\nexit code 1\n{wrote}", run)
        == "ValueError: no\nexit code 1"
    )
    assert without_output("exit code 1\nanother line", run) == "exit code 1\nanother line"


def test_a_run_that_never_began_has_no_start(rota, hello):
    rota.ok("task", "run", hello)
    rota.ok("task", "run", hello)
    rota.ok("cancel", "2")
    cancelled, queued = rota.ok("runs").out.splitlines()[1:]
    for row, state in ((cancelled, "cancelled"), (queued, "queued")):
        assert row.split()[2:6] == [state, NOTHING, NOTHING, NOTHING]


def test_a_disabled_task_has_nothing_next(rota):
    rota.ok("task", "create", "x", *HELLO, "--cron", "0 7 1 1 *")
    assert "-01-01 07:00:00" in rota.ok("ls").out
    rota.ok("task", "disable", "x")
    assert "-01-01 07:00:00" not in rota.ok("ls").out


def test_workers_that_are_gone_are_counted_unless_they_hold_work():
    workers = [
        worker("a", alive=True),
        worker("b", alive=False, running=1),
        *(worker(f"c{number}", alive=False) for number in range(12)),
    ]
    rows = worker_rows({"at": "2026-11-15T12:00:01Z", "workers": workers})
    assert [row[:2] for row in rows] == [["a", "alive"], ["b", "gone"]]
    assert gone_text(workers) == "12 workers are gone."
    assert gone_text(workers[:2]) == ""
