"""The record: what cases came to, one line each, so that a long run of random ones can go on."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from tests.tools.crash.driver import Result


class Record:
    """A file of lines; those of random cases have a seed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self._kept: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def add(self, result: Result) -> None:
        """Append what became of a case."""
        case = result.case
        line = {
            "store": case.store,
            "seed": case.seed,
            "kills": result.kills,
            "struck": result.struck,
            "seconds": round(result.seconds, 1),
            "commit": _commit(),
            "case": str(case),
            "faults": result.faults,
        }
        self._kept.append(line)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")

    def kills(self, store: str) -> int:
        """Return how many random kills on a store are on record."""
        return sum(line["kills"] for line in self._random(store))

    def struck(self, store: str) -> int:
        """Return how many blows on a store are on record that struck."""
        return sum(line["struck"] for line in self._random(store))

    def next_seed(self, store: str) -> int:
        """Return the first seed that was not run on a store."""
        return max((line["seed"] for line in self._random(store)), default=-1) + 1

    def _random(self, store: str) -> list[dict[str, Any]]:
        return [k for k in self._kept if k["store"] == store and k["seed"] is not None]


@cache
def _commit() -> str:
    """Return the commit this ran on, if it runs in a checkout."""
    words = ["git", "describe", "--always", "--dirty"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.strip()
