"""The folders of mailboxes, made for each try and gone with the attempt."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

from rota.errors import Invalid
from rota.executors.kit.artifacts import remove
from rota.ports.mailboxes import FILES, IN, MESSAGES, OUT, REPLIES

PRIVATE = 0o700


def make_folder(folder: Path) -> None:
    """Make a folder for this user alone, with all above it, if it is not there."""
    try:
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        advice = "something else stands in the place of this folder: remove it"
        raise Invalid("folder", str(folder), advice) from None


def make_box(attempt: Path, name: str) -> str:
    """Return the mailbox of a try of an attempt, which is made if it is not there."""
    box = attempt.absolute() / name
    inner = (box / IN / name for name in (REPLIES, MESSAGES, FILES))
    for folder in (attempt, box, box / OUT, box / IN, *inner):
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    return str(box)


def shown_of(box: str | None) -> list[str]:
    """Return what a program reads of its mailbox."""
    return [] if box is None else [f"{box}/{IN}"]


def outbox_of(box: str | None) -> str | None:
    """Return what a program writes into."""
    return None if box is None else f"{box}/{OUT}"


def delete(folder: Path) -> None:
    """Delete what a program may have filled, however deep; what cannot be is left."""
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            remove(above, folder.name)
    finally:
        os.close(above)


def write_anew(path: Path, content: bytes) -> None:
    """Put a file where an earlier try without walls may have left anything: it is not opened."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)
