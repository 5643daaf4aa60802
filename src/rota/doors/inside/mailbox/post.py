"""The post office of a home: every mailbox that is served here, and what it is filled with."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rota.doors.inside.mailbox.box import Box
from rota.doors.inside.mailbox.errors import Errors
from rota.doors.inside.mailbox.followups import nobody
from rota.doors.inside.mailbox.serving import Serving
from rota.doors.inside.mailbox.snapshots import Desk
from rota.doors.inside.mailbox.watching import Watcher
from rota.doors.inside.pace import Pace
from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.flow.execute.scripts import thread_of
from rota.model.ids import Epoch, RunId
from rota.model.inside import Held
from rota.model.keeping import Kept
from rota.model.messages import ThreadMessage
from rota.ports.mailboxes import Acknowledged
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.rules.redaction import Redactor

THREADS = 4
BRINGING = 2
"""How many files of messages are in memory at once, on their way into mailboxes."""


class Post:
    """Serves the mailboxes of the attempts that are heard here."""

    def __init__(
        self,
        desk: Desk,
        store: Store,
        home: Path,
        acknowledged: Acknowledged = nobody,
        *,
        pace: Pace,
        redactor: Redactor,
    ) -> None:
        self._desk = desk
        self._pace = pace
        self._store = store
        self._errors = Errors(home, redactor)
        self._acknowledged = acknowledged
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rota-mailbox")
        self._watcher: Watcher | None = None
        self._bringing = asyncio.Semaphore(BRINGING)
        self._served: dict[int, tuple[str, Serving]] = {}

    def tell(self, acknowledged: Acknowledged) -> None:
        """Let somebody know of every message that a program acknowledges, from now on."""
        self._acknowledged = acknowledged

    def shut(self) -> None:
        """Serve no mailbox any more; their programs go on."""
        for run_id in [*self._served]:
            self.leave(run_id)
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        self._threads.shutdown()

    async def open(
        self, assignment: Assignment, kept: Kept, folder: str, stop: Callable[[str], None]
    ) -> None:
        """Serve a try's mailbox from now on; one whose program has not begun is filled first."""
        if self._found(kept) is not None:
            return
        self.leave(kept.run_id)
        if self._watcher is None:
            self._watcher = Watcher()
        try:
            box = Box(folder)
        except OSError as fault:
            message = f"its mailbox cannot be opened: {os.strerror(fault.errno or 0).lower()}"
            raise Unavailable(message) from fault
        serving = Serving(
            held_by(assignment),
            box,
            self._desk,
            self._store,
            pace=self._pace,
            errors=self._errors,
            watcher=self._watcher,
            threads=self._threads,
            stop=stop,
            acknowledged=self._acknowledged,
        )
        self._served[kept.run_id] = kept.nonce, serving
        if assignment.kept is None or assignment.kept.nonce != kept.nonce:
            await serving.fill()
        await serving.begin()

    async def close(self, kept: Kept, *, drain: bool) -> str | None:
        """Serve it no more, after what is left of it; return why the attempt must fail, if so."""
        serving = self._found(kept)
        if serving is None:
            return None
        if drain and serving.broken is None:
            await serving.drain()
            reach("mailbox.drained")
        self.leave(kept.run_id)
        return serving.broken

    def leave(self, run_id: int) -> None:
        """Serve it no more here."""
        _, serving = self._served.pop(run_id, (None, None))
        if serving is not None:
            serving.close()

    def _found(self, kept: Kept) -> Serving | None:
        nonce, serving = self._served.get(kept.run_id, (None, None))
        return serving if nonce == kept.nonce else None

    async def bring(self, kept: Kept, message: ThreadMessage) -> ThreadMessage:
        """Lay the files of a message into the mailbox of a try, unless they are there."""
        serving = self._found(kept)
        if serving is None:
            raise Unavailable(f"the files of message {message.id} have no mailbox to lie in")
        return await self._bring(serving, message)

    async def _bring(self, serving: Serving, message: ThreadMessage) -> ThreadMessage:
        async with self._bringing:
            return await serving.bringing.bring(message)

    async def give(
        self,
        run_id: RunId,
        epoch: Epoch,
        message: ThreadMessage,
        told: Callable[[ThreadMessage], Mapping[str, Any]],
    ) -> int | None:
        """Put a message, as it is told, into the mailbox of an attempt and return its number."""
        _, serving = self._served.get(run_id, (None, None))
        if serving is None or serving.held.epoch != epoch:
            return None

        async def tell() -> Mapping[str, Any]:
            return told(await self._bring(serving, message) if message.files else message)

        return await serving.follow_ups.give(tell)


def held_by(assignment: Assignment) -> Held:
    """Return whom a mailbox belongs to, as whoever made its folder knows."""
    lease, task = assignment.lease, assignment.task
    return Held(
        run_id=lease.run_id,
        epoch=lease.epoch,
        task_id=task.id,
        task=task.name,
        thread=thread_of(assignment),
        space=task.space,
    )
