"""What the page on reliability counts is what there is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rota.faultpoints import POINTS
from tests.tools.simulation.coverage import SOMETIMES
from tests.zoo.catalogue import BUGS

PAGE = (Path(__file__).parents[3] / "docs" / "explanation" / "reliability.md").read_text()
ZOO = PAGE[PAGE.index("## The zoo") :]
DATE = re.compile(
    r"\b\d{1,2} (January|February|March|April|May|June|July|August|September|October"
    r"|November|December) 20\d\d\b"
)


def test_every_bug_of_the_zoo_has_its_row():
    rows = [line.split(" | ")[0].removeprefix("| ") for line in ZOO.splitlines()]
    told = [row for row in rows if row in {bug.says for bug in BUGS}]
    assert told == [bug.says for bug in BUGS]


def test_every_row_says_what_caught_its_bug():
    assert "**nothing**" not in ZOO
    assert f"All {len(BUGS)} are caught" in ZOO


@pytest.mark.parametrize(
    ("words", "there"),
    [("rare paths are counted", len(SOMETIMES)), ("[fault points]", len(POINTS))],
)
def test_what_is_counted_is_there(words, there):
    counted = re.search(rf"(\d+) {re.escape(words)}", PAGE)
    assert counted is not None
    assert int(counted[1]) == there


def test_every_table_of_figures_carries_its_date():
    for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)[1:]:
        tables = re.findall(r"(?:^\|.*\n)+", section, flags=re.MULTILINE)
        figures = [table for table in tables if re.search(r"\| [\d,]+ \||seed", table)]
        dates = len(DATE.findall(section))
        assert dates >= len(figures), section.splitlines()[0]
