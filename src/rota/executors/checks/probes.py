"""The eyes of checks in one home."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from rota.executors.checks import addresses, files
from rota.executors.checks.evaluator import Evaluator
from rota.executors.kit.apart import Apart
from rota.executors.kit.leading import room_name
from rota.executors.kit.shortage import told_if_short
from rota.model.ids import Epoch, RunId
from rota.ports.checking import Observed, Seen

SLACK_SECONDS = 1.0
NOTES = "files.json"
TOO_LONG = "compiling its patterns takes too long: write them simpler"


class HomeProbes:
    """Looks at the files of a home's spaces and at addresses, and evaluates what may not end."""

    def __init__(self, home: Path, *, inside: bool = False) -> None:
        self._spaces = home.absolute() / "spaces"
        self._rooms = home.absolute() / "keepers" / "rooms"
        self._inside = inside
        self._asking = Apart()
        self._evaluator = Evaluator()

    async def note_files(
        self,
        attempt: tuple[RunId, Epoch],
        space: str,
        folder: str | None,
        paths: Sequence[str],
        *,
        anew: bool,
    ) -> None:
        """Note how files in a task's folder are before anything of an attempt begins."""
        work = self._spaces / space / "work"
        with told_if_short(unbegun=anew):
            await asyncio.to_thread(
                files.note, self._notes(attempt), work, folder, paths, anew=anew
            )

    async def file(
        self, attempt: tuple[RunId, Epoch], space: str, folder: str | None, path: str
    ) -> Seen | str:
        """Return what is known of a plain file in a task's folder, or why it is not one."""
        work = self._spaces / space / "work"
        return await asyncio.to_thread(files.look, self._notes(attempt), work, folder, path)

    def _notes(self, attempt: tuple[RunId, Epoch]) -> Path:
        """Return where it is noted, out of reach of programs behind walls."""
        return self._rooms / room_name(*attempt) / NOTES

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

    async def check_patterns(
        self, space: str, patterns: Sequence[str]
    ) -> tuple[int | None, str] | None:
        """Return which pattern is none, and why; without a number if all take too long."""
        answer = await self._evaluator.ask(space, "check_patterns", patterns)
        if answer is None:
            return None, TOO_LONG
        return None if answer[0] is None else (answer[0][0], answer[0][1])

    async def search(self, space: str, pattern: str, text: str) -> bool | None:
        """Whether a pattern is found in a text; None if that could not be found out in time."""
        answer = await self._evaluator.ask(space, "search", pattern, text)
        return None if answer is None else bool(answer[0])

    async def check_result(
        self, space: str, schema: object, result: str | None
    ) -> Sequence[str] | None:
        """Return in what a result does not fit a schema; None if that took too long."""
        answer = await self._evaluator.ask(space, "check_result", schema, result)
        return None if answer is None else answer[0]
