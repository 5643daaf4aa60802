"""Files that go with a message: artifacts of the run, fixed by their hashes.

The bytes stay where the program left them. Whoever sends them reads them again, and sends them only
if they are still the ones that were enclosed.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Sequence

from rota.errors import Invalid, Unavailable
from rota.model.deliveries import Enclosure
from rota.ports.artifacts import ArtifactKeeping, Opened

MOST_FILES = 10
LARGEST = 25 * 1024 * 1024
"""Of all files of a message together."""
CHUNK = 1024 * 1024


async def enclose(
    artifacts: ArtifactKeeping | None, space: str, run_id: int, names: Sequence[str]
) -> tuple[Enclosure, ...]:
    """Return what is enclosed under these names, in their order."""
    if not names:
        return ()
    if len(names) > MOST_FILES or len(set(names)) != len(names):
        raise Invalid("files", ", ".join(names), f"name at most {MOST_FILES} files, each once")
    if artifacts is None:
        raise Unavailable("files can be enclosed only where the run is: ask the daemon of its home")
    return await asyncio.to_thread(_enclosed, artifacts, space, run_id, names)


def _enclosed(
    artifacts: ArtifactKeeping, space: str, run_id: int, names: Sequence[str]
) -> tuple[Enclosure, ...]:
    found: list[Enclosure] = []
    left = LARGEST
    for name in names:
        enclosed = _read(artifacts.open(space, run_id, name), left)
        left -= enclosed.size
        found.append(enclosed)
    return tuple(found)


def _read(opened: Opened, most: int) -> Enclosure:
    """Read a file that its program may still be writing, as far as it may be enclosed."""
    name, digest, size = opened.artifact.name, hashlib.sha256(), 0
    with opened.file as file:
        while chunk := file.read(CHUNK):
            size += len(chunk)
            if size > most:
                advice = f"the files of a message have {LARGEST >> 20} MiB together at most"
                raise Invalid("files", name, advice)
            digest.update(chunk)
    return Enclosure(name=name, size=size, sha256=digest.hexdigest())
