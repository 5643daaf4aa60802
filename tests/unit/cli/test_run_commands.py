from __future__ import annotations

import io
import json
import sys

import pytest

pytestmark = pytest.mark.usefixtures("there")
HELLO = ("--call", "rota.samples:hello")


def test_once_processes_what_is_ready_and_says_how_many(rota, hello):
    for _ in range(3):
        rota.ok("task", "run", hello)
    assert rota.ok("once", "--max-runs", "2").out == "Executed 2 runs.\n"
    assert rota.json("once")["processed"] == 1
    assert rota.ok("once").out == "Executed 0 runs.\n"
    states = [run["state"] for run in rota.json("runs")["runs"]]
    assert states == ["succeeded"] * 3


def test_a_dry_run_tells_and_changes_nothing(rota, hello):
    rota.ok("task", "run", hello)
    before = rota.json("runs")["runs"]
    answer = rota.ok("once", "--dry-run")
    assert (
        answer.out
        == "Dry run: would execute 1 run; nothing was changed.\n  hello: run 1 is ready\n"
    )
    assert rota.json("once", "--dry-run")["would_run"] == 1
    assert rota.json("runs")["runs"] == before


@pytest.mark.parametrize("count", ["0", "-1", "some", "9999999999"])
def test_max_runs_is_a_number(rota, count):
    assert "max-runs" in rota.refused("once", "--max-runs", count)


def test_once_runs_a_chain_and_delivers(rota):
    rota.ok("task", "create", "count", "--call", "rota.samples:count_words")
    rota.ok("task", "create", "summary", "--call", "rota.samples:summary", "--after", "count")
    rota.ok("task", "run", "count", "--payload", '"one two three"')
    assert rota.json("once") == {"schedules": 0, "processed": 2, "sent": 1}
    view = rota.json("run", "2")
    assert (view["task"], view["upstream"], view["state"]) == ("summary", 1, "succeeded")
    assert view["deliveries"][0]["body"] == "counted 3 words"
    assert view["deliveries"][0]["state"] == "sent"
    shown = rota.ok("run", "2").out
    assert "counted 3 words" in shown
    assert "run.settled" in shown


def test_what_could_not_be_sent_is_told_where_people_look(rota):
    rota.ok("task", "create", "x", "--call", "rota.samples:hello", "--deliver-to", "cli:default")
    rota.ok("task", "run", "x")
    rota.ok("once")
    why = "no channel 'cli' is configured"
    assert f"cli:default  dead   {why}" in rota.ok("run", "1").out
    waited = rota.ok("run", "1", "--wait")
    assert f"Not delivered to cli:default: {why}; see `rota run 1`." in waited.err
    warnings = rota.json("status")["warnings"]
    assert "deliveries_dead" in [warning["code"] for warning in warnings]
    assert "! deliveries_dead: 1 message of the last day was not sent" in rota.ok("status").out
    assert "✗ 1 message of the last day was not sent" in rota("doctor").out
    rota.ok("task", "create", "y", "--call", "rota.samples:hello", "--deliver-to", "log:home")
    rota.ok("task", "run", "y")
    rota.ok("once")
    assert "Not sent" not in rota.ok("run", "2", "--wait").err


def test_runs_are_listed_newest_first_and_filtered(rota, hello):
    rota.ok("task", "create", "other", *HELLO)
    rota.ok("task", "run", hello)
    rota.ok("task", "run", "other")
    rota.ok("once", "--max-runs", "1")
    assert [r["id"] for r in rota.json("runs")["runs"]] == [2, 1]
    assert [r["task"] for r in rota.json("runs", "--task", "other")["runs"]] == ["other"]
    assert [r["id"] for r in rota.json("runs", "--state", "queued")["runs"]] == [2]
    assert [r["id"] for r in rota.json("runs", "--limit", "1")["runs"]] == [2]
    assert [r["id"] for r in rota.json("runs", "--before", "2")["runs"]] == [1]
    assert rota.ok("runs").out.splitlines()[0].startswith("RUN  TASK")
    assert rota.ok("runs", "--state", "failed").out == "No runs found.\n"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (("--state", "done"), "succeeded"),
        (("--limit", "0"), "limit"),
        (("--limit", "all"), "all"),
        (("--before", "x"), "before"),
    ],
)
def test_bad_filters_are_refused(rota, options, named):
    assert named in rota.refused("runs", *options)


@pytest.mark.parametrize("option", ["--task", "--space"])
def test_a_filter_by_what_is_not_there_is_told(rota, option):
    assert "ghost" in rota.refused("runs", option, "ghost", code=3)


def test_a_queued_run_is_cancelled_once(rota, hello):
    rota.ok("task", "run", hello)
    assert rota.json("cancel", "1")["state"] == "cancelled"
    assert "ended already" in rota.refused("cancel", "1", code=5)
    assert "no run" in rota.refused("cancel", "77", code=3)
    assert "no run" in rota.refused("run", "77", code=3)


def test_a_task_stands_for_its_one_run_that_is_not_finished(rota, hello):
    none = "the task has no running or queued or waiting run: see `rota runs --task hello`"
    assert rota.refused("cancel", hello, code=3) == f'no run "hello": {none}'
    rota.ok("task", "run", hello)
    assert rota.ok("cancel", hello).out == "Run 1 of hello is cancelled.\n"
    rota.ok("task", "run", hello)
    rota.ok("task", "run", hello)
    several = "the task has several: choose one of 3 (queued), 2 (queued)"
    assert rota.refused("cancel", hello) == f'run "hello": {several}'
    assert "the task has several" in rota.refused("attach", hello)
    assert 'no task "helo": did you mean hello?' in rota.refused("cancel", "helo", code=3)


def test_several_runs_are_cancelled_at_once(rota, hello):
    for _ in range(3):
        rota.ok("task", "run", hello)
    assert "nothing was changed" in rota.ok("cancel", "1", "2", "--dry-run").out
    found = rota.json("cancel", "2", "1", "2")["runs"]
    assert [(run["id"], run["state"]) for run in found] == [(2, "cancelled"), (1, "cancelled")]
    assert rota.json("run", "3")["state"] == "queued"


def test_a_question_is_shown_and_answered_once(rota):
    rota.ok("task", "create", "ask", "--call", "rota.samples:approve")
    rota.ok("task", "run", "ask")
    rota.ok("once")
    waiting = rota.json("questions")["questions"][0]
    asked = waiting["question"]
    assert (asked["question"], asked["options"], waiting["run"]["task"]) == (
        "Shall I go on?",
        ["yes", "no"],
        "ask",
    )
    assert "Shall I go on? [yes/no]" in rota.ok("questions").out
    assert "yes, no" in rota.refused("answer", "1", "perhaps")
    assert rota.json("answer", "ask", "yes")["state"] == "queued"
    assert "closed" in rota.refused("answer", "1", "no", code=5)
    assert "no run" in rota.refused("answer", "9", "no", code=3)
    assert "no question" in rota.refused("answer", "1", "no", "--question", "9", code=3)
    assert 'no task "first"' in rota.refused("answer", "first", "no", code=3)
    rota.ok("once")
    assert rota.json("run", "1")["result"] == "the answer was yes"
    assert rota.ok("questions").out == "No open questions found.\n"


def test_a_failure_shows_the_first_line_of_its_error(rota):
    rota.ok("task", "create", "flaky", "--call", "rota.samples:flaky")
    rota.ok("task", "run", "flaky")
    rota.ok("once")
    assert "RuntimeError: the first attempt always fails" in rota.ok("runs").out
    assert (
        "failed: RuntimeError: the first attempt always fails; run 1" in rota.ok("why", "flaky").out
    )


def test_the_error_of_an_earlier_try_is_called_that_while_the_run_goes_on(rota):
    rota.ok("task", "create", "flaky", "--call", "rota.samples:flaky", "--retry", "2")
    rota.ok("task", "run", "flaky")
    rota.ok("once", "--max-runs", "1")
    assert "earlier attempt: RuntimeError: the first attempt" in rota.ok("runs").out


def test_backfill_queues_the_slots_of_a_span(rota):
    rota.ok("task", "create", "x", *HELLO, "--cron", "0 7 * * *")
    done = rota.json("backfill", "x", "--from", "2026-03-01", "--to", "2026-03-08")
    assert len(done["runs"]) == 7
    assert done["start"] == "2026-03-01T00:00:00Z"
    again = rota.ok("backfill", "x", "--from", "2026-03-01", "--to", "2026-03-08")
    assert again.out.startswith("Queued 0 runs")


def test_backfill_takes_a_slot_at_the_very_beginning(rota):
    rota.ok("task", "create", "x", *HELLO, "--cron", "0 0 * * *")
    assert (
        len(rota.json("backfill", "x", "--from", "2026-03-01", "--to", "2026-03-02T12:00")["runs"])
        == 2
    )


@pytest.mark.parametrize(
    ("span", "named"),
    [
        (("--from", "2026-03-02", "--to", "2026-03-01"), "later"),
        (("--from", "2026-03-02", "--to", "2099-03-01"), "future"),
        (("--from", "sometime"), "start"),
        (("--from", "2026-03-02", "--to", "sometime"), "end"),
        (("--from", "2026-03-02", "--timezone", "Mars"), "timezone"),
    ],
)
def test_a_bad_span_is_refused(rota, hello, span, named):
    assert named in rota.refused("backfill", hello, *span)


def test_spaces_are_listed_created_and_changed(rota):
    assert rota.json("space", "list")["spaces"][0]["name"] == "main"
    assert rota.json("space", "create", "alice", "--timezone", "Asia/Tokyo")["role"] == "member"
    assert rota.json("space", "set", "alice", "--timezone", "UTC")["timezone"] == "UTC"
    assert "already" in rota.refused("space", "create", "alice", code=5)
    assert "Europe/Berlin" in rota.refused("space", "set", "alice", "--timezone", "Europe/Berlim")
    assert "ghost" in rota.refused("space", "set", "ghost", "--timezone", "UTC", code=3)
    assert "name" in rota.refused("space", "create", "Two Words")
    assert "timezone" in rota.refused("space", "create", "bob", "--timezone", "Mars/Base")
    assert [s["name"] for s in rota.json("space", "list")["spaces"]] == ["main", "alice"]


def test_limits_are_set_listed_and_removed(rota):
    rota.ok("space", "create", "alice")
    rota.ok("limit", "set", "pool", "background", "--cap", "3")
    rota.ok("limit", "set", "space", "background/alice", "--cap", "1")
    rota.ok("limit", "set", "group", "mail", "--cap", "2", "--rate", "10/1m")
    rota.ok("limit", "set", "total", "--cap", "8")
    found = {(x["scope"], x["key"]): x for x in rota.json("limit", "list")["limits"]}
    assert found["pool", "background"]["cap"] == 3
    assert found["space", "background/alice"]["cap"] == 1
    assert found["group", "mail"] == {
        "scope": "group", "key": "mail", "cap": 2, "rate": 10, "period": 60,
    }  # fmt: skip
    assert "10 in 1 min" in rota.ok("limit", "list").out
    rota.ok("limit", "remove", "group", "mail")
    assert "no limit" in rota.refused("limit", "remove", "group", "mail", code=3)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("galaxy", "x", "--cap", "1"), "galaxy"),
        (("pool", "deep", "--cap", "1"), "deep"),
        (("total", "x", "--cap", "1"), "key"),
        (("group", "", "--cap", "1"), "group"),
        (("pool", "background"), "--cap"),
        (("pool", "background", "--cap", "x"), "cap"),
        (("pool", "background", "--cap", "-1"), "cap"),
        (("group", "mail", "--rate", "10"), "10/1m"),
        (("group", "mail", "--rate", "x/1m"), "rate"),
        (("group", "mail", "--rate", "1/x"), "period"),
        (("pool", "background", "--rate", "1/1m"), "groups"),
    ],
)
def test_a_bad_limit_is_refused(rota, words, named):
    assert named in rota.refused("limit", "set", *words)
    assert "ghost" in rota.refused(
        "limit", "set", "space", "background/ghost", "--cap", "1", code=3
    )
    assert rota.json("limit", "list")["limits"] == []


def test_status_warns_of_work_that_nobody_does(rota, hello):
    rota.ok("task", "run", hello)
    seen = rota.json("status")
    assert seen["queue"]["ready"] == 1
    assert seen["workers"] == []
    assert [w["code"] for w in seen["warnings"]] == ["no_worker"]
    assert "! no_worker" in rota.ok("status").out


def test_gen_43_retry_takes_a_tasks_name_and_means_its_newest_failed_run(rota, hello):
    rota.ok("task", "create", "flaky", "--call", "rota.samples:flaky")
    assert "failed run" in rota.refused("retry", "flaky", code=3)
    for _ in range(2):
        rota.ok("task", "run", "flaky")
    rota.ok("once")
    failed = [run["id"] for run in rota.json("runs", "--state", "failed")["runs"]]
    done = rota.json("retry", "flaky")
    assert (done["retried"], done["run"] > failed[0]) == (failed[0], True)
    assert "no task" in rota.refused("retry", "nothing", code=3)
    assert f"a retry of run {failed[0]}" in rota.ok("retry", str(failed[0])).out


def test_a_sentence_that_has_ended_gets_no_second_full_stop(rota):
    rota.ok("task", "create", "gone", "--call", "rota.samples:flaky")
    ended = {
        "id": 1,
        "task": "gone",
        "state": "failed",
        "error": "Correct its path.",
        "result": None,
    }
    from rota.cli.run_text import ending_text

    assert ending_text(ended) == "Run 1 of gone failed: Correct its path."
    assert (
        ending_text(ended | {"error": "no such program"})
        == "Run 1 of gone failed: no such program."
    )
    assert ending_text(ended | {"error": None}) == "Run 1 of gone failed."
    stopped = ended | {"state": "cancelled", "error": "cancelled by local"}
    assert ending_text(stopped) == "Run 1 of gone cancelled by local."


def test_ist_25_a_task_may_run_until_it_has_succeeded(rota, hello):
    rota.ok("task", "edit", hello, "--every", "1h", "--until-success")
    assert "disabled after a success" in rota.ok("task", "show", hello).out
    rota.ok("task", "run", hello)
    rota.ok("once")
    assert "it has succeeded, and was to run until then" in rota.ok("why", hello).out
    rota.ok("task", "edit", hello, "--not-until-success")
    assert rota.json("task", "show", hello)["policy"]["until_success"] is False


def test_a_payload_is_read_from_standard_input_or_a_file(rota, hello, tmp_path, monkeypatch):
    payload = {"words": "x" * 200_000}
    file = tmp_path / "payload.json"
    file.write_text(json.dumps(payload))
    rota.ok("run", hello, "--payload", f"@{file}")
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(payload)))
    rota.ok("task", "run", hello, "--payload", "-")
    assert [rota.json("run", run)["payload"] for run in ("1", "2")] == [payload, payload]
    missing = rota.refused("run", hello, "--payload", f"@{tmp_path}/no.json")
    assert missing.endswith("cannot read the file: No such file or directory")
    both = rota.refused("run", hello, "--payload", "-", "--input", "-")
    assert "standard input is used by --input" in both
