"""What threads need of a store: registered, listed, and what goes on in them."""

from __future__ import annotations

from typing import Protocol

from rota.model.runs import OpenRun
from rota.model.threads import NewThread, Thread, ThreadFilter
from rota.ports.timed import Timed


class Threads(Timed, Protocol):
    """Conversations; one belongs to the space that it was first known in."""

    async def put_thread(self, thread: NewThread) -> Thread:
        """Make sure a thread exists, belongs to a space, and is as is said.

        NotFound if it belongs to another one.
        """

    async def get_thread(self, key: str) -> Thread | None:
        """Return a thread; None if there is none."""

    async def list_threads(self, wanted: ThreadFilter) -> list[Thread]:
        """Return threads, newest first."""

    async def open_runs_in(self, space_id: int, thread: str, most: int) -> list[OpenRun]:
        """Return the runs of a conversation that have not ended, oldest first."""
