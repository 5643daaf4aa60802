"""All mailboxes of a home: opened with their attempts, served and closed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from rota.agent_api.dispatcher import RateLimiter
from rota.agent_api.mailbox.contents import CommandDispatcher, nobody
from rota.agent_api.mailbox.folder import Mailbox
from rota.agent_api.mailbox.processor import FolderWatcher, MailboxProcessor, RejectedFiles
from rota.errors import Unavailable
from rota.faultpoints import reach
from rota.flow.attempt.prepare import thread_key
from rota.model.attempts import Assignment, KeptAttempt
from rota.model.audit import AttemptIdentity
from rota.model.ids import Epoch, RunId
from rota.model.threads import ThreadMessage
from rota.ports.mailbox import Acknowledged
from rota.rules.redaction import Redactor
from rota.store.store import Store

THREADS = 4
BRINGING = 2
"""Number of message files that may be in memory at once."""


class MailboxManager:
    """Serves the mailboxes of the attempts that this process follows."""

    def __init__(
        self,
        desk: CommandDispatcher,
        store: Store,
        home: Path,
        acknowledged: Acknowledged = nobody,
        *,
        pace: RateLimiter,
        redactor: Redactor,
    ) -> None:
        self._desk = desk
        self._pace = pace
        self._store = store
        self._errors = RejectedFiles(home, redactor)
        self._acknowledged = acknowledged
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="rota-mailbox")
        self._watcher: FolderWatcher | None = None
        self._bringing = asyncio.Semaphore(BRINGING)
        self._served: dict[int, tuple[str, MailboxProcessor]] = {}

    def set_callback(self, acknowledged: Acknowledged) -> None:
        """Register a callback for acknowledged messages."""
        self._acknowledged = acknowledged

    def shut(self) -> None:
        """Stop serving all mailboxes; their programs continue."""
        for run_id in [*self._served]:
            self.release(run_id)
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None
        self._threads.shutdown()

    async def open(
        self, assignment: Assignment, kept: KeptAttempt, folder: str, stop: Callable[[str], None]
    ) -> None:
        """Serve the mailbox of a launch; before its program starts, write its snapshots."""
        if self._found(kept) is not None:
            return
        self.release(kept.run_id)
        if self._watcher is None:
            self._watcher = FolderWatcher()
        try:
            box = Mailbox(folder)
        except OSError as fault:
            message = f"its mailbox cannot be opened: {os.strerror(fault.errno or 0).lower()}"
            raise Unavailable(message) from fault
        serving = MailboxProcessor(
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

    async def close(self, kept: KeptAttempt, *, drain: bool) -> str | None:
        """Execute what is left in a mailbox and close it; return why the attempt must fail."""
        serving = self._found(kept)
        if serving is None:
            return None
        if drain and serving.broken is None:
            await serving.drain()
            reach("mailbox.drained")
        self.release(kept.run_id)
        return serving.broken

    def release(self, run_id: int) -> None:
        """Stop serving a mailbox in this process."""
        _, serving = self._served.pop(run_id, (None, None))
        if serving is not None:
            serving.close()

    def _found(self, kept: KeptAttempt) -> MailboxProcessor | None:
        nonce, serving = self._served.get(kept.run_id, (None, None))
        return serving if nonce == kept.nonce else None

    async def put_files(self, kept: KeptAttempt, message: ThreadMessage) -> ThreadMessage:
        """Write the files of a message into the mailbox of a launch."""
        serving = self._found(kept)
        if serving is None:
            raise Unavailable(
                f"the files of message {message.id} cannot be delivered: there is no mailbox"
            )
        return await self._bring(serving, message)

    async def _bring(self, serving: MailboxProcessor, message: ThreadMessage) -> ThreadMessage:
        async with self._bringing:
            return await serving.bringing.bring(message)

    async def put_message(
        self,
        run_id: RunId,
        epoch: Epoch,
        message: ThreadMessage,
        told: Callable[[ThreadMessage], Mapping[str, Any]],
    ) -> int | None:
        """Put a message into the mailbox of an attempt and return its number."""
        _, serving = self._served.get(run_id, (None, None))
        if serving is None or serving.held.epoch != epoch:
            return None

        async def tell() -> Mapping[str, Any]:
            return told(await self._bring(serving, message) if message.files else message)

        return await serving.follow_ups.give(tell)


def held_by(assignment: Assignment) -> AttemptIdentity:
    """Return the identity of the attempt that a mailbox belongs to."""
    lease, task = assignment.lease, assignment.task
    return AttemptIdentity(
        run_id=lease.run_id,
        epoch=lease.epoch,
        task_id=task.id,
        task=task.name,
        thread=thread_key(assignment),
        space=task.space,
    )
