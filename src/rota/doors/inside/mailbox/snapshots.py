"""Snapshots: what a program finds in its mailbox before it starts, and again when it asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from rota.doors.inside.mailbox.box import Box
from rota.errors import Unavailable
from rota.model.inside import Held
from rota.model.spaces import Role
from rota.model.threads import ThreadFilter
from rota.ports.store import Store

MOST_TASKS = 100
MOST_THREADS = 1_000
TOLD: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "tasks.json": ("list_tasks", {"limit": MOST_TASKS}),
    "sessions.json": ("list_sessions", {}),
}
"""What is shown, and the command that would tell the same; what nobody can tell is not shown."""
THREADS = "threads.json"


class Desk(Protocol):
    """Who carries commands out for attempts."""

    async def serve(
        self, held: Held, verb: str, fields: Mapping[str, Any], request_id: str
    ) -> dict[str, Any]:
        """Return the answer: `ok`, and what was found or what was wrong."""


class Snapshots:
    """Shows programs what they may see themselves, and no more."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def fill(self, held: Held, box: Box, off: Callable[..., Awaitable[Any]]) -> list[str]:
        """Put what there is now into a mailbox; return the names of the files."""
        shown = []
        for name, (verb, fields) in TOLD.items():
            found = await self._desk.serve(held, verb, fields, f"snapshot-{verb}")
            if found.pop("ok") is True:
                await off(box.show, name, found)
                shown.append(name)
        with suppress(Unavailable):
            await off(box.show, THREADS, {"threads": await self._threads(held)})
            shown.append(THREADS)
        return shown

    async def _threads(self, held: Held) -> list[dict[str, str | None]]:
        space = await self._store.find_space(held.space)
        seen = None if space.role is Role.MAIN else space.id
        found = await self._store.list_threads(ThreadFilter(seen, limit=MOST_THREADS))
        return [
            {
                "space": each.space,
                "thread": each.key,
                "title": each.title,
                "task": each.task,
                "said_at": None if each.said_at is None else each.said_at.isoformat(),
            }
            for each in found
        ]
