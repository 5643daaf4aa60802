"""What attempts have used, on disk: a gateway that is killed gives nobody a new budget."""

from __future__ import annotations

import contextlib
import os

from rota.gateway.folder import forget_old

FOLDER = "spent"


class Spending:
    """One small file an attempt; what cannot be written counts until this process ends."""

    def __init__(self, folder: str) -> None:
        self._folder = os.path.join(folder, FOLDER)  # noqa: PTH118
        self._noted: dict[str, tuple[int, int]] = {}

    def open(self) -> None:
        """Make the folder, and forget what is old."""
        forget_old(self._folder)

    def known(self, name: str) -> tuple[int, int]:
        """Return the requests and bytes that an attempt has used before."""
        with contextlib.suppress(OSError, ValueError):
            with open(self._path(name), encoding="ascii") as file:  # noqa: PTH123
                asked, carried = map(int, file.read(100).split())
            return asked, carried
        return 0, 0

    def note(self, name: str, asked: int, carried: int) -> None:
        """Note what an attempt has used by now."""
        used = asked, carried
        if self._noted.get(name, (0, 0)) == used:
            return
        path = self._path(name)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        with contextlib.suppress(OSError):
            with os.fdopen(os.open(f"{path}~", flags, 0o600), "w") as file:
                file.write(f"{asked} {carried}\n")
            os.replace(f"{path}~", path)  # noqa: PTH105
            self._noted[name] = used

    def drop(self, name: str) -> None:
        """Forget an attempt that has ended."""
        self._noted.pop(name, None)
        with contextlib.suppress(OSError):
            os.unlink(self._path(name))  # noqa: PTH108

    def _path(self, name: str) -> str:
        return os.path.join(self._folder, name)  # noqa: PTH118
