"""Whoever approves is killed at every point: what they approved is done with the answer, or not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rota.faultpoints import STAGES

ROOT = Path(__file__).parents[2]
PATIENCE = 110


@pytest.mark.parametrize("action", ["enqueue_task", "enqueue_agentic_task", "kill_task_run"])
def test_a_kill_anywhere_neither_loses_nor_doubles_what_was_approved(tmp_path, action):
    words = [sys.executable, "-m", "tests.crash.approved", str(tmp_path), action]
    done = subprocess.run(
        words, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert int(done.stdout) > len(STAGES) + 3  # statements beside the stages
