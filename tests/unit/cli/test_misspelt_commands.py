"""Commands that do not exist: what may be meant is told, and told fast."""

from __future__ import annotations

import subprocess
import sys

import pytest

from rota.cli.command_line import render_pages
from rota.cli.help_pages import COMMANDS, SUGGESTIONS, find_page, refusal

HEAVY = ("pydantic", "apsw", "rich", "asyncio", "typer")


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("create", "'rota task create' or 'rota add'"),
        ("pause", "'rota task pause' or 'rota pause-all'"),
        ("kill", "'rota cancel'"),
        ("stop 12", "'rota cancel 12'"),
        ("list", "'rota ls'"),
        ("rm", "'rota task delete'"),
        ("show", "'rota task show' or 'rota run'"),
        ("disable", "'rota task disable'"),
        ("tail", "'rota logs -f'"),
        ("help", "'rota --help'"),
        ("config", "'rota check'"),
        ("revoke", "'rota key revoke'"),
        ("stauts", "'rota status'"),
        ("task rm", "'rota task delete'"),
        ("limit del", "'rota limit remove'"),
        ("task lst", "'rota task list'"),
    ],
)
def test_what_is_meant_by_a_command_that_does_not_exist_is_told(said, meant):
    assert refusal(said.split(), render_pages) == f'no such command "{said}": did you mean {meant}?'


def test_nothing_is_guessed_without_a_reason():
    assert refusal(["ghost"], render_pages) == "no such command \"ghost\": see 'rota --help'"
    assert (
        refusal(["task", "ghost"], render_pages)
        == "no such command \"task ghost\": see 'rota task --help'"
    )


@pytest.mark.parametrize(
    "words",
    [[], ["-x"], ["task"], ["task", "list"], ["task", "-x"], ["stop"], ["run", "create"]],
)
def test_commands_that_exist_are_left_to_themselves(words):
    assert refusal(words, render_pages) is None


def test_what_is_meant_exists_and_what_exists_means_itself():
    assert not set(SUGGESTIONS) & set(COMMANDS)
    for command in (one for meant in SUGGESTIONS.values() for one in meant):
        words = [word for word in command.split() if not word.startswith("-")]
        assert not words or find_page([*words, "--help"], render_pages) is not None


def test_a_command_that_does_not_exist_loads_nothing_heavy(rota):
    assert rota("create", "--json").error["code"] == "usage"
    code = (
        "import sys; from rota.cli.main import main; main(['create']);"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
