"""Files that were not carried out, kept for people: in a folder of ours, bounded in every way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

FOLDER = "errors"
MOST_FILES = 500
LONGEST_CONTENT = 64 * 1024


class Errors:
    """The folder `errors` of a home; the oldest go when there are many."""

    def __init__(self, home: Path) -> None:
        self.folder = home / FOLDER

    def keep(self, at: int, name: str, facts: Mapping[str, Any], content: bytes | None) -> None:
        """Keep what a file held and what was wrong with it; `at` is in microseconds."""
        record = dict(facts)
        if content is not None:
            record["content"] = content[:LONGEST_CONTENT].decode("utf-8", "replace")
            record["bytes"] = len(content)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{at:016}-{name}.json"
        path.write_text(json.dumps(record, indent=1) + "\n")
        for old in sorted(os.listdir(self.folder))[:-MOST_FILES]:  # noqa: PTH208 - only the names
            with suppress(FileNotFoundError):
                (self.folder / old).unlink()
