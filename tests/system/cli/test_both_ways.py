"""With a daemon and without one, a command gives the same record and the same refusal."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from rota.cli.main import main

HEAVY = ("pydantic", "fastapi", "apsw", "asyncpg", "asyncio", "rich", "starlette")
PASSING = {
    "at",
    "seen_at",
    "oldest_seconds",
    "used_at",
    "origin",
    "missing_programs",
    "daemon",
    "request_id",
    "seconds",
}
"""Facts that differ between two looks, or between two doors on purpose."""


def still(value):
    """Return a record without what passes."""
    if isinstance(value, dict):
        return {name: still(part) for name, part in value.items() if name not in PASSING}
    return [still(part) for part in value] if isinstance(value, list) else value


class BothWays:
    """Runs a command against the daemon and against its database."""

    def __init__(self, house, capsys):
        self._house = house
        self._capsys = capsys
        self._direct = ("--store", f"sqlite:///{house.database}")

    def _run(self, *words):
        self._capsys.readouterr()
        code = main([*words, "--home", str(self._house.home), "--json"])
        out, err = self._capsys.readouterr()
        return code, json.loads(out or "null"), json.loads(err.splitlines()[-1] if err else "null")

    def over(self, *words):
        return self._run(*words)

    def direct(self, *words):
        return self._run(*words, *self._direct)


@pytest.fixture
def daemon(house):
    house.json("task", "create", "hello", "--call", "rota.samples:hello", "--cron", "0 7 * * *")
    house.json("task", "create", "ask", "--call", "rota.samples:approve")
    started = house.up("--port", "0")
    house.json("run", "hello", "--wait")
    return started


@pytest.fixture
def both(house, daemon, capsys, monkeypatch):
    for name in ("ROTA_HOME", "ROTA_STORE", "ROTA_URL", "ROTA_KEY", "ROTA_THREAD_KEY"):
        monkeypatch.delenv(name, raising=False)
    return BothWays(house, capsys)


# Not `status`: a daemon tells of itself, and a database cannot.
LOOKS = [
    "ls", "task list --state enabled", "task show hello", "task show 1", "task next hello -n 2",
    "why hello", "runs", "runs --task hello --limit 1", "run 1", "questions",
    "space list", "key list", "limit list", "state list hello", "audit",
    "schedule list", "schedule list hello --limit 1", "worker list", "machine list",
    "sql select(1)",
]  # fmt: skip
REFUSALS = [
    "task show ghost", "task show helo", "run 99", "run ghost", "cancel 1", "cancel 99",
    "task edit hello --pool deep", "task edit hello --cron nonsense", "runs --state done",
    "task pause hello --until yesterday", "task list --space ghost", "space create main",
    "key create x --scope dig", "key revoke 99", "answer 1 yes", "retry 99",
    "limit remove group x", "state get hello x", "why hello whenever", "task list --kind odd",
    "schedule list ghost", "seen show hello x", "seen mark ghost x", "sql delete",
]  # fmt: skip
WRITES = [
    ("add", "every day at 9", "Read", "--name", "{way}"),
    ("task", "edit", "hello", "--title", "Same"),
    ("task", "disable", "hello", "--reason", "same"),
    ("task", "enable", "hello"),
    ("space", "set", "main", "--timezone", "Europe/Berlin"),
    ("limit", "set", "group", "mail", "--cap", "2", "--rate", "10/1m"),
    ("state", "set", "hello", "a", "[1]"),
    ("task", "delete", "hello", "--dry-run"),
]
OWN = {"id", "name", "created_at", "updated_at", "updated_by", "task", "task_id", "version", "rule"}


def test_every_look_gives_the_same_record(both):
    for look in LOOKS:
        over, direct = both.over(*look.split()), both.direct(*look.split())
        assert over[0] == 0, look
        assert still([*over]) == still([*direct]), look


def test_every_refusal_is_told_the_same(both):
    for words in REFUSALS:
        over, direct = both.over(*words.split()), both.direct(*words.split())
        assert over[0] in {2, 3, 5}, (words, over)
        assert over == direct, words


def test_every_write_gives_the_same_record(both):
    for words in WRITES:
        found = [
            way(*(word.replace("{way}", way.__name__) for word in words))
            for way in (both.over, both.direct)
        ]
        assert found[0][0] == 0, words
        over, direct = (still({k: v for k, v in one[1].items() if k not in OWN}) for one in found)
        for record in (over, direct):
            for schedule in record.get("schedules", ()):
                for name in OWN & set(schedule):
                    del schedule[name]
        assert over == direct, words


def test_an_item_is_new_once_whichever_way_it_is_marked(both):
    assert both.over("seen", "mark", "hello", "a", "b")[1]["items"][0]["new"] is True
    again = both.direct("seen", "mark", "hello", "a", "--data", "[1]")[1]["items"][0]
    assert (again["new"], again["count"], again["data"]) == (False, 2, [1])
    over, direct = (
        both.over("seen", "show", "hello", "a"),
        both.direct("seen", "show", "hello", "a"),
    )
    assert over == direct
    assert over[1]["count"] == 2


def test_the_daemon_is_asked_with_its_key_and_so_it_is_written_down(both):
    both.over("task", "edit", "hello", "--title", "a")
    both.direct("task", "edit", "hello", "--title", "b")
    newest = both.over("audit", "--limit", "2")[1]["entries"]
    assert [one["caller"].partition(":")[0] for one in newest] == ["local", "key"]


def test_one_person_has_one_name_with_a_daemon_and_without(both):
    said = {
        ask("task", "disable", "hello")[1]["disabled_reason"] for ask in (both.over, both.direct)
    }
    assert said == {"disabled by the owner of the home folder"}


def test_a_callable_is_never_named_over_http_but_on_the_database(both):
    code, made, _ = both.over("task", "create", "mine", "--call", "rota.samples:hello")
    assert (code, made["origin"]) == (0, "cli")


def test_asking_a_daemon_loads_nothing_heavy(house, daemon):
    for words in (["ls"], ["runs"], ["run", "hello"], ["add", "every day at 9", "x", "--json"]):
        code = (
            f"import sys; from rota.cli.main import main; code = main({words!r});"
            f"print([m for m in {HEAVY!r} if m in sys.modules], file=sys.stderr); sys.exit(code)"
        )
        done = subprocess.run(
            [sys.executable, "-c", code], env=house._environment({}),
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert done.stderr.splitlines()[-1] == "[]", words


def test_a_wait_exits_by_the_outcome(house, daemon):
    assert house.rota("run", "hello", "--wait").returncode == 0
    asked = house.rota("run", "ask", "--wait")
    assert (asked.returncode, asked.stdout) == (7, "")
    house.json("add", "every day at 9", "Read", "--name", "news")
    failed = house.rota("run", "news", "--wait", "--json")
    assert failed.returncode == 1
    assert json.loads(failed.stdout)["error_code"] == "agent_unavailable"


def test_ctrl_c_detaches_and_the_run_goes_on(house, daemon):
    house.json("task", "create", "patient", "--call", "work:patient")
    process = subprocess.Popen(
        house._command(["run", "patient", "--wait"]), cwd=house.folder, text=True,
        env=house._environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert "Waiting for its end" in process.stderr.readline()
    daemon.out.wait("begun 1")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "continues" in err
    late = house.rota("run", "patient", "--wait", "--timeout", "50ms")
    assert late.returncode == 8
    (house.folder / "go").touch()
    daemon.log.wait("run.settled", "patient", "succeeded")


def test_an_address_that_nobody_answers_is_not_replaced_by_the_database(house):
    done = house.rota("ls", "--json", "--url", "http://127.0.0.1:9")
    assert (done.returncode, done.stdout) == (6, "")
    assert json.loads(done.stderr)["error"]["code"] == "unavailable"
    assert house.rota("ls", ROTA_URL="http://127.0.0.1:9").returncode == 6
    assert house.rota("ls", "--url", "ftp://x").returncode == 2
    assert not house.home.exists()


def test_a_key_that_opens_nothing_is_denied(house, daemon):
    done = house.rota("ls", "--json", ROTA_KEY="rota_00000000_wrong")
    assert (done.returncode, done.stdout) == (4, "")
    assert json.loads(done.stderr)["error"]["code"] == "unauthorized"


def test_a_key_of_a_space_sees_its_own_things(house, daemon):
    house.json("space", "create", "alice", "--timezone", "Europe/Berlin")
    token = house.rota("key", "create", "alice", "--space", "alice").stdout.strip()
    made = house.rota("add", "weekdays 7:00", "Read", "--json", ROTA_KEY=token)
    assert made.returncode == 0, made
    record = json.loads(made.stdout)
    assert (record["space"], record["thread"]) == ("alice", "cli:alice")
    seen = json.loads(house.rota("ls", "--json", ROTA_KEY=token).stdout)["tasks"]
    assert [task["name"] for task in seen] == ["read"]
    assert house.rota("task", "show", "hello", ROTA_KEY=token).returncode == 3
    assert house.rota("key", "list", ROTA_KEY=token).returncode == 4


def test_word_of_a_daemon_that_is_gone_is_not_believed_whoever_has_its_number_now(house):
    house.json("task", "create", "hello", "--call", "rota.samples:hello")
    place = {"url": "http://127.0.0.1:9", "pid": os.getpid()}
    (house.home / "api.json").write_text(json.dumps(place))
    assert [task["name"] for task in house.json("ls")["tasks"]] == ["hello"]


def test_events_are_told_as_they_happen_and_over_a_restart(house, daemon):
    process = subprocess.Popen(
        house._command(["events", "-f"]), cwd=house.folder, text=True,
        env=house._environment({}), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr.readline() == "Following events; press Ctrl-C to stop.\n"
    first = house.json("run", "hello", "--wait")["id"]
    assert f"run {first} " in process.stdout.readline()
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    house.up("--port", "0")
    second = house.json("run", "hello", "--wait")["id"]
    assert f"run {second} " in process.stdout.readline()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert (process.returncode, out) == (130, "")


def test_a_query_is_answered_and_what_would_change_something_is_refused(house, daemon):
    found = house.json("sql", "select state from runs")
    assert (found["columns"], found["rows"]) == (["state"], [["succeeded"]])
    assert house.rota("sql", "delete from runs").returncode == 2


def test_a_daemon_is_stopped_and_started_again(house, daemon):
    assert house.rota("stop").returncode == 0
    assert house.json("status")["daemon"]["state"] != "working"
    assert house.rota("start").returncode == 0
    assert house.json("run", "hello", "--wait")["state"] == "succeeded"
