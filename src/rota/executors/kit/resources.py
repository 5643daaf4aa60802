"""A task's resources: the folder with the files that people give it, and what they say of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from urllib.parse import quote

from rota.errors import Invalid
from rota.model.values import encode

CONFIGS = ("task_config.json", "config.json")
LONGEST_CONFIG = 64 * 1024


def resources_of(space: Path, task: str) -> Path:
    """Return the folder of a task, whose name may hold what parts a path."""
    return space / "resources" / quote(task, safe="")


def read_config(folder: Path) -> str | None:
    """Return the first config that is there as JSON; Invalid if it is no small JSON object."""
    for name in CONFIGS:
        try:
            held = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError as fault:
            raise Invalid(name, str(folder), f"it cannot be read: {fault.strerror}") from fault
        with os.fdopen(held, "rb") as file:
            plain = stat.S_ISREG(os.fstat(held).st_mode)
            text = file.read(LONGEST_CONFIG + 1) if plain else b""
        try:
            found = json.loads(text)
            told = encode(found)
        except (ValueError, RecursionError):
            found, told = None, ""
        if not isinstance(found, dict) or max(len(text), len(told)) > LONGEST_CONFIG:
            raise Invalid(name, str(folder), "write one JSON object of at most 64 KiB")
        return told
    return None
