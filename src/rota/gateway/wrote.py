"""Whether attempts have written to somewhere outside, on disk: what was passed on is never denied.

A small file an attempt says `0` from before it begins, and `1` from before its first write is
passed on. No file, or any other content, is not known.
"""

from __future__ import annotations

import asyncio
import contextlib
import os

from rota.gateway.folder import forget_old, put

FOLDER = "wrote"
NOT_YET, WRITTEN = b"0", b"1"


def begin(folder: str, name: str) -> None:
    """Note that an attempt has written nothing yet, if nothing is noted."""
    path = _path(folder, name)
    with contextlib.suppress(OSError):
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)  # noqa: PTH103, PTH120
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
            file.write(NOT_YET)


def seen(folder: str, name: str) -> bool | None:
    """Return whether an attempt has written to somewhere outside; None if that is not known."""
    try:
        with open(_path(folder, name), "rb") as file:  # noqa: PTH123
            return {NOT_YET: False, WRITTEN: True}.get(file.read(10))
    except OSError:
        return None


def drop(folder: str, name: str) -> None:
    """Forget an attempt that has ended and is on record."""
    with contextlib.suppress(OSError):
        os.unlink(_path(folder, name))  # noqa: PTH108


class Writes:
    """The gateway's side: notes the first write of each attempt before it is passed on."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._noted: set[str] = set()
        self._noting = asyncio.Lock()

    def open(self) -> None:
        """Make the folder, and forget what is old."""
        forget_old(os.path.join(self._folder, FOLDER))  # noqa: PTH118

    async def note(self, name: str) -> None:
        """Note that an attempt writes; raises OSError, and then it may not."""
        async with self._noting:
            if name not in self._noted:
                await asyncio.to_thread(put, _path(self._folder, name), WRITTEN)
                self._noted.add(name)

    def close(self, name: str) -> None:
        """Remember an attempt no more; what is on disk stays until it is settled."""
        self._noted.discard(name)


def _path(folder: str, name: str) -> str:
    return os.path.join(folder, FOLDER, name)  # noqa: PTH118
