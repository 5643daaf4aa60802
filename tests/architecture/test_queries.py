"""A query is written once, stands with the module that asks it, and SQLite overrides few."""

import ast
import re
from pathlib import Path

import pytest

from rota.store import sql_files
from rota.store.sql_files import PARAMETER, load_queries
from rota.store.sqlite.queries import load_overrides, load_sqlite_queries, to_sqlite

STORE = Path(sql_files.__file__).parent
CODE = {path.stem: path.read_text() for path in sorted(STORE.glob("*.py"))}
QUERIES = load_queries()
OVERRIDES = load_overrides()


def names_in(folder):
    """Return the names of each file of queries."""
    return {
        path.stem: set(re.findall(r"^-- name: (\w+)", path.read_text(), re.MULTILINE))
        for path in sorted(folder.glob("*.sql"))
    }


FILES = names_in(STORE / "sql")
OVERRIDING_FILES = names_in(STORE / "sqlite" / "sql")


def users_of(name):
    return {stem for stem, text in CODE.items() if f'"{name}"' in text}


def asked_in(text):
    """Return the names of queries that a module gives to a transaction."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        given = None
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = node.args[:1] if node.func.attr in {"rows", "run", "insert"} else None
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            given = node.args[1:2] if node.func.id == "one" else None
        elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "query":
            given = [node.value]
        for part in [inner for each in given or () for inner in ast.walk(each)]:
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                names.add(part.value)
    return names


@pytest.mark.parametrize("stem", sorted(CODE))
def test_every_query_that_a_module_asks_exists(stem):
    assert asked_in(CODE[stem]) <= set(QUERIES)


def test_the_names_that_modules_ask_are_found():
    asked = set().union(*(asked_in(text) for text in CODE.values()))
    assert len(asked) > 0.9 * len(QUERIES)


@pytest.mark.parametrize("stem", sorted(FILES))
def test_a_query_stands_in_the_file_of_a_module_that_asks_it(stem):
    assert {name for name in FILES[stem] if stem not in users_of(name)} == set()


def test_an_override_stands_in_the_file_of_its_query():
    for stem, names in OVERRIDING_FILES.items():
        assert names <= FILES[stem], stem


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_an_override_differs_from_what_translation_gives(name):
    assert words(OVERRIDES[name]) != words(to_sqlite(QUERIES[name]))


@pytest.mark.parametrize("name", sorted(OVERRIDES))
def test_an_override_has_the_parameters_of_its_query(name):
    assert set(PARAMETER.findall(OVERRIDES[name])) == set(PARAMETER.findall(QUERIES[name]))


def test_sqlite_has_the_queries_of_postgres_and_no_others():
    assert set(load_sqlite_queries()) == set(QUERIES)


def words(sql):
    return re.sub(r"--[^\n]*", "", sql).split()
