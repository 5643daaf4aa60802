"""The examples in the documentation are programs that run."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = ["README.md", "docs/tutorial/library.md"]
TEST_MODULE = "docs/how-to/testing.md"


@pytest.mark.parametrize("page", PAGES)
def test_every_example_of_a_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    names = {"__name__": "example"}
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}#{number}", "exec"), names)  # noqa: S102


def test_the_page_on_tests_is_a_test_module_that_passes(tmp_path):
    blocks = BLOCK.findall((ROOT / TEST_MODULE).read_text())
    (tmp_path / "test_page.py").write_text("\n\n".join(blocks))
    options = ["-q", "-p", "no:randomly", "-c", "/dev/null", f"--basetemp={tmp_path}/temp"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "test_page.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "skipped" not in done.stdout
    for name in ("TestFileChannel", "TestPlainExecutor", "TestCommandAgent"):
        assert name in "\n".join(blocks)
