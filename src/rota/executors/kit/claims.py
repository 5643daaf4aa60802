"""Claims: which attempts work in a folder whose names are guarded, so that it can be put in order.

A claim is a file among the attempt's own, there before its program is: a daemon that comes later
finds it. Names that are held for one attempt are held for every other in the same folder.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

from rota.executors.kit.boxes import delete
from rota.executors.kit.guard import unguard

CLAIM = "works-in"


class Claims:
    """The claims of a home's rooms on the folders below `spaces`."""

    def __init__(self, rooms: Path, spaces: Path, names: Sequence[str]) -> None:
        self._rooms = rooms
        self._spaces = spaces
        self._names = list(names)
        self._lock = threading.Lock()

    def make(self, state: Path, folder: str) -> None:
        """Claim a folder for a try, before its program begins."""
        with self._lock:
            (state / CLAIM).write_text(folder)

    def drop(self, room: Path) -> None:
        """Delete the room of an attempt that is over, and put in order where it worked alone."""
        with self._lock:
            own = {claim.read_text() for claim in room.glob(f"*/{CLAIM}")}
            left = self._rooms.glob(f"*/*/{CLAIM}") if own else ()
            others = {claim.read_text() for claim in left if claim.parent.parent != room}
            for folder in own - others:
                unguard(str(self._spaces), folder, self._names)
            delete(room)
