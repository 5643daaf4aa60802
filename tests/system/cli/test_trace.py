"""The tool that prints what the daemon does for one run."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_the_tracer_follows_a_run_from_its_request_to_its_end():
    done = subprocess.run(
        [sys.executable, "-m", "tests.tools.trace", "--takes", "1", "--json"],
        cwd=ROOT, capture_output=True, text=True, check=True, timeout=100,
    )  # fmt: skip
    found = json.loads(done.stdout)
    files = [one["file"] for one in found["until_settled"]]
    assert files[0].startswith("api/")
    assert {"samples.py", "flow/settle.py", "flow/claim.py"} <= {*files}
    calls = found["insert_calls"]
    assert (calls[0].partition("/")[0], len(calls)) == ("api", found["insert_depth"])
    assert calls[-1].startswith("store/sqlite/")
