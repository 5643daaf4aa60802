"""Which zone data this process computes with."""

from __future__ import annotations

import zoneinfo
from functools import lru_cache
from hashlib import sha256
from importlib import resources
from pathlib import Path


@lru_cache(maxsize=1)
def zone_data_mark() -> str:
    """Return a text that differs wherever the data of any zone differ.

    A process reads a zone once, so its mark stays the same for its whole life.
    """
    digest = sha256()
    for name in sorted(zoneinfo.available_timezones()):
        digest.update(name.encode())
        digest.update(_contents(name))
    return digest.hexdigest()


def _contents(name: str) -> bytes:
    for folder in zoneinfo.TZPATH:
        path = Path(folder, name)
        if path.is_file():
            return path.read_bytes()
    return resources.files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
