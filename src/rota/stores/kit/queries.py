"""Named queries, read from .sql files: `-- name: x` starts a query."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType

_NAME = re.compile(r"^-- name: (\w+)[^\n]*\n", re.MULTILINE)
PARAMETER = re.compile(r"(?<![:\w]):([a-z_]+)")


def load_queries(package: str) -> Mapping[str, str]:
    """Return every query of a dialect by its name; a name may be given once."""
    found: dict[str, str] = {}
    folder = files(package) / "sql"
    for file in sorted(folder.iterdir(), key=lambda entry: entry.name):
        parts = _NAME.split(file.read_text())[1:]
        for name, body in zip(parts[::2], parts[1::2], strict=True):
            if name in found:
                message = f"the query {name} is defined twice in {package}"
                raise ValueError(message)
            found[name] = body.strip().rstrip(";")
    return MappingProxyType(found)
