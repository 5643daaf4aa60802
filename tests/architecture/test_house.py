"""What keeps the house in order, as far as a machine can see it."""

import ast
import re
from dataclasses import is_dataclass
from importlib import import_module
from pathlib import Path

import pytest

from rota.model.events import EVENT_MEANINGS, EventName
from rota.model.runs import FINISHED, MOVES, AttemptCause, QueueState, RunSource, RunState
from rota.model.schedules import LedgerReason, ScheduleState
from rota.model.spaces import LimitScope, SpaceRole
from rota.model.tasks import Pool, TaskKind

ROOT = Path(__file__).parents[2]
SRC = ROOT / "src" / "rota"
MODULES = sorted(SRC.rglob("*.py"))
TOOLS = sorted(
    [*(ROOT / "tests/tools").rglob("*.py"), *(ROOT / "tests/contract/store").rglob("*.py")]
)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_MODULE = 800
LONGER = {"src/rota/ports/store.py"}
"""The protocols of the store, which go when its operations are called by name."""
SCHEMAS = sorted(SRC.glob("store/*/migrations/0001_schema.sql"))


def named(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES + TESTS, ids=named)
def test_a_module_fits_in_one_reading(path):
    assert len(path.read_text().splitlines()) <= LONGEST_MODULE or named(path) in LONGER


@pytest.mark.parametrize("path", MODULES + TOOLS, ids=named)
def test_a_module_says_what_it_is(path):
    assert ast.get_docstring(ast.parse(path.read_text()))


@pytest.mark.parametrize("path", [p for p in MODULES if p.name == "__init__.py"], ids=named)
def test_a_package_holds_no_logic(path):
    allowed = (ast.Expr, ast.ImportFrom, ast.Assign, ast.If)
    for node in ast.parse(path.read_text()).body:
        if path.parent == SRC and isinstance(node, ast.FunctionDef):
            continue  # the lazy root
        assert isinstance(node, allowed), ast.unparse(node)


@pytest.mark.parametrize("path", MODULES + TOOLS, ids=named)
def test_nothing_silences_the_type_checker(path):
    assert "type: ignore" not in path.read_text()


BLANKET_EXCEPTS = {
    "runtime/poller.py": "the one loop",
    "runtime/worker.py": "whatever the work or a hook raises",
    "executors/inprocess/child_process.py": "whatever the work raises",
    "keeper": "a fork never returns into its parent's code; the last word of a keeper",
    "flow/attempt/programs.py": "whatever a look at one raises, the others are looked at",
    "flow/deliver.py": "whatever a channel raises means unknown",
    "store/transactions.py": "handed to the caller it belongs to",
    "store/sqlite/database.py": "handed to the caller",
    "store/sqlite/transactions.py": "handed to the caller",
    "runtime/heartbeats.py": "heard on another loop, which must go on",
    "store/postgres": "handed to the caller, or a listener that reconnects",
    "api/routes.py": "an answer that says nothing, and a log that says all",
    "agent_api/dispatcher.py": "an answer that says nothing, and a log that says all",
    "app/plugins.py": "whatever a stranger's plug-in raises, the daemon starts",
    "cli": "one sentence instead of a traceback",
    "tests/tools/crash/processes.py": "a forked child never returns into its parent's code",
    "tests/tools/hostile/hostile_tools.py": "a forked child never returns into its parent's code",
    "tests/tools/keepers/kills.py": "a forked child never returns into its parent's code",
    "tests/tools/simulation/world.py": "a fault of one history, counted as its failure",
    "tests/tools/simulation/processes.py": "the last words of a process that was made to die",
    "runtime/supervisor.py": "a renewal that failed is looked at, then raised on",
}


@pytest.mark.parametrize("path", MODULES + TOOLS, ids=named)
def test_blanket_excepts_stand_only_where_they_are_meant_to(path):
    where = named(path).removeprefix("src/rota/")
    if any(where.startswith(known) for known in BLANKET_EXCEPTS):
        return
    handlers = [
        n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ExceptHandler)
    ]
    for handler in handlers:
        reraises = any(isinstance(n, ast.Raise) and n.exc is None for n in ast.walk(handler))
        name = getattr(handler.type, "id", None)
        assert reraises or name not in {"Exception", "BaseException", None} or handler.type, where
        assert reraises or name not in {"Exception", "BaseException"}, where


def test_model_values_are_frozen():
    for path in (SRC / "model").glob("*.py"):
        module = import_module(f"rota.model.{path.stem}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and is_dataclass(value)
                and value.__module__ == module.__name__
            ):
                assert value.__dataclass_params__.frozen, value


def test_every_state_can_be_reached_and_finished_ones_are_final():
    assert set(MOVES.values()) | {RunState.QUEUED} == set(RunState)
    assert not {state for state, _ in MOVES} & FINISHED


def test_every_event_has_a_meaning():
    assert set(EVENT_MEANINGS) == set(EventName)


CLOSED_SETS = {
    ("runs", "pool"): Pool,
    ("runs", "source"): RunSource,
    ("runs", "cause"): AttemptCause,
    ("tasks", "kind"): TaskKind,
    ("spaces", "role"): SpaceRole,
    ("keys", "role"): SpaceRole,
    ("limits", "scope"): LimitScope,
    ("ledger", "reason"): LedgerReason,
    ("schedules", "state"): ScheduleState,
}


def table_in(sql, table):
    """Return what a schema says of a table's columns; PostgreSQL checks runs in a function."""
    made = re.search(rf"create table (?:rota\.)?{table} \(\n.*?\n\)", sql, re.DOTALL)
    function = re.search(
        rf"create or replace function rota.is_{table[:-1]}\(.*?end \$\$", sql, re.DOTALL
    )
    return made[0] + (function[0] if function else "")


@pytest.mark.parametrize("path", SCHEMAS, ids=named)
def test_closed_sets_are_the_same_in_code_and_schema(path):
    sql = path.read_text()
    for (table, column), enum in CLOSED_SETS.items():
        found = re.search(rf"(?:check \(|and)\s*{column} in\s*\(([^)]*)\)", table_in(sql, table))
        assert found, (table, column)
        values = {member.value for member in enum}
        assert set(re.findall(r"'(\w+)'", found[1])) == values, (table, column)
    runs = table_in(sql, "runs")
    places = re.search(r"coalesce\(place, ''\) in \(([^)]*)\)", runs)
    assert set(re.findall(r"'(\w+)'", places[1])) == {place.value for place in QueueState}
    assert {state.value for state in RunState} == set(re.findall(r"when '(\w+)' then", runs))
