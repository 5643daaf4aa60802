"""Watching: the kernel says when a file was finished in a folder; one queue for all mailboxes.

A watch tells once and is set again before the folder is listed. So nothing that happens meanwhile
is missed, and a program that writes without end rings no more often than it is listened to.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import struct
from collections.abc import Callable

log = logging.getLogger(__name__)

CLOSED_AFTER_WRITING = 0x0008
MOVED_HERE = 0x0080
OVERFLOW = 0x4000
ONLY_A_FOLDER = 0x0100_0000
ONCE = 0x8000_0000
FINISHED = CLOSED_AFTER_WRITING | MOVED_HERE | ONLY_A_FOLDER | ONCE
HEAD = struct.Struct("=iIII")
MOST_BYTES = 64 * 1024


class Watcher:
    """Rings for folders of the running loop; where the kernel has no room, it says so."""

    def __init__(self) -> None:
        self._rings: dict[int, Callable[[], None]] = {}
        self._kernel = ctypes.CDLL(None, use_errno=True)
        self._held = -1
        begin = getattr(self._kernel, "inotify_init1", None)  # only Linux has it
        if begin is not None:
            self._held = begin(os.O_CLOEXEC | os.O_NONBLOCK)
        self._complained = False
        self._loop = asyncio.get_running_loop()
        if self._held < 0:
            self._complain()
        else:
            self._loop.add_reader(self._held, self._hear)

    def arm(self, folder: int, ring: Callable[[], None]) -> int | None:
        """Ring once when a file is finished in a folder from now on; None if nobody will."""
        if self._held < 0:
            return None
        path = b"/proc/self/fd/%d" % folder  # the folder that is held, wherever it lies by now
        watch: int = self._kernel.inotify_add_watch(self._held, path, ctypes.c_uint32(FINISHED))
        if watch < 0:
            self._complain()
            return None
        self._rings[watch] = ring
        return watch

    def disarm(self, watch: int | None) -> None:
        """Ring no more."""
        if watch is not None and self._rings.pop(watch, None) is not None:
            self._kernel.inotify_rm_watch(self._held, watch)

    def close(self) -> None:
        """Let go of the queue."""
        if self._held >= 0:
            self._loop.remove_reader(self._held)
            os.close(self._held)
            self._held = -1

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            log.warning("mailbox.unwatched", extra={"error": os.strerror(ctypes.get_errno())})

    def _hear(self) -> None:
        try:
            told = os.read(self._held, MOST_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at + HEAD.size <= len(told):
            watch, what, _, longer = HEAD.unpack_from(told, at)
            at += HEAD.size + longer
            if what & OVERFLOW:
                self._ring_all()
            ring = self._rings.pop(watch, None)
            if ring is not None:
                ring()

    def _ring_all(self) -> None:
        for ring in [*self._rings.values()]:
            ring()
