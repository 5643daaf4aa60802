"""Kill Rota for real: `python -m tests.tools.crash --help`."""

from __future__ import annotations

import sys

from tests.tools.crash.command import main

sys.exit(main())
