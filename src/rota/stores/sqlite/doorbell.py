"""The doorbell beside a database file: how other processes say that they have written.

The process that plans and works listens on a Unix datagram socket `<database>.wake`. Every other
process sends the topics of what it has committed there. A ring may be lost: nobody is home, the
path is too long for a socket, the queue is full. So the listener also looks once a second whether
somebody else has written (SQLite's `data_version`), and then takes every topic as rung.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from rota.errors import Unavailable

log = logging.getLogger(__name__)

TOPICS = ("runs", "later", "schedules", "deliveries", "cancels", "keys", "events")
LONGEST_RING = 1_024
POLL_SECONDS = 1.0
"""How long a write of another process can stay unnoticed when its ring was lost."""


class Doorbell:
    """Rings at whoever listens beside a database, or listens."""

    def __init__(self, database: str, hear: Callable[[Sequence[str]], None]) -> None:
        self.path = Path(f"{database}.wake")
        self._address = str(self.path)
        self._hear = hear
        self._listening: socket.socket | None = None
        self._sending: socket.socket | None = None
        self._watch: asyncio.Task[None] | None = None
        self.watching = asyncio.Event()

    def ring(self, topics: Sequence[str]) -> None:
        """Tell the listener about topics, from the thread that wrote; never waits, never fails."""
        if self._listening is not None or not topics:
            return
        if self._sending is None:
            self._sending = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sending.setblocking(False)
        with contextlib.suppress(OSError):
            self._sending.sendto(",".join(topics).encode(), self._address)

    def listen(self, version: Callable[[], Awaitable[int]]) -> None:
        """Hear rings from now on; `version` tells how often others have written to the database.

        Only the holder of the instance lock calls this: a socket that stands there is a leftover.
        """
        if self._watch is not None:
            return
        loop = asyncio.get_running_loop()
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        bell.setblocking(False)
        try:
            self.path.unlink(missing_ok=True)
            bell.bind(str(self.path))
            self.path.chmod(0o600)
        except OSError as fault:
            log.info("store.doorbell_missing", extra={"path": str(self.path), "error": str(fault)})
            bell.close()
        else:
            self._listening = bell
            loop.add_reader(bell.fileno(), self._answer)
        self._watch = loop.create_task(self._watch_version(version))

    async def stop_listening(self) -> None:
        """Stop hearing, and take the bell away."""
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
            self._watch = None
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
            with contextlib.suppress(OSError):
                self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Ring no more."""
        if self._sending is not None:
            self._sending.close()
            self._sending = None

    def _answer(self) -> None:
        heard: dict[str, None] = {}
        with contextlib.suppress(OSError):
            while self._listening is not None:
                rung = self._listening.recv(LONGEST_RING).decode("ascii", "replace")
                heard.update((topic, None) for topic in rung.split(",") if topic in TOPICS)
        if heard:
            self._hear(list(heard))

    async def _watch_version(self, version: Callable[[], Awaitable[int]]) -> None:
        known = -1
        while True:
            try:
                current = await version()
            except Unavailable:  # whoever needs the database now will say so
                current = known
            if current != known >= 0:
                self._hear(TOPICS)
            known = current
            self.watching.set()
            await asyncio.sleep(POLL_SECONDS)
