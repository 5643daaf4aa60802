"""Tasks in a file."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.usefixtures("there")
TASKS = """
[tasks.report]
command = ["echo", "done"]
after = { task = "inbox", on = "any" }

[tasks.inbox]
instructions = "Summarise my inbox."
schedule = "weekdays 7:00"
policy.timeout = "10m"
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "tasks.toml"
    path.write_text(TASKS)
    return path


def changes(rota, file):
    return {one["task"]: one["change"] for one in rota.json("apply", str(file))["tasks"]}


def test_a_file_is_applied_again_without_a_change(rota, file):
    assert changes(rota, file) == {"inbox": "created", "report": "created"}
    assert changes(rota, file) == {"inbox": "unchanged", "report": "unchanged"}
    file.write_text(TASKS.replace("7:00", "8:00").replace('policy.timeout = "10m"', ""))
    assert changes(rota, file) == {"inbox": "changed", "report": "unchanged"}
    inbox = rota.json("task", "show", "inbox")
    assert inbox["schedules"][0]["words"].startswith("weekdays at 08:00")
    assert inbox["policy"]["timeout"] is None


def test_a_rehearsal_changes_nothing(rota, file):
    file.write_text(TASKS.replace('after = { task = "inbox", on = "any" }', ""))
    said = rota.ok("apply", str(file), "--dry-run").out
    assert "nothing was changed" in said
    assert rota.json("task", "list")["tasks"] == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("tasks = 1", "[tasks.NAME]"),
        ("[tasks]\nx = 1", "[tasks.NAME]"),
        ("[other.x]\ncall = 'a:b'", "[tasks.NAME]"),
        ("[tasks.'a/b']\ncall = 'a:b'", "cannot contain a slash"),
        ("[tasks.12]\ncommand = ['true']", "is the id of a task"),
        ("[tasks.x", "Expected"),
        ("\x00", "Invalid"),
        ("[tasks.x]\ninstructions = 'a'\nsomething = 1", "something"),
        ("[tasks.x]\ninstructions = 'a'\nschedule = 'sometimes'", "sometimes"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_sentence(rota, file, text, words):
    file.write_text(text)
    said = rota("apply", str(file))
    assert said.code == 2
    assert words in said.err
    assert rota.json("task", "list")["tasks"] == []


def test_a_file_that_is_not_there(rota, tmp_path):
    assert rota("apply", str(tmp_path / "none.toml")).code == 3
    assert rota("apply", str(tmp_path)).code == 3
