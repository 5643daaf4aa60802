"""A program outlives the daemon that started it: it goes on, is heard once, and settles once."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

from rota.flow.observe.time_text import duration_text

FINISHED = {"succeeded", "failed", "cancelled", "expired"}


def instant_of(text):
    return datetime.fromisoformat(text)


def begun(run):
    return any("line 5" in part["text"] for part in run["logs"])


def ended(run):
    return run["state"] in FINISHED


def check_whole(kept, number, lines):
    run = kept.until(number, ended)
    assert (run["state"], run["result"]) == ("succeeded", "finished"), run
    counted = [f"line {n}" for n in range(lines)]
    assert kept.output(number) == ["begun", *counted, "finished"]
    assert [attempt["number"] for attempt in run["attempts"]] == [1]
    assert kept.living() == []
    assert kept.rota("verify").returncode == 0


def test_a_killed_daemon_comes_back_to_the_same_process(kept):
    number = kept.count(40)
    kept.until(number, begun)
    (first,) = kept.living()
    kept.kill()
    assert kept.living() == [first]
    kept.up()
    assert kept.living() == [first]
    kept.go()
    check_whole(kept, number, 40)


def test_a_daemon_that_is_stopped_hands_its_programs_on(kept):
    number = kept.count(40)
    kept.until(number, begun)
    (first,) = kept.living()
    kept.stop()
    assert kept.living() == [first]
    assert kept.run(number)["state"] == "running"
    if kept.store is None:  # its lock tells at once that nobody hears it
        status = kept.json("status")
        assert [worker["alive"] for worker in status["workers"]] == [False]
        assert [warning["code"] for warning in status["warnings"]] == ["no_worker"]
    kept.up()
    kept.go()
    check_whole(kept, number, 40)


def test_what_ended_while_nobody_looked_is_reported(kept):
    number = kept.count(10)
    kept.until(number, begun)
    kept.kill()
    kept.go()
    while kept.living():
        time.sleep(0.02)
    gone = datetime.now(UTC)
    kept.up()
    check_whole(kept, number, 10)
    run = kept.run(number)
    started, finished = (instant_of(run[name]) for name in ("started_at", "finished_at"))
    ended = started + timedelta(seconds=run["took_seconds"])
    assert finished - ended > (finished - gone) / 2, "it is no work that nobody was there"
    assert instant_of(run["attempts"][0]["ended_at"]) == ended
    took = f"took {duration_text(ended - started)}"
    assert took in kept.rota("why", str(number)).stdout
    assert took.removeprefix("took ") in kept.rota("runs").stdout


def test_a_cancelled_program_is_gone_with_everything_it_started(kept):
    number = kept.count(10)
    kept.until(number, begun)
    kept.json("cancel", str(number))
    assert kept.until(number, ended)["state"] == "cancelled"
    assert kept.living() == []


def test_a_cancellation_survives_the_daemon(kept):
    number = kept.count(10)
    kept.until(number, begun)
    kept.kill()
    kept.json("cancel", str(number))
    kept.up()
    assert kept.until(number, ended)["state"] == "cancelled"
    assert kept.living() == []


def test_a_program_past_its_timeout_is_stopped(kept):
    number = kept.count(5, timeout="1s")
    run = kept.until(number, ended)
    assert (run["state"], run["error_code"]) == ("failed", "timeout"), run
    assert kept.living() == []


def test_a_program_that_fails_has_failed(kept):
    kept.create("bad", "sh", "-c", "'echo oh no >&2; exit 3'")
    kept.up()
    assert kept.rota("run", "bad", "--wait").returncode == 1
    run = kept.run(kept.json("runs")["runs"][0]["id"])
    assert run["state"] == "failed"
    assert "3" in run["error"]
    assert kept.output(run["id"]) == ["oh no"]


def test_a_program_that_is_not_there_is_told(kept):
    kept.create("ghost", "no-such-program-here")
    kept.up()
    run = kept.until(kept.json("run", "ghost")["run"], ended)
    assert (run["state"], run["error_code"]) == ("failed", "script_unavailable"), run
