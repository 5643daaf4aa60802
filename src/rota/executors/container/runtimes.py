"""What runs an engine's containers, and which versions of it let programs out."""

from __future__ import annotations

import re

from rota.executors.container.words import Engine
from rota.executors.kit.executor import Missing

ASKING = {
    "podman": ("info", "--format", "{{.Host.OCIRuntime.Version}}"),
    "docker": ("version", "--format", "{{range .Server.Components}}{{.Name}} {{.Version}} {{end}}"),
}
RUNC = re.compile(r"\brunc (?:version )?v?(\d+)\.(\d+)\.(\d+)")
MENDED = {(1, 2): 8, (1, 3): 3}
"""By their first two numbers: what is older has CVE-2024-21626 or CVE-2025-31133."""


def outdated(engine: Engine, told: str) -> list[Missing]:
    """Return what is to be said of a runtime's version, as the engine has told it."""
    found = RUNC.search(told)
    if found is None:
        return []
    major, minor, patch = map(int, found.groups())
    if (major, minor) > max(MENDED) or patch >= MENDED.get((major, minor), patch + 1):
        return []
    remedy = (
        "upgrade it to 1.2.8, 1.3.3 or 1.4 unless your distribution has mended it (CVE-2025-31133)"
    )
    where = f"{engine.kind}, runc {major}.{minor}.{patch}"
    return [Missing("a runtime that is known to hold", where, remedy, needed=False)]
