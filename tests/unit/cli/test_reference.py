from __future__ import annotations

from pathlib import Path

import pytest

from rota.app.settings import MEANINGS, SettingsFile
from rota.cli.reference import REFERENCE_PAGES

DOCS = Path(__file__).parents[3] / "docs" / "reference"


@pytest.mark.parametrize("name", REFERENCE_PAGES)
def test_the_reference_is_current(name):
    written = (DOCS / name).read_text()
    assert written == REFERENCE_PAGES[name](), "run `python -m rota.cli.reference`"


def test_every_setting_has_a_meaning():
    assert list(MEANINGS) == list(SettingsFile.model_fields)
