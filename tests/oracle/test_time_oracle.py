"""Rota's slots around one change of offset of each kind, beside a look at every minute.

All changes of all zones are compared by `make oracle`.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

from tests.oracle.cases import RULES, rules_in
from tests.oracle.chosen import CHOSEN, chosen_change, chosen_window
from tests.oracle.compare import Comparison, compare_change
from tests.oracle.expectations import Rule, Slot, expected

HERE = Path(__file__).parent
ANSWERING = ("windows", "lines", "recurrences", "expectations", "cases")
BERLIN = ("Europe/Berlin", "2026-03-29T01:00Z")


@pytest.mark.parametrize(("name", "at"), CHOSEN, ids=[" ".join(chosen) for chosen in CHOSEN])
def test_every_rule_has_the_slots_that_a_look_at_every_minute_finds(name: str, at: str) -> None:
    outcome = compare_change((chosen_change(name, at), [name]))
    assert not outcome.mismatches, "\n".join(map(str, outcome.mismatches[:5]))


def test_every_rule_has_slots_in_some_window() -> None:
    idle = set(range(len(RULES)))
    for chosen in CHOSEN:
        window = chosen_window(*chosen)
        filled = rules_in(window)
        idle -= {n for n in idle if expected(filled[n], window)}
    assert [str(RULES[n]) for n in idle] == []


def test_the_oracle_shares_no_code_with_what_it_judges() -> None:
    for module in ANSWERING:
        for node in ast.walk(ast.parse((HERE / f"{module}.py").read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                root = name.partition(".")[0]
                own = name.startswith("tests.oracle.") or name == "tests.oracle"
                assert own or root in sys.stdlib_module_names, name


def test_a_slot_that_is_wrong_is_a_mismatch() -> None:
    window = chosen_window(*BERLIN)
    rule = Rule(kind="cron", text="30 2 * * *")
    before, moved, after = expected(rule, window)
    assert moved == Slot(1774746000, "2026-03-29T02:30#0", 1774746000)
    for wrong in (
        [before, after],
        [before, moved, Slot(moved.at + 1800, "2026-03-29T03:30#0", moved.due + 1800), after],
        [before, moved._replace(key="2026-03-29T03:00#0"), after],
        [before, moved._replace(due=moved.due + 60), after],
        [before, moved._replace(at=moved.at + 60), after],
    ):
        assert Comparison(rule, window, BERLIN[0], wrong).mismatches()
    assert not Comparison(rule, window, BERLIN[0], [before, moved, after]).mismatches()
