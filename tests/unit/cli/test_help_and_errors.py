from __future__ import annotations

import apsw
import pytest

from rota.cli.command_line import render_pages
from rota.cli.help_pages import COMMANDS, GROUPS, find_page, hoist
from rota.cli.main import main


@pytest.fixture(scope="module")
def pages():
    return render_pages()


def test_every_page_has_an_example_and_fits(pages):
    for command, text in pages.items():
        assert "Example: rota" in text or command == "rota", command
        assert max(map(len, text.splitlines())) <= 80, command


def test_the_groups_are_those_with_commands_below(pages):
    named = {command.split()[1] for command in pages if command.count(" ") == 2}
    assert named == set(GROUPS)
    assert [command for command in pages if command.count(" ") == 1] == [
        f"rota {name}" for name in COMMANDS
    ]


def test_options_that_may_stand_anywhere_come_first():
    assert hoist(["task", "list", "--json", "--home", "h", "--store=s"]) == (
        ["--json", "--home", "h", "--store=s"],
        ["task", "list"],
    )
    assert hoist(["answer", "1", "--", "--json"]) == ([], ["answer", "1", "--", "--json"])


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["task"], ["task", "x", "--help"]])
def test_help_is_found(words):
    assert find_page(words, render_pages) is not None


@pytest.mark.parametrize(
    "words", [["runs"], ["task", "list"], ["ghost", "--help"], ["answer", "1", "--", "-h"]]
)
def test_no_help_where_none_was_asked_for(words):
    assert find_page(words, render_pages) is None


def test_an_unknown_command_is_refused(rota):
    assert "ghost" in rota.refused("ghost")
    assert "ghost" in rota.refused("task", "ghost")
    assert "ghost" in rota.refused("ghost", "--help")


def test_an_option_that_takes_one_value_is_not_given_two(there, rota):
    answer = rota("task", "create", "two", "--command", "echo a", "--command", "echo b")
    assert (answer.code, answer.err) == (2, "rota: --command is given 2 times: use it once\n")
    assert rota("task", "show", "two").code == 3
    checks = ("--check", "min_length=1", "--check", "not_like=error")
    rota.ok("task", "create", "many", "--command", "true", *checks)
    rota.ok("task", "list", "--json", "--json", "--home", "elsewhere")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        (("run", ""), "task or run"),
        (("why", ""), "task or run"),
        (("logs", ""), "run or task"),
        (("cancel", ""), "run or task"),
        (("cancel", "1", ""), "run or task"),
        (("task", "show", ""), "task"),
        (("runs", "--task", ""), "--task"),
        (("space", "set", "", "--timezone", "UTC"), "name"),
        (("thread", "show", ""), "thread"),
    ],
)
def test_an_empty_name_is_refused_by_the_name_of_its_argument(rota, words, name):
    assert rota.refused(*words) == f'{name} "": must not be empty'


def test_the_version_is_told(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("rota ")


def test_a_database_that_cannot_be_opened_is_unavailable(rota, tmp_path):
    store = f"sqlite:///{tmp_path}/no/such/folder/rota.db"
    answer = rota("task", "create", "x", "--command", "true", "--store", store)
    assert answer.code == 6
    assert answer.err.startswith("rota: cannot open the database")
    assert answer.err.count("\n") == 1


def test_a_store_address_must_make_sense(rota):
    assert "sqlite:///" in rota.refused("task", "list", "--store", "mysql://x")


def test_an_unexpected_fault_is_one_sentence_and_debug_shows_more(there, rota):
    connection = apsw.Connection(str(rota.home / "rota.db"))
    connection.execute("drop table events")
    connection.close()
    plain = rota("task", "create", "hello", "--call", "rota.samples:hello")
    assert plain.code == 1
    assert plain.err.startswith("rota: unexpected SQLError")
    assert plain.err.count("\n") == 1
    again = rota("task", "create", "hello", "--call", "rota.samples:hello", "--debug")
    assert "Traceback" in again.err


def test_a_folder_in_the_place_of_the_database_is_one_sentence(rota):
    (rota.home / "rota.db").mkdir(parents=True)
    answer = rota("task", "list")
    assert answer.code == 6
    assert answer.err.startswith("rota: cannot open the database ")
    assert answer.err.count("\n") == 1


def test_a_file_that_is_no_database_is_one_sentence(rota):
    rota.home.mkdir()
    (rota.home / "rota.db").write_text("this is not a database" * 100)
    answer = rota("task", "list")
    assert answer.code == 6
    assert answer.err.startswith("rota: cannot read ")
    assert answer.err.count("\n") == 1


def test_an_unavailable_store_is_told_in_json(rota, tmp_path):
    answer = rota("task", "list", "--json", "--store", f"sqlite:///{tmp_path}/no/rota.db")
    assert answer.code == 6
    assert answer.error["code"] == "unavailable"


def test_the_grace_of_catching_up_is_told_where_it_is_chosen(rota):
    assert "up to 60 s late is not missed" in " ".join(
        rota.ok("task", "create", "--help").out.split()
    )
