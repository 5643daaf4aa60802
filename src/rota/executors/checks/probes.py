"""The eyes of checks in one home."""

from __future__ import annotations

import asyncio
from pathlib import Path

from rota.executors.checks import addresses, files, patterns
from rota.executors.kit.apart import Apart
from rota.ports.checking import Observed, Seen

SLACK_SECONDS = 1.0


class HomeProbes:
    """Looks at the files of a home's spaces, at addresses, and for patterns."""

    def __init__(self, home: Path, *, inside: bool = False) -> None:
        self._spaces = home.absolute() / "spaces"
        self._inside = inside
        self._asking = Apart()

    async def file(self, space: str, folder: str | None, path: str) -> Seen | str:
        """Return what is known of a plain file in a task's folder, or why it is not one."""
        return await asyncio.to_thread(files.look, self._spaces / space / "work", folder, path)

    async def answers(self, url: str, contains: str | None, seconds: float) -> Observed:
        """Whether an address answers well in time, and its answer contains a text."""
        asking = addresses.Asking(seconds, inside=self._inside)
        try:
            async with asyncio.timeout(seconds + SLACK_SECONDS):
                return await self._asking.do("address", asking.ask, url, contains)
        except TimeoutError:  # a name that is not resolved cannot be interrupted
            return Observed(passed=False, evidence=f"it did not answer within {seconds:g} s")
        finally:
            asking.cut()

    async def matches(self, pattern: str, text: str) -> bool | None:
        """Whether a pattern is found in a text; None if that could not be found out in time."""
        return await patterns.matches(pattern, text)
