"""Files that were not carried out, kept for people: in a folder of ours, bounded in every way."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rota.rules.redaction import Redactor

FOLDER = "errors"
MOST_FILES = 500
PRIVATE = 0o600
LONGEST_CONTENT = 64 * 1024


class Errors:
    """The folder `errors` of a home; the oldest go when there are many.

    What programs wrote stands there without the secrets in it.
    """

    def __init__(self, home: Path, redactor: Redactor) -> None:
        self.folder = home / FOLDER
        self._redactor = redactor

    def keep(self, at: int, name: str, facts: Mapping[str, Any], content: bytes | None) -> None:
        """Keep what a file held and what was wrong with it; `at` is in microseconds."""
        record = dict(self._redactor.data(facts))
        if content is not None:
            text = content[: 2 * LONGEST_CONTENT].decode("utf-8", "replace")
            record["content"] = self._redactor.text(text)[:LONGEST_CONTENT]
            record["bytes"] = len(content)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{at:016}-{self._redactor.text(name)}.json"
        held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(held, "w") as file:
            file.write(json.dumps(record, indent=1) + "\n")
        for old in sorted(os.listdir(self.folder))[:-MOST_FILES]:  # noqa: PTH208 - only the names
            with suppress(FileNotFoundError):
                (self.folder / old).unlink()
