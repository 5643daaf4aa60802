"""The list of fault points is closed: every point is in the code where it says, and nothing else."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from rota.errors import Invalid, Unavailable
from rota.faultpoints import OPERATIONS, PLACES, POINTS, STAGES, arm, parse_fault, reach
from tests.tools.crash import cases

SRC = Path(__file__).parents[2] / "src" / "rota"
MODULES = sorted(path for path in SRC.rglob("*.py") if "testing" not in path.parts)
TWICE = {name for name in PLACES if name.startswith("migrate.")}
"""Written once for each dialect."""


def first_words(function):
    """Return the text every call of a function in the code begins with."""
    calls = [
        node
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and getattr(node.func, "id", None) == function
    ]
    return Counter(call.args[0].value for call in calls if isinstance(call.args[0], ast.Constant))


EVERY_OPERATION = {
    node.name
    for path in sorted((SRC / "store").glob("*.py"))
    for node in ast.parse(path.read_text()).body
    if isinstance(node, ast.AsyncFunctionDef)
}
DRIVERS = ("store/sqlite", "store/postgres")
UNNAMED = {"operation", "audited", "checked", "enqueue_audited"}
"""Operations that the store is handed, and the one that has the fault points of `enqueue`."""


def written_operations():
    """Return every operation that is given to a store's write, or kept to be given to it."""
    writes = []
    for path in MODULES:
        if path.relative_to(SRC).as_posix().startswith(DRIVERS):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            name = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
            args = node.args
            if getattr(node.func, "id", None) == "partial" and len(args) > 1:
                name, args = getattr(args[0], "attr", None), args[1:]
            if name in {"write", "write_lightly"}:
                writes.append(args[0])
    named = {getattr(first, "attr", None) or getattr(first, "id", None) for first in writes}
    return {name for name in named - UNNAMED if name in EVERY_OPERATION}


def test_every_place_is_reached_in_one_line_of_the_code():
    assert first_words("reach") == Counter({name: 2 if name in TWICE else 1 for name in PLACES})


def test_every_operation_that_writes_has_points():
    assert written_operations() == set(OPERATIONS)


def test_every_stage_is_reached():
    assert set(first_words("reach_stage")) == set(STAGES)


def test_names_do_not_collide():
    assert len(POINTS) == len(OPERATIONS) * len(STAGES) + len(PLACES)


@pytest.fixture
def disarmed():
    yield
    arm("")


def test_an_armed_point_acts_at_its_hit_and_only_then(disarmed):
    arm("attempt.begin:2:raise")
    reach("attempt.begin")
    reach("attempt.end")
    with pytest.raises(Unavailable):
        reach("attempt.begin")
    reach("attempt.begin")


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("nowhere:1:kill", "unknown fault point"),
        ("attempt.begin:0:kill", "a hit from 1"),
        ("attempt.begin:x:kill", "a hit from 1"),
        ("attempt.begin:1:explode", "one of kill, stop, sleep, raise, exit"),
        ("attempt.begin", "write name:hit:action"),
    ],
)
def test_a_fault_that_cannot_happen_is_refused(text, advice):
    with pytest.raises(Invalid, match=advice):
        parse_fault(text)


def test_the_cases_name_points_that_there_are():
    parts = {name.partition(".")[0] for name in POINTS}
    assert {*cases.ONLY, *cases.ONCE, *cases.APART, *cases.TOLD_TO_STOP, *cases.EXTRAS} <= parts
    assert set(cases.FEW) <= set(POINTS)
