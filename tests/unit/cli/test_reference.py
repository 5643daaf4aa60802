from __future__ import annotations

from pathlib import Path

import pytest

from rota.doors.cli.reference import PAGES
from rota.wiring.settings import MEANINGS, Wanted

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_the_reference_is_current(name):
    written = (DOCS / name).read_text()
    assert written == PAGES[name](), "run `python -m rota.doors.cli.reference`"


def test_every_setting_has_a_meaning():
    assert list(MEANINGS) == list(Wanted.model_fields)
