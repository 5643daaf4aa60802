"""How an attempt under a keeper ended: one record, written once, by the keeper or about it."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from rota.executors.kit.keeper.words import RESERVE_BYTES, as_lines, fill, from_lines, read_if_there
from rota.executors.kit.keeping import SAFELY
from rota.model.instants import from_micros
from rota.model.keeping import Ending, Reason, Spooled


def read_ending(folder: Path) -> Ending | None:
    """Return the ending in an attempt's folder, if there is one; an error if nobody can tell."""
    data = read_if_there(f"{folder}/exit", 2 * RESERVE_BYTES, surely=True)
    if data is None:
        return None
    try:
        return _ending(*from_lines(data))
    except (KeyError, ValueError):
        return Ending(reason=Reason.KEEPER_ERROR, detail="its record cannot be read")


def _ending(facts: dict[str, str], tails: bytes) -> Ending:
    out_tail = int(facts.get("out_tail", 0))
    return Ending(
        reason=Reason(facts["reason"]),
        detail=facts.get("detail", ""),
        nonce=facts.get("nonce", ""),
        code=_maybe_int(facts.get("code")),
        signal=_maybe_int(facts.get("signal")),
        killed=facts.get("killed") == "1",
        proven=facts.get("proven") == "1",
        tree=facts.get("tree", ""),
        started_at=_instant(facts.get("started")),
        ended_at=_instant(facts.get("ended")),
        in_offset=int(facts.get("in_offset", 0)),
        cpu_seconds=float(facts.get("cpu_seconds", 0)),
        rss_bytes=int(facts.get("rss_bytes", 0)),
        out=_stream("out", facts, tails[:out_tail]),
        err=_stream("err", facts, tails[out_tail:]),
    )


def write_ending(folder: Path, facts: dict[str, object]) -> None:
    """Write an ending if there is none; the caller holds the lock of the attempt."""
    draft = folder / "exit.reserve"
    if draft.is_symlink() or not draft.is_file():
        draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | SAFELY, 0o600)
    try:
        fill(file, as_lines(facts))
    finally:
        os.close(file)
    with suppress(FileExistsError):
        os.link(draft, folder / "exit")
    draft.unlink()


def _stream(name: str, facts: dict[str, str], tail: bytes) -> Spooled:
    size, total, errno = (
        int(facts.get(f"{name}_{what}", 0)) for what in ("size", "total", "errno")
    )
    return Spooled(size=size, total=total, errno=errno, tail=tail)


def _maybe_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _instant(nanoseconds: str | None) -> datetime | None:
    return from_micros(int(nanoseconds) // 1000) if nanoseconds and nanoseconds != "0" else None
