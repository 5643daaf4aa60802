"""Run simulated histories: `python -m tests.tools.simulation --help`."""

from __future__ import annotations

import sys

from tests.tools.simulation.main import main

if __name__ == "__main__":
    sys.exit(main())
