"""How an attempt under a keeper ended: one record, written once, by the keeper or about it."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from rota.executors.kit.keeper.words import RESERVE_BYTES, as_lines, fill, from_lines, read_file
from rota.model.instants import from_micros


class Reason(StrEnum):
    """Why an attempt ended; what begins with `lost` was found out by the daemon."""

    EXITED = "exited"
    SIGNALED = "signaled"
    CANCELLED = "cancelled"
    HARD_TIMEOUT = "hard_timeout"
    IDLE_TIMEOUT = "idle_timeout"
    LEASE_EXPIRED = "lease_expired"
    TOO_MANY_PROCESSES = "too_many_processes"
    KEEPER_SIGTERM = "keeper_sigterm"
    EXEC_FAILED = "exec_failed"
    SPAWN_FAILED = "spawn_failed"
    KEEPER_ERROR = "keeper_error"
    INIT_KILLED = "init_killed"
    LOST_REBOOT = "lost:reboot"
    LOST_NEVER_STARTED = "lost:never_started"
    LOST_KEEPER_DIED = "lost:keeper_died"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """What became of one stream: `size` bytes are in the spool, of `total` that were written.

    `tail` holds the newest bytes that are not in the spool, `errno` why the disk took no more.
    """

    size: int = 0
    total: int = 0
    errno: int = 0
    tail: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The end of one attempt.

    `proven` says that no process of its tree is alive, as the kernel told somebody who was there.
    `killed` says that it had to be ended by force.
    """

    reason: Reason
    detail: str = ""
    nonce: str = ""
    code: int | None = None
    signal: int | None = None
    killed: bool = False
    proven: bool = False
    tree: str = ""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    in_offset: int = 0
    cpu_seconds: float = 0.0
    rss_bytes: int = 0
    out: Stream = Stream()
    err: Stream = Stream()

    @property
    def lost(self) -> bool:
        """Whether the daemon had to find out, because no keeper could tell."""
        return self.reason.startswith("lost:")


def read_verdict(folder: Path) -> Verdict | None:
    """Return the verdict in an attempt's folder, if there is one."""
    data = read_file(str(folder / "exit"), 2 * RESERVE_BYTES)
    if not data:
        return None
    facts, tails = from_lines(data)
    out_tail = int(facts.get("out_tail", 0))
    return Verdict(
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


def give_verdict(folder: Path, facts: dict[str, object]) -> None:
    """Write a verdict if there is none; the caller holds the lock of the attempt."""
    draft = folder / "exit.reserve"
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fill(file, as_lines(facts))
    finally:
        os.close(file)
    with suppress(FileExistsError):
        os.link(draft, folder / "exit")
    draft.unlink()


def _stream(name: str, facts: dict[str, str], tail: bytes) -> Stream:
    size, total, errno = (
        int(facts.get(f"{name}_{what}", 0)) for what in ("size", "total", "errno")
    )
    return Stream(size=size, total=total, errno=errno, tail=tail)


def _maybe_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _instant(nanoseconds: str | None) -> datetime | None:
    return from_micros(int(nanoseconds) // 1000) if nanoseconds and nanoseconds != "0" else None
