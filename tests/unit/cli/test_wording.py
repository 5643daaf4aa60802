"""Records in words: lengths, shares, and nothing where there is nothing."""

from __future__ import annotations

import pytest

from rota.doors.cli.run_words import event_row
from rota.doors.cli.show import NOTHING
from rota.doors.cli.status import gone_words, worker_rows

HELLO = ("--call", "rota.samples:hello")


def worker(name, *, alive, running=0):
    seen = {"seen_at": "2026-11-15T12:00:00Z", "slots": 5, "roles": ["worker"]}
    return {"id": name, "alive": alive, "running": running, **seen}


def test_a_policy_tells_lengths_as_people_say_them(rota):
    rota.ok("task", "create", "x", *HELLO, "--timeout", "600s", "--deadline", "90m")
    shown = rota.ok("task", "show", "x").out
    assert "timeout 10 min, deadline 1 h 30 min" in shown


@pytest.mark.parametrize(("percent", "told"), [(4.0, "4 %"), (12.5, "12.5 %"), (None, "percent=")])
def test_a_share_is_told_in_percent(percent, told):
    event = {"name": "run.progress", "at": "2026-11-15T12:00:00Z", "data": {"percent": percent}}
    assert event_row(event, "UTC")[2].startswith(told)


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
    assert gone_words(workers) == "12 workers are gone."
    assert gone_words(workers[:2]) == ""
