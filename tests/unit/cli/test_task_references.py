"""Tasks by name and by id: what a word stands for, and what is told of it."""

from __future__ import annotations

import pytest

HELLO = ("--call", "rota.samples:hello")


@pytest.fixture
def number(rota, hello) -> str:
    """The id of the task hello."""
    return str(rota.json("task", "show", hello)["id"])


@pytest.mark.parametrize("name", ["12", "0", "2026"])
def test_a_number_is_no_name(rota, name):
    said = rota.refused("task", "create", name, *HELLO)
    assert said == f'name "{name}": add a letter: a number alone is the id of a task'


def test_a_task_that_was_given_no_name_is_not_called_by_a_number(rota):
    made = rota.json("add", "every day at 9", "2026")
    assert made["name"] == "task-2026"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("task", "disable"),
            "Disabled hello. To enable it again: rota task enable hello",
        ),
        (("task", "enable"), "Enabled hello."),
        (("task", "pause", "--until", "2h"), "Paused hello until"),
        (("task", "run"), "of hello."),
        (("task", "delete", "--yes"), "Deleted hello."),
        (("state", "list"), "No values of hello found."),
    ],
)
def test_a_task_named_by_its_id_is_told_by_its_name(rota, number, words, told):
    noun, verb, *options = words
    assert told in rota.ok(noun, verb, number, *options).out


def test_what_a_task_keeps_is_told_with_its_name(rota, number):
    assert rota.ok("state", "set", number, "day", "1").out == "Stored day of hello.\n"
    assert rota.ok("state", "delete", number, "day", "--yes").out == "Deleted day of hello.\n"
