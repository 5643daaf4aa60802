"""What has become of an attempt: whether its keeper lives, or how it ended.

An ending is given once. The keeper gives it while it holds the attempt's lock. Where it could not,
a daemon that has got the lock does, which means that no keeper lives and none is on its way:

    lost:reboot          the machine was started again since: nothing of the tree can live
    lost:never_started   no keeper came so far as to start the program
    lost:keeper_died     the keeper was killed; the tree went with its namespace, or with its guard,
                         or was swept up by its marker, and then `proven` is false

No process number is an address here: each is looked at together with the time its process began.
"""

from __future__ import annotations

import fcntl
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from rota.executors.kit.ending import read_ending, write_ending
from rota.executors.kit.keeper.processes import start_time, strike
from rota.executors.kit.keeper.words import (
    SEALED_BYTES,
    boot_id,
    from_lines,
    read_file,
    read_if_there,
    unseal,
)
from rota.executors.kit.keeping import Identity
from rota.executors.kit.lease import NANOSECONDS, boot_time
from rota.executors.kit.reaping import reap
from rota.executors.kit.sweeping import sweep
from rota.model.instants import to_micros
from rota.model.keeping import Ending, Reason, Spooled

LAST_WORDS = 500
SWEPT = "{} processes were found by their marker and ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class Beat:
    """How far a keeper was when it last said so; `at` is boot time in nanoseconds, 0 if never."""

    at: int
    state: str
    in_offset: int
    out: Spooled
    err: Spooled


@dataclass(frozen=True, slots=True, kw_only=True)
class Alive:
    """A keeper holds the attempt, or the kernel is just clearing its tree away.

    `pid` is 0 until the keeper has introduced itself.
    """

    pid: int = 0
    pid_started: int = 0
    tree: str = ""
    beat: Beat | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The attempt is over, and this will not change."""

    ending: Ending


def probe(folder: Path, identity: Identity) -> Alive | Ended:
    """Return who keeps an attempt, or how it ended."""
    ending = look(folder, identity)
    return glance(folder, identity) if ending is None else Ended(ending=ending)


def look(
    folder: Path,
    identity: Identity,
    *,
    sweep: Callable[[str], int | None] = sweep,
    reap: Callable[[Path], object] = reap,
) -> Ending | None:
    """Return how an attempt ended, which is said here if nobody else can; None while it is kept.

    Attempts are looked at whenever they ring: this asks for no more than it needs. It waits only
    for what it is given to sweep and to reap; a sweep that says None is not done yet.
    """
    ending = read_ending(folder)
    if ending is not None:
        reap(folder)
        return _dated(folder, identity, ending)
    try:
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return _never_made(identity, sweep)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    else:
        ending = _judge(folder, identity, sweep)
    finally:
        os.close(lock)
    if ending is not None:
        reap(folder)
    return ending


def glance(folder: Path, identity: Identity) -> Alive:
    """Return who keeps an attempt and what it last said, whether it lives or not."""
    facts, beat = _facts(folder), read_beat(folder)
    if facts is None or facts.nonce != identity.nonce:
        return Alive(beat=beat)
    return Alive(pid=facts.pid, pid_started=facts.pid_started, tree=facts.tree, beat=beat)


def state_of(seen: Alive, *, alive: bool) -> str:
    """Return how far a keeper is, in one word."""
    if not seen.pid:
        return "starting"
    if not alive:
        return "gone"
    return seen.beat.state if seen.beat is not None else "running"


def wake_keeper(alive: Alive) -> bool:
    """Let a keeper go on that somebody has stopped."""
    return _strike(alive, signal.SIGCONT)


def stop_keeper(alive: Alive) -> bool:
    """Ask a keeper to end its tree where no wish can be written: the signal needs no disk."""
    return _strike(alive, signal.SIGTERM)


def kill_keeper(alive: Alive) -> bool:
    """Kill a keeper that gives no sign of life; its tree ends with it, and the next look judges."""
    return _strike(alive, signal.SIGKILL)


def _strike(alive: Alive, number: signal.Signals) -> bool:
    same = alive.pid_started
    return bool(same) and strike(alive.pid, number, lambda pid: start_time(pid) == same)


def read_beat(folder: Path) -> Beat | None:
    """Return the last sign of life of a keeper; none if it is being written just now."""
    words = unseal(read_file(str(folder / "beat"), SEALED_BYTES))
    if not words:
        return None
    out, err = (Spooled(size=int(words[n]), total=int(words[n + 1])) for n in (3, 5))
    return Beat(at=int(words[0]), state=words[1], in_offset=int(words[2]), out=out, err=err)


class _Facts(NamedTuple):
    """Who keeps an attempt; all zero if somebody has spoilt what the keeper wrote."""

    nonce: str = ""
    pid: int = 0
    pid_started: int = 0
    inner: int = 0
    inner_started: int = 0
    tree: str = ""


def _facts(folder: Path) -> _Facts | None:
    data = read_if_there(str(folder / "keeper"))
    if data is None:
        return None
    told, _ = from_lines(data)
    try:
        return _Facts(
            nonce=told["nonce"],
            pid=int(told["pid"]),
            pid_started=int(told["pid_started"]),
            inner=int(told["inner"]),
            inner_started=int(told["inner_started"]),
            tree=told["tree"],
        )
    except (KeyError, ValueError):
        return _Facts()


def _judge(folder: Path, identity: Identity, sweep: Callable[[str], int | None]) -> Ending | None:
    """Give the ending about a keeper that is dead, or None while its tree dies."""
    facts = _facts(folder)
    ending = read_ending(folder)
    if ending is None:
        if identity.boot != boot_id():
            lost, proven, detail = Reason.LOST_REBOOT, True, ""
        elif facts is None:
            lost, proven, detail = Reason.LOST_NEVER_STARTED, True, _last_words(folder)
        elif _inner_lives(facts):
            return None
        elif _is_clear(folder, facts):
            lost, proven, detail = Reason.LOST_KEEPER_DIED, True, ""
        elif (found := sweep(identity.name)) is None:
            return None
        else:
            lost, proven, detail = Reason.LOST_KEEPER_DIED, False, SWEPT.format(found)
        write_ending(folder, _told(folder, facts, identity, lost, detail, proven=proven))
        ending = read_ending(folder)
    if ending is None:
        message = f"the ending in {folder} is gone"
        raise FileNotFoundError(message)
    return _dated(folder, identity, ending)


def _dated(folder: Path, identity: Identity, ending: Ending) -> Ending:
    """Return an ending with how long ago it was.

    A keeper's last beat tells that by a clock that never leaps, where it is of the end or of a
    keeper that was killed. After a reboot only the wall can tell.
    """
    beat, same = read_beat(folder), identity.boot == boot_id()
    gone = 0
    if same and beat is not None and beat.at and (beat.state == "ended" or ending.lost):
        gone = boot_time() - beat.at
    elif not same and ending.lost and (folder / "beat").exists():
        gone = time.time_ns() - (folder / "beat").stat().st_mtime_ns
    elif ending.ended_at is not None:
        gone = time.time_ns() - to_micros(ending.ended_at) * 1_000
    return replace(ending, ago=max(0, gone) / NANOSECONDS)


def _last_words(folder: Path) -> str:
    return read_file(str(folder / "keeper.err")).decode(errors="replace").strip()[-LAST_WORDS:]


def _inner_lives(facts: _Facts) -> bool:
    """Return whether the inner process is still there; it ends by itself, once it runs."""
    began = facts.inner_started
    if not began or start_time(facts.inner) != began:
        return False
    strike(facts.inner, signal.SIGCONT, lambda pid: start_time(pid) == began)
    return True


def _is_clear(folder: Path, facts: _Facts) -> bool:
    """Return whether a dead keeper's tree is dead for certain."""
    if facts.tree == "guard":
        return not (folder / "unproven").exists()  # the guard has ended everything
    return facts.tree == "pidns"  # the first process of the namespace took every other with it


def _told(
    folder: Path,
    facts: _Facts | None,
    identity: Identity,
    lost: Reason,
    detail: str,
    *,
    proven: bool,
) -> dict[str, object]:
    told: dict[str, object] = {
        "name": identity.name,
        "nonce": identity.nonce,
        "reason": lost.value,
        "detail": detail,
        "proven": int(proven),
        "tree": facts.tree if facts else "",
        "ended": time.time_ns(),
    }
    beat = read_beat(folder)
    for name in ("out", "err"):
        path = folder / name
        size = path.stat().st_size if path.exists() else 0
        seen = getattr(beat, name).total if beat else 0
        told |= {f"{name}_size": size, f"{name}_total": max(size, seen)}
    return told | ({"in_offset": beat.in_offset} if beat else {})


def _never_made(identity: Identity, sweep: Callable[[str], int | None]) -> Ending | None:
    """Return the ending about an attempt without a folder, which nobody can write down."""
    reason = Reason.LOST_REBOOT if identity.boot != boot_id() else Reason.LOST_NEVER_STARTED
    found = 0 if reason is Reason.LOST_REBOOT else sweep(identity.name)
    if found is None:
        return None
    if found:
        reason = Reason.LOST_KEEPER_DIED
    detail = "it has no folder"
    return Ending(reason=reason, detail=detail, nonce=identity.nonce, proven=not found)
