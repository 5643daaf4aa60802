"""What the driver raises, as Rota's own errors: one plain sentence that says what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from rota.errors import Busy, RotaError, Unavailable

NO_ROOM = frozenset({apsw.SQLITE_IOERR_SHMSIZE, apsw.SQLITE_IOERR_SHMMAP})
"""The index of the write-ahead log cannot grow: the disk is full."""

_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.CantOpenError,
     "cannot open the database {}: check that its folder exists and is writable"),
    (apsw.FullError,
     "cannot write to the database {}: no room is left on its disk, free some and it goes on"),
    (apsw.ReadOnlyError,
     "cannot write to the database {}: check the rights to the file and its folder"),
    (apsw.NotADBError, "cannot read {}: it is not a database, check the address"),
    (apsw.CorruptError,
     "cannot use the database {}: it is damaged, keep a copy of it and restore a backup"),
    (apsw.IOError, "cannot use the database {}: its disk fails, check it and the system's log"),
)  # fmt: skip


def translate(fault: BaseException, path: str) -> RotaError | None:
    """Return the error a caller may act on, or None for what only a programmer can mend."""
    if isinstance(fault, apsw.BusyError):
        return Busy(f"the database {path} is busy: another process writes for too long, try again")
    if getattr(fault, "extendedresult", None) in NO_ROOM:
        fault = apsw.FullError()
    for kind, sentence in _SENTENCES:
        if isinstance(fault, kind):
            return Unavailable(sentence.format(path))
    return None


@contextmanager
def translated(path: str) -> Iterator[None]:
    """Raise Rota's own error for what a caller may act on."""
    try:
        yield
    except apsw.Error as fault:
        error = translate(fault, path)
        if error is None:
            raise
        raise error from fault
