import subprocess
import sys

import pytest


@pytest.mark.programs
def test_nothing_honest_is_refused_while_every_attack_goes_on():
    words = [sys.executable, "-m", "tests.attacks", "--seconds", "8", "--lateness", "60"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "refused:" not in done.stdout
