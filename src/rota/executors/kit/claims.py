"""Claims: which attempts work in a folder whose names are guarded, so that it can be put in order.

A claim is a file among the attempt's own, there before its program is: a daemon that comes later
finds it. Names that are held for one attempt are held for every other in the same folder. It says
which names were not there before: only what was made to hold one of these is ever taken away.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from rota.executors.kit.boxes import delete, write_anew
from rota.executors.kit.guard import missing_names, unguard

CLAIM = "works-in"


class Claim(NamedTuple):
    """A folder in which an attempt works, and the names that were missing in it."""

    folder: str
    missing: frozenset[str]


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
            missing = set(missing_names(str(self._spaces), folder, self._names))
            for claim in _claims(self._rooms, f"*/*/{CLAIM}"):
                if claim.folder == folder:  # what is held for it was missing before, too
                    missing |= claim.missing
            told = {"folder": folder, "missing": sorted(missing)}
            write_anew(state / CLAIM, json.dumps(told).encode())

    def drop(self, room: Path) -> None:
        """Delete the room of an attempt that is over, and put in order where it worked alone."""
        with self._lock:
            own = _claims(room, f"*/{CLAIM}")
            left = _claims(self._rooms, f"*/*/{CLAIM}", but=room) if own else []
            others = {claim.folder for claim in left}
            for claim in own:
                if claim.missing and claim.folder not in others:
                    unguard(str(self._spaces), claim.folder, self._names, claim.missing)
            delete(room)


def _claims(folder: Path, pattern: str, but: Path | None = None) -> list[Claim]:
    """Return the claims below a folder; of one that says no names, nothing is taken away."""
    found = []
    for path in folder.glob(pattern):
        if path.parent.parent == but:
            continue
        text = path.read_text()
        claim = Claim(text, frozenset())
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(text)
            claim = Claim(str(told["folder"]), frozenset(told["missing"]))
        found.append(claim)
    return found
