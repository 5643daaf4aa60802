"""The pages for the terminal: every line of them can be typed."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"^```sh\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = [
    "docs/tutorial/command-line.md",
    "docs/how-to/http.md",
    "docs/how-to/service.md",
    "docs/how-to/scripts.md",
    "docs/how-to/agent-api.md",
    "docs/how-to/notifications.md",
]
PATIENCE = 60.0


@pytest.mark.parametrize("page", PAGES)
def test_every_line_of_a_page_can_be_typed(page, house, bytecode):
    if "curl" in (ROOT / page).read_text() and shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    blocks = BLOCK.findall((ROOT / page).read_text())
    assert blocks
    house.home = house.folder / "rota-tutorial"
    house.up("--port", "0")
    bin_folder = house.folder / "bin"
    bin_folder.mkdir()
    script = f'#!/bin/sh\nexec "{sys.executable}" -m rota.cli.main "$@"\n'
    (bin_folder / "rota").write_text(script)
    (bin_folder / "rota").chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ROTA_")}
    done = subprocess.run(
        ["/bin/sh", "-eu", "-c", "\n".join(blocks)],
        cwd=house.folder,
        env={
            **kept,
            "PATH": f"{bin_folder}:{os.environ['PATH']}",
            "ROTA_HOME": str(house.home),
            "PYTHONPYCACHEPREFIX": str(bytecode),
        },
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "unexpected" not in done.stderr
