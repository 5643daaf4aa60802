"""The reference page of the HTTP API says what the catalogue says."""

from pathlib import Path

from rota.cli.reference import FILE, http_page


def test_the_page_is_current():
    written = (Path(__file__).parents[2] / "docs" / "reference" / FILE).read_text()
    assert written == http_page(), "run `python -m rota.cli.reference`"
