"""The keepers of a home, as attempts use them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from rota.model.attempts import Assignment, ExitRecord, KeptAttempt, OutputStream
from rota.model.heartbeats import AttemptSample
from rota.model.programs import ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentWorkspace, PreparedProgram


class KeeperHome(Protocol):
    """Starts, observes and stops keepers by their files.

    It keeps no state in memory: after a restart the same calls work again. Keepers stop by
    themselves if their lease is not extended. Methods that are not async block briefly on files.
    """

    @property
    def home(self) -> str:
        """Name of this home in the store."""

    @property
    def host(self) -> str:
        """Name of this machine."""

    @property
    def boot(self) -> str:
        """Boot id of this machine."""

    def acquire(self) -> bool:
        """Acquire the home for this process; false if another process has it."""

    def close(self) -> None:
        """Release the home; its keepers continue until their lease ends."""

    def boot_time(self) -> float:
        """Return the seconds since boot, sleep included."""

    def extend_lease(self, until: float) -> None:
        """Extend the lease of all keepers to an instant of boot time."""

    def make_workspace(
        self,
        assignment: Assignment,
        site: Site,
        offered: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> AgentWorkspace:
        """Create the folders of an attempt, and return their paths as its program sees them.

        Raises Exhausted if the machine lacks space for them before a program has started.
        """

    def make_mailbox(self, kept: KeptAttempt) -> str:
        """Create the mailbox of a launch if needed; return its path as the program sees it."""

    async def start(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> None:
        """Start the keeper of an attempt, at most once; its outcome is found in its files.

        Raises Unavailable or NotPermitted if the site is not available, and Exhausted if the
        machine lacks disk space, memory or file descriptors and no launch of the attempt has
        started before.
        """

    def exit_record(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return how an attempt ended, or None while it runs; first ends what is left of it."""

    def other_launches(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Return the other launches of an attempt in this home."""

    def read_result(self, assignment: Assignment) -> bytes | None:
        """Return the result file of an attempt, at most one byte more than allowed."""

    def has_written(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to the outside; None if that is unknown."""

    def read_output(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Return bytes of an output stream from an offset."""

    def read_input(self, kept: KeptAttempt) -> tuple[bytes, bool]:
        """Return all input of a program, and whether its input was closed."""

    def write_input(
        self, kept: KeptAttempt, offset: int, data: bytes, *, end: bool = False
    ) -> None:
        """Write input of a program at an offset; with `end`, close it afterwards."""

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to stop its tree: SIGTERM first, SIGKILL after the grace period.

        Asking again can only shorten the grace period; an ended attempt is not affected. The
        request has reserved space, so that it can be written on a full disk; if it cannot be
        written all the same, the keeper is signalled and uses its own grace period. Raises OSError
        only if this process cannot open more files; then nothing was requested, and the call has to
        be repeated.
        """

    async def clean_up(self, kept: KeptAttempt) -> None:
        """Clean up what outlives the process tree of an ended attempt; this may take a while.

        Raises Unavailable while something is left; the attempt has not ended before.
        """

    async def find_uncleaned(self, known: Sequence[KeptAttempt]) -> Sequence[KeptAttempt]:
        """Return ended attempts that are no longer known and may have left processes behind."""

    def capture_pane(self, kept: KeptAttempt) -> str | None:
        """Return the content of an attempt's terminal, or None; takes a moment."""

    async def delete(self, kept: KeptAttempt) -> None:
        """Delete the folder of an ended attempt that is recorded."""

    async def delete_old(self, known: Sequence[KeptAttempt]) -> None:
        """Delete folders of attempts that ended long ago and are no longer known."""

    async def take_sample(self, kept: KeptAttempt) -> AttemptSample:
        """Return a sample of an attempt without disturbing it."""

    def wake(self, kept: KeptAttempt, *, for_good: bool) -> bool:
        """Wake an unresponsive keeper, or with `for_good` kill its tree; true if that was tried."""

    async def wait_for_change(self, kept: KeptAttempt, seconds: float) -> None:
        """Wait until a keeper reports something new or ends, at most `seconds`."""
