"""Kill Rota for real: `python -m rota.testing.crash --help`."""

from __future__ import annotations

import sys

from rota.testing.crash.command import main

sys.exit(main())
