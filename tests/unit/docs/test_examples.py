"""The examples in the documentation are programs that run."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "docs/tutorial/library.md"]


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    names = {"__name__": "example"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}#{number}", "exec"), names)  # noqa: S102
