"""The keepers of a home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.attempts import Assignment, ExitRecord, KeptAttempt, OutputStream
from rota.model.heartbeats import AttemptSample
from rota.model.programs import ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentWorkspace, PreparedProgram


class KeeperHome(Protocol):
    """Short work on files that remembers nothing: a process that comes back does the same calls.

    Keepers end by themselves once nobody has promised them more time.
    """

    @property
    def home(self) -> str:
        """What this home is called in the store."""

    @property
    def host(self) -> str:
        """What this machine is called."""

    @property
    def boot(self) -> str:
        """The name of the time since this machine was last started."""

    def take(self) -> bool:
        """Take the home for this process; false if another one has it."""

    def close(self) -> None:
        """Let go of the home; its keepers go on until the promise ends."""

    def moment(self) -> float:
        """Return the seconds since this machine was started, sleep included."""

    def promise(self, until: float) -> None:
        """Let every keeper go on until a moment."""

    def room(
        self,
        assignment: Assignment,
        site: Site,
        offered: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> AgentWorkspace:
        """Return the folders of an attempt, by the paths its own program sees.

        Raises Exhausted where the machine has no room for them and no program has begun.
        """

    def mailbox(self, kept: KeptAttempt) -> str:
        """Return the mailbox of a try, made if it is not there, by the path its program sees."""

    async def start(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> None:
        """Start the keeper of an attempt, at most once; how that went is seen by looking.

        Raises Unavailable or NotPermitted, and starts nothing, where the site cannot be had;
        Exhausted where the machine lacks room, memory or files, if no try of it has begun before.
        """

    def look(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return how an attempt ended, None while it goes on; what is left of it is ended first."""

    def beside(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Return what else was ever started for an attempt in this home."""

    def result(self, assignment: Assignment) -> bytes | None:
        """Return what an attempt left in its result file, one byte more than counts at most."""

    def wrote(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""

    def read(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset."""

    def input(self, kept: KeptAttempt) -> tuple[bytes, bool]:
        """Return all that a program was given to read, and whether that has ended."""

    def write(self, kept: KeptAttempt, offset: int, data: bytes, *, end: bool = False) -> None:
        """Put bytes at an offset of what a program reads; with `end` there is no more."""

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree: politely, then for certain.

        Asking again can only hurry it, and what has ended is not disturbed. No disk prevents it:
        the wish has room of its own on a full one, and where it cannot be written all the same the
        keeper is signalled and uses its own grace. Raises OSError only while this process can open
        no more files: then nothing was said, and it is to be asked again.
        """

    async def sweep(self, kept: KeptAttempt) -> None:
        """End what outlives the tree of an attempt that has ended; it may take a while.

        Raises Unavailable while something is left: the attempt is not over before.
        """

    async def unswept(self, known: Sequence[KeptAttempt]) -> Sequence[KeptAttempt]:
        """Return what has ended, is not known any more, and may have left something behind."""

    def pane(self, kept: KeptAttempt) -> str | None:
        """Return what the pane of an attempt shows, None where none answers; takes a moment."""

    async def forget(self, kept: KeptAttempt) -> None:
        """Delete the folder of an attempt that has ended and is on record."""

    async def tidy(self, known: Sequence[KeptAttempt]) -> None:
        """Delete what has ended long ago and is not known any more."""

    async def sign(self, kept: KeptAttempt) -> AttemptSample:
        """Return what can be seen of an attempt without disturbing it."""

    def rouse(self, kept: KeptAttempt, *, for_good: bool) -> bool:
        """Wake a silent keeper, or end it for good with its tree; true if that was tried."""

    async def rung(self, kept: KeptAttempt, seconds: float) -> None:
        """Wait until a keeper has something new or has ended, at most so long."""
