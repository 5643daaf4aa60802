"""What checks need of the world outside: files, addresses, and processes that can be ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rota.model.ids import Epoch, RunId


class Seen(NamedTuple):
    """A file that is there: when it was last written, in microseconds, and how large it is.

    `changed` says whether it is another than when the attempt began, None where nobody knows.
    """

    written: int
    size: int
    changed: bool | None


class Observed(NamedTuple):
    """Whether something is as it was wanted, and the sentence that tells what was seen."""

    passed: bool
    evidence: str


class Probes(Protocol):
    """Looks for checks. Everything it looks at may be hostile; every look ends in time."""

    async def note_files(
        self,
        attempt: tuple[RunId, Epoch],
        space: str,
        folder: str | None,
        paths: Sequence[str],
        *,
        anew: bool,
    ) -> None:
        """Note how files in a task's folder are before anything of an attempt begins.

        What was noted before stays, unless it begins anew: its programs may have run meanwhile.
        """

    async def file(
        self, attempt: tuple[RunId, Epoch], space: str, folder: str | None, path: str
    ) -> Seen | str:
        """Return what is known of a plain file in a task's folder, or why it is not one.

        No link is followed, on no step.
        """

    async def answers(self, url: str, contains: str | None, seconds: float) -> Observed:
        """Whether an address answers well in time, and its answer contains a text.

        Addresses of this machine and of its networks are refused, also after a redirect.
        """

    async def check_patterns(
        self, space: str, patterns: Sequence[str]
    ) -> tuple[int | None, str] | None:
        """Return which pattern is no regular expression, and why; None if all are.

        Without a number they take too long to compile.
        """

    async def search(self, space: str, pattern: str, text: str) -> bool | None:
        """Whether a pattern is found in a text; None if that could not be found out in time."""

    async def check_result(
        self, space: str, schema: object, result: str | None
    ) -> Sequence[str] | None:
        """Return in what a result does not fit a schema; None if that took too long."""
