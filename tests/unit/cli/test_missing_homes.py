"""A home or a database that was named and is not there: only what makes something makes it."""

from __future__ import annotations

import pytest

from rota.cli.main import main

PROGRAM = ("--command", "true")
REFERRING = [
    ("status",),
    ("ls",),
    ("run", "hello"),
    ("why", "hello"),
    ("logs",),
    ("task", "edit", "hello", "--title", "x"),
    ("pause-all",),
    ("sql", "select 1"),
    ("once", "--dry-run"),
]
MAKING = [
    ("task", "create", "x", *PROGRAM),
    ("add", "every day at 9", "Read"),
    ("run", *PROGRAM),
    ("space", "create", "ann"),
    ("key", "create", "ann", "--space", "main"),
    ("limit", "set", "pool", "background", "--cap", "2"),
    ("notification", "set", "log:"),
    ("once",),
]


@pytest.fixture
def usual(tmp_path, monkeypatch, capsys):
    """Runs commands of somebody new, who has said nothing of a home."""
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*words):
        code = main(words)
        return code, *capsys.readouterr()

    return run


@pytest.mark.parametrize("words", REFERRING)
def test_a_home_that_was_named_and_is_not_there_is_refused_and_not_made(rota, words):
    said = rota.refused(*words, code=6)
    assert (
        said == f"there is no Rota home in {rota.home}: create it with `rota up`, or correct --home"
    )
    assert not rota.home.exists()


def test_a_variable_that_names_it_is_told(usual, tmp_path, monkeypatch):
    monkeypatch.setenv("ROTA_HOME", str(tmp_path / "typo"))
    code, _, told = usual("status")
    assert (code, told.endswith("create it with `rota up`, or correct ROTA_HOME\n")) == (6, True)
    assert list(tmp_path.iterdir()) == []


def test_a_database_that_was_named_and_is_not_there_is_refused_and_not_made(there, tmp_path):
    store = f"sqlite:///{tmp_path}/a.db"
    said = there.refused("ls", "--store", store, code=6)
    assert said == f"there is no database at {store}: create it with `rota up`, or correct --store"
    assert not (tmp_path / "a.db").exists()


@pytest.mark.parametrize("words", MAKING)
def test_what_makes_something_makes_the_home(rota, words):
    rota.ok(*words)
    rota.ok("status")


def test_somebody_new_is_answered_and_nothing_is_made(usual, tmp_path):
    assert usual("ls")[:2] == (
        0,
        'No tasks found. To add one: rota add "weekdays 7:00" "Summarise my inbox"\n',
    )
    code, told, _ = usual("status")
    assert (code, "start `rota up`" in told) == (0, True)
    assert usual("doctor")[0] == 0
    assert usual("once", "--dry-run")[0] == 0
    code, _, told = usual("pause-all")
    assert code == 6
    assert told == f"rota: there is no Rota home in {tmp_path}/.rota: create it with `rota up`\n"
    assert list(tmp_path.iterdir()) == []
