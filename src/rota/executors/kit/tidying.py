"""Tidying: the folders of attempts that nobody knows any more, because later ones replaced them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rota.executors.kit.boxes import delete
from rota.executors.kit.leading import attempt_name, room_name
from rota.model.keeping import Kept

LEFT_SECONDS = 3600.0
"""How long they are left before they are taken away."""


def tidy(keepers: Path, known: Sequence[Kept]) -> None:
    """Delete what has ended long ago in a home's folder of keepers, and is not known."""
    names = {attempt_name(kept) for kept in known}
    rooms = {room_name(kept.run_id, kept.epoch) for kept in known}
    before = (keepers / "lease").stat().st_mtime - LEFT_SECONDS
    for folder in (keepers / "attempts").iterdir():
        if folder.name not in names and _is_older(folder / "exit", before):
            shutil.rmtree(folder, ignore_errors=True)
    for folder in (*(keepers / "rooms").iterdir(), *(keepers / "mailboxes").iterdir()):
        if folder.name not in rooms and _is_older(folder, before):
            delete(folder)


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False
