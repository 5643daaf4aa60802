"""Tidying: the folders of attempts that nobody knows any more, because later ones replaced them.

One stays until its executor has ended what may outlive its tree: it is all that tells of that.
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from rota.executors.kit.boxes import delete
from rota.executors.kit.claims import Claims
from rota.executors.kit.keeper.words import read_file
from rota.executors.kit.leading import attempt_called, attempt_name, room_name
from rota.model.keeping import Kept

UNSWEPT = "unswept"
LEFT_SECONDS = 3600.0
"""How long they are left before they are taken away."""


def tidy(keepers: Path, known: Sequence[Kept], claims: Claims) -> None:
    """Delete what has ended long ago in a home's folder of keepers, and is not known."""
    names = {attempt_name(kept) for kept in known}
    rooms = {room_name(kept.run_id, kept.epoch) for kept in known}
    before = (keepers / "lease").stat().st_mtime - LEFT_SECONDS
    for folder in (keepers / "attempts").iterdir():
        if folder.name in names or (folder / UNSWEPT).exists():
            continue
        if _is_older(folder / "exit", before):
            shutil.rmtree(folder, ignore_errors=True)
    for place, drop in (("rooms", claims.drop), ("mailboxes", delete)):
        for folder in (keepers / place).iterdir():
            if folder.name not in rooms and _is_older(folder, before):
                drop(folder)


def unswept(keepers: Path, home: str, known: Sequence[Kept]) -> list[Kept]:
    """Return what has ended, is not known, and may have left something behind."""
    names = {attempt_name(kept) for kept in known}
    left = []
    for folder in (keepers / "attempts").glob("run-*"):
        if folder.name not in names and (folder / "exit").exists():
            executor = read_file(str(folder / UNSWEPT)).decode(errors="replace")
            left += [attempt_called(folder.name, home, executor)] if executor else []
    return left


def _is_older(path: Path, before: float) -> bool:
    try:
        return path.stat().st_mtime < before
    except FileNotFoundError:
        return False
