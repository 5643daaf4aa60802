"""The gap: no event gets the number of one that somebody has seen and that went with the power.

What is written lightly is lost by a power cut alone, and a machine that had one has booted since.
So before the first light write of a process a fact that waits for the disk names the boot, and
whoever opens the file in another boot leaves a gap first. While the boot is the same, nothing is
lost, whoever was killed.
"""

from __future__ import annotations

from pathlib import Path

import apsw

from rota.stores.sqlite.connection import connect
from rota.stores.sqlite.faults import translated

EVENTS_GAP = 1_000_000
"""More than are written lightly before something else waits for the disk."""
BOOT = Path("/proc/sys/kernel/random/boot_id")


def read_boot() -> str:
    """Return what tells this boot of the machine from any other; empty where nothing does."""
    try:
        return BOOT.read_text("ascii").strip()
    except OSError:
        return ""


def note_light(path: str, boot: str) -> None:
    """Note on disk that events may be written lightly in this boot."""
    connection = connect(path)
    try:
        with translated(path):
            _note(connection, boot)
    finally:
        connection.close()


def leave_a_gap(path: str) -> None:
    """Leave a gap before the next event."""
    connection = connect(path)
    try:
        with translated(path):
            _move(connection)
    finally:
        connection.close()


def leave_a_gap_after_a_cut(connection: apsw.Connection, boot: str) -> None:
    """Leave a gap if events were written lightly in an earlier boot; of many, one process does."""
    if _light(connection) in {None, boot}:
        return
    connection.execute("begin immediate")
    try:
        if _light(connection) not in {None, boot}:  # another process was not faster
            _move(connection)
            _note(connection, boot)
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


def _note(connection: apsw.Connection, boot: str) -> None:
    connection.execute(
        "insert into facts (name, value) values ('light', ?) "
        "on conflict (name) do update set value = excluded.value",
        (boot,),
    )


def _light(connection: apsw.Connection) -> object:
    return connection.execute("select value from facts where name = 'light'").get


def _move(connection: apsw.Connection) -> None:
    connection.execute(
        "update sqlite_sequence set seq = seq + ? where name = 'events'", (EVENTS_GAP,)
    )
