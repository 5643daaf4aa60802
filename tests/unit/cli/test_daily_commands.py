from __future__ import annotations

import io
import json

import pytest

from rota.cli.command_line import render_pages
from rota.cli.help_pages import candidates

HELLO = ("--call", "rota.samples:hello")


def test_add_takes_the_time_first_and_echoes_what_it_means(rota):
    lines = rota.ok("add", "weekdays 7:00", "Summarise my inbox", "--timezone", "Europe/Berlin").out
    first, words, *fires, place, results, uses = lines.splitlines()
    assert first == "Added summarise-my-inbox."
    assert words == "  weekdays at 07:00, Europe/Berlin"
    assert len(fires) == 3
    assert place == "  executor: process (default for space main)"
    assert results == "  results: rota logs summarise-my-inbox"
    assert uses == "  average usage: not known yet"
    made = rota.json("ls")["tasks"][0]
    assert (made["kind"], made["thread"]) == ("agent", "cli:default")
    assert made["instructions"] == "Summarise my inbox"


def test_a_name_is_made_of_letters_as_people_write_them_without_their_marks(rota):
    named = [
        rota.json("add", "every day at 9", words)["name"] for words in ("Zähle Wörter", "Café")
    ]
    assert named == ["zaehle-woerter", "cafe"]


def test_results_go_to_the_conversation_a_task_was_added_in(rota):
    made = rota.json("add", "every day at 9", "Read", "--in", "telegram:chat:42")
    assert (made["thread"], made["policy"]["deliver_to"]) == ("telegram:chat:42",) * 2


def test_the_conversation_comes_from_its_variable_if_none_is_typed(rota, monkeypatch):
    monkeypatch.setenv("ROTA_THREAD_KEY", "web:9")
    assert rota.json("task", "create", "x", *HELLO)["thread"] == "web:9"
    assert rota.json("task", "create", "y", *HELLO, "--thread", "web:8")["thread"] == "web:8"


def test_another_space_has_a_conversation_of_its_own(rota):
    rota.ok("space", "create", "alice")
    assert rota.json("task", "create", "x", *HELLO, "--space", "alice")["thread"] == "cli:alice"


def test_instructions_are_read_from_standard_input(rota, monkeypatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("Read the news\nand say it shortly\n"))
    made = rota.json("add", "every day at 9", "-", "--name", "news")
    assert (made["name"], made["instructions"]) == ("news", "Read the news\nand say it shortly")


def test_a_time_with_two_meanings_is_refused(rota):
    assert 'write "in 30m" for once, or "every 30m"' in rota.refused("add", "30m", "Read")
    assert rota.json("ls")["tasks"] == []


def test_a_name_is_run_and_a_number_is_shown(rota, hello):
    assert rota.json("run", hello, "--input", "briefly") == {"run": 1, "created": True}
    assert rota.json("run", "1")["payload"] == {"input": "briefly"}
    assert rota.json("run", "#1")["id"] == 1
    assert rota.json("run", hello, "--key", "k") == {"run": 2, "created": True}
    assert rota.json("run", hello, "--key", "k") == {"run": 2, "created": False}
    assert [run["id"] for run in rota.json("runs")["runs"]] == [2, 1]


@pytest.mark.parametrize(
    "words",
    [
        ("1", "--input", "x"), ("hello", "--timeout", "1s"), ("hello", "--interval-ms", "100"), (),
        ("hello", "--input", "x", "--payload", "1"), ("hello", "--wait", "--timeout", "soon"),
        ("hello", "--instructions", "x"), ("--instructions", "x", "--input", "y"),
        ("hello", "--wait", "--interval-ms", "1"), ("hello", "--payload", "{"),
    ],
)  # fmt: skip
def test_what_run_cannot_mean_is_refused(rota, hello, words):
    assert rota.refused("run", *words)
    assert rota.json("runs")["runs"] == []


def test_work_that_is_done_once_needs_no_task(rota):
    made = rota.json("run", "--instructions", "Say hello")
    assert rota.json("run", str(made["run"]))["payload"]["instructions"] == "Say hello"


def test_waiting_exits_by_the_outcome(rota, hello):
    rota.ok("run", hello)
    queued = rota("run", "1", "--wait", "--timeout", "20ms", "--interval-ms", "10")
    assert queued.code == 8
    assert "No worker is running" in queued.err
    rota.ok("once")
    assert rota.ok("run", "1", "--wait").out == "hello from run 1\n"
    rota.ok("task", "create", "ask", "--call", "rota.samples:approve")
    rota.ok("task", "create", "flaky", "--call", "rota.samples:flaky")
    rota.ok("run", "ask")
    rota.ok("run", "flaky")
    rota.ok("once")
    waiting = rota("run", "2", "--wait")
    assert (waiting.code, waiting.out) == (7, "")
    assert "Shall I go on? [yes/no]\nTo answer: rota answer 2 TEXT" in waiting.err
    failed = rota("run", "3", "--wait", "--json")
    assert (failed.code, failed.json["state"]) == (1, "failed")
    rota.ok("run", hello)
    rota.ok("cancel", "4")
    assert rota("run", "4", "--wait").code == 1


def test_a_reason_ends_with_one_full_stop(rota, monkeypatch, tmp_path):
    (tmp_path / "full_stop.py").write_text("def go(run):\n    raise ValueError('It broke.')\n")
    monkeypatch.chdir(tmp_path)
    rota.ok("task", "create", "go", "--call", "full_stop:go")
    rota.ok("run", "go")
    rota.ok("once")
    assert rota("run", "1", "--wait").err.endswith("failed: ValueError: It broke.\n")


def test_logs_tell_the_newest_run_of_a_task(rota, hello):
    assert "nothing has run yet" in rota.refused("logs", hello, code=3)
    assert "nothing has run yet" in rota.refused("logs", code=3)
    rota.ok("run", hello)
    rota.ok("run", hello)
    rota.ok("once")
    out = rota.ok("logs", hello, "-f").out
    assert out.startswith("run 2 of hello\n")
    assert out.endswith("hello from run 2\n")
    events = [json.loads(line) for line in rota.ok("logs", "1", "--json").out.splitlines()]
    assert [event["name"] for event in events] == ["run.settled"]


def test_a_run_is_tried_again_when_it_has_ended(rota, hello):
    rota.ok("run", hello, "--payload", "[1]")
    assert "has not ended" in rota.refused("retry", "1", code=5)
    rota.ok("once")
    assert rota.json("retry", "1")["run"] == 2
    assert rota.json("run", "2")["payload"] == [1]


def test_a_key_is_shown_once_and_revoked(rota):
    made = rota("key", "create", "grafana", "--scope", "read")
    assert made.out.startswith("rota_")
    assert made.out.count("\n") == 1
    assert "not shown again" in made.err
    (key,) = rota.json("key", "list")["keys"]
    assert (key["name"], key["scopes"]) == ("grafana", ["read"])
    assert made.out.strip() not in rota.ok("key", "list").out
    assert rota.json("key", "revoke", "1")["revoked_at"] is not None
    assert "revoked" in rota.ok("key", "list").out
    assert "dig" in rota.refused("key", "create", "x", "--scope", "dig")


def test_a_task_keeps_values(rota, hello):
    rota.ok("state", "set", hello, "seen", '{"day": 3}')
    assert rota.ok("state", "get", hello, "seen").out == '{"day": 3}\n'
    assert [v["key"] for v in rota.json("state", "list", hello)["values"]] == ["seen"]
    assert rota.json("state", "delete", hello, "seen") == {"deleted": True}
    rota.refused("state", "get", hello, "seen", code=3)
    assert "JSON" in rota.refused("state", "set", hello, "seen", "{day")
    assert "null" in rota.refused("state", "set", hello, "seen", "null")
    assert "did you mean hello?" in rota.refused("state", "get", "helo", "seen", code=3)


def test_requests_tell_who_changed_what(rota, hello):
    rota.ok("run", hello)
    found = rota.json("audit")["entries"]
    assert [(one["caller"], one["command"]) for one in found] == [
        ("local", "run_task"),
        ("local", "create_task"),
    ]
    assert "task=hello" in rota.ok("audit").out


def test_watch_shows_status_and_runs(rota, hello):
    rota.ok("run", hello)
    out = rota.ok("watch", "--once").out
    assert "ready      1" in out
    assert "RUN  TASK   STATE" in out
    seen = rota.json("watch")
    assert (seen["status"]["queue"]["ready"], seen["runs"][0]["task"]) == (1, "hello")


def test_everything_is_paused_and_resumed(rota, hello):
    assert rota.json("pause-all")["paused"] is True
    assert "rota resume-all" in rota.ok("status").out
    rota.ok("run", hello)
    assert rota.json("once")["processed"] == 0
    assert rota.json("resume-all")["paused"] is False
    assert "paused" not in rota.ok("status").out
    assert rota.json("once")["processed"] == 1


def test_the_address_of_no_daemon_is_told(rota):
    assert "start `rota up`" in rota.refused("open", code=6)
    assert "start `rota up`" in rota.refused("events", code=6)
    assert rota.json("open", "--url", "http://127.0.0.1:9") == {"url": "http://127.0.0.1:9"}


WRITES = [
    ("add", "every day at 9", "Read"),
    ("task", "create", "x", *HELLO),
    ("task", "edit", "hello", "--title", "x"),
    ("task", "edit", "hello", "--drop-schedule", "default"),
    ("task", "run", "hello"),
    ("task", "enable", "hello"),
    ("task", "disable", "hello"),
    ("task", "pause", "hello", "--until", "2h"),
    ("task", "delete", "hello"),
    ("run", "hello"),
    ("run", "hello", "--wait"),
    ("run", "--instructions", "x"),
    ("cancel", "1"),
    ("backfill", "hello", "--from", "2026-03-01", "--to", "2026-03-02"),
    ("space", "create", "alice"),
    ("space", "set", "main", "--timezone", "Asia/Tokyo"),
    ("key", "create", "x"),
    ("limit", "set", "total", "--cap", "1"),
    ("state", "set", "hello", "a", "1"),
    ("pause-all",),
]


@pytest.mark.parametrize("words", WRITES, ids=" ".join)
def test_a_dry_run_of_any_write_changes_nothing(rota, words):
    rota.ok("task", "create", "hello", *HELLO, "--cron", "0 7 * * *")
    rota.ok("run", "hello")
    looks = (
        ("ls",), ("runs",), ("space", "list"), ("key", "list"), ("limit", "list"), ("audit",),
        ("state", "list", "hello"),
    )  # fmt: skip
    before = [rota.json(*look) for look in looks]
    assert rota.json(*words, "--dry-run") == {"dry_run": True}
    assert rota.ok(*words, "--dry-run").out.endswith(
        "Dry run: the request is valid, and nothing was changed.\n"
    )
    assert [rota.json(*look) for look in looks] == before


def test_a_dry_run_of_what_would_be_refused_is_refused(rota, hello):
    rota.refused("task", "create", hello, *HELLO, "--dry-run", code=5)
    rota.refused("task", "delete", "ghost", "--dry-run", code=3)
    rota.refused("add", "some day", "Read", "--dry-run")


class Keyboard(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("typed", "words", "code"),
    [("n\n", (), 130), ("", (), 130), ("y\n", (), 0), ("", ("--yes",), 0)],
)
def test_who_sits_at_a_terminal_is_asked_before_something_is_deleted(
    rota, hello, monkeypatch, typed, words, code
):
    monkeypatch.setattr("sys.stdin", Keyboard(typed))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    assert rota("task", "delete", hello, *words).code == code
    monkeypatch.undo()
    assert len(rota.json("ls")["tasks"]) == (0 if code == 0 else 1)


def test_a_mistyped_name_is_answered_with_those_that_are_near(rota, hello):
    rota.ok("task", "create", "help-desk", *HELLO)
    assert rota.refused("run", "helo", code=3).endswith("did you mean hello?")
    assert "hello or help-desk" in rota.refused("why", "hel", code=3).replace(
        "help-desk or hello", "hello or help-desk"
    )
    assert "did you mean hello?" in rota.refused("runs", "--task", "hullo", code=3)
    assert "did you mean 'rota status'" in rota.refused("statsu")
    assert "did you mean 'rota task show'" in rota.refused("task", "shw")


def test_a_name_that_several_spaces_have_is_refused_with_all_of_them(rota):
    for space in ("alice", "bob"):
        rota.ok("space", "create", space)
        rota.ok("task", "create", "x", *HELLO, "--space", space)
    sentence = rota.refused("task", "delete", "x", code=3)
    assert sentence == 'no task "x": there is one in alice and in bob: choose it with --space'
    assert len(rota.json("ls")["tasks"]) == 2


def test_a_task_with_a_slash_in_its_name_is_found(rota):
    rota.ok("task", "create", "team/report", *HELLO)
    assert rota.json("task", "show", "team/report")["name"] == "team/report"
    assert rota.json("run", "team/report")["run"] == 1
    rota.refused("task", "show", "team/ghost", code=3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ru"], ["run", "runs"]),
        (["task", "sh"], ["show"]),
        (["runs", "--sta"], ["--state"]),
        (["task", "show", "h"], ["hello"]),
        (["run", ""], ["hello"]),
        (["runs", "--task", ""], ["hello"]),
        (["runs", "--state", ""], []),
        (["why", "hello", ""], []),
        (["completion", ""], []),
    ],
)
def test_a_shell_is_told_what_may_come_next(rota, hello, words, expected):
    assert candidates(["--home", str(rota.home), *words], render_pages) == expected


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(rota, shell):
    assert "rota __complete" in rota.ok("completion", shell).out


def test_another_shell_is_refused(rota):
    assert "bash, zsh, fish" in rota.refused("completion", "csh")
