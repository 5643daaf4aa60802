"""What the daemon does with one keeper: start, read, write, cancel, probe, renew its lease.

Everything here is short file work, and nothing here remembers anything: a daemon that was killed
and comes back does the same calls with the same folder. The way of one attempt:

    identity = introduce(spec.name)         # into the database, before anything is started
    start(folder, spec, identity, …)        # at most once for a folder
    read_spool, write_input, cancel         # as often as wanted, by whichever daemon
    probe(folder, identity)                 # rota.keeper.client: alive, or the ending

A line read from a spool is recorded once if its offset is committed together with it. Follow-up
input arrives once if its offset is recorded first: the same bytes at the same place, again.

An ending is given once. The keeper gives it while it holds the attempt's lock. Where it could not,
a daemon that has got the lock does, which means that no keeper lives and none is on its way:

    lost:reboot          the machine was started again since: nothing of the tree can live
    lost:never_started   no keeper came so far as to start the program
    lost:keeper_died     the keeper was killed; the tree went with its namespace, or with its guard,
                         or was swept up by its marker, and then `proven` is false

No process number is an address here: each is looked at together with the time its process began.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import NamedTuple, Self

from rota.errors import Invalid
from rota.keeper.build import KeeperBinary, certain_kill, usual_files
from rota.keeper.cleanup import reap, sweep
from rota.keeper.linux import start_time, strike
from rota.keeper.protocol import (
    LOCK_FD,
    MARKER,
    RESERVE_BYTES,
    SEALED_BYTES,
    WISH_BYTES,
    as_lines,
    boot_id,
    fill,
    from_lines,
    pack,
    read_file,
    read_if_there,
    seal,
    unseal,
    write_whole,
)
from rota.model.attempts import ExitReason, ExitRecord, SpoolState
from rota.model.instants import from_micros, to_micros
from rota.ports.executor import KeeperSpec, ProcessTreeMode

LEFTOVER_SECONDS = 1.0
BEAT_SECONDS = 15.0
SLACK_SECONDS = 60.0
MAX_NAME = 200
FREE_OF_STANDARD_FDS = 10
MAX_REASON = 400
NOBODY_LISTENS = frozenset({errno.ENXIO, errno.ENOENT})
SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Whatever a program of the same user may have put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperIdentity:
    """Which keeper is meant: the attempt, the boot it was started in, and a word of its own."""

    name: str
    boot: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedKeeper:
    """A keeper that was started."""

    folder: Path
    identity: KeeperIdentity
    pid: int


def new_identity(name: str) -> KeeperIdentity:
    """Return who the keeper of an attempt will be, to be written down before it is started."""
    return KeeperIdentity(name=name, boot=boot_id(), nonce=secrets.token_hex(8))


def start(
    folder: Path,
    spec: KeeperSpec,
    identity: KeeperIdentity,
    program: KeeperBinary,
    *,
    executor: str = "",
    epoch: int = 0,
    lease: KeeperLease | None = None,
    wake: KeeperFifo | None = None,
    slack_seconds: float = SLACK_SECONDS,
    leftover_seconds: float = LEFTOVER_SECONDS,
    beat_seconds: float = BEAT_SECONDS,
) -> StartedKeeper:
    """Start a keeper for an attempt, in a folder that must not exist yet.

    The lock of the attempt is held when it appears, and goes over to the keeper at its birth: a
    free lock means that there is no keeper and that none is on its way.
    """
    orders = [
        *_words_of(spec, certain=certain_kill(spec.tree, program)),
        (b"nonce", identity.nonce.encode()),
        (b"boot", identity.boot.encode()),
        (b"epoch", b"%d" % epoch),
        (b"usual_files", b"%d" % usual_files()),
        (b"leftover_seconds", str(leftover_seconds).encode()),
        (b"beat_seconds", str(beat_seconds).encode()),
    ]
    if wake is not None:
        orders.append((b"wake", os.fsencode(wake.path.absolute())))
    if lease is not None:
        orders += [
            (b"lease", os.fsencode(lease.path.absolute())),
            (b"lease_until", b"%d" % lease.until),
            (b"slack_seconds", str(slack_seconds).encode()),
        ]
    folder.mkdir(mode=0o700)
    try:
        pid = _begin(folder, spec, program, pack(orders), executor)
    except BaseException:  # then there is no keeper, and nobody is to look for one
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return StartedKeeper(folder=folder, identity=identity, pid=pid)


def read_spool(folder: Path, stream: str, offset: int, most: int) -> bytes:
    """Return what a stream (`out` or `err`) has at an offset; nothing if it is not so far yet."""
    path = f"{folder}/{stream}"
    try:
        if os.lstat(path).st_size <= offset:
            return b""
        file = os.open(path, os.O_RDONLY | SAFELY)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(file, most, offset)
    finally:
        os.close(file)


def read_input(folder: Path) -> tuple[bytes, bool]:
    """Return all that the program was given to read, and whether that has ended."""
    ended = (folder / "in.end").exists()
    try:
        size = os.lstat(folder / "in").st_size
    except FileNotFoundError:
        return b"", True
    return read_spool(folder, "in", 0, size), ended


def write_input(folder: Path, offset: int, data: bytes, *, end: bool = False) -> None:
    """Put bytes at an offset of what the program reads, and after the last ones say the end."""
    file = os.open(folder / "in", os.O_WRONLY | SAFELY)
    try:
        _write_all(file, data, offset)
    finally:
        os.close(file)
    if end:
        (folder / "in.end").touch(mode=0o600)
    wake_keeper_pipe(folder)


def cancel(folder: Path, epoch: int, grace_seconds: float, reason: str) -> None:
    """Ask the keeper to end its tree: politely, and after a grace for certain.

    A keeper that has heard of a higher epoch does not listen. Asking again can only hurry it. The
    wish has room on a full disk; OSError is raised where it could not be said all the same.
    """
    grace = int(grace_seconds * 1000)
    reason = reason.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
    try:
        file = os.open(folder / "cancel", os.O_WRONLY | SAFELY)
    except FileNotFoundError:  # its keeper is of a version that takes no sealed wish
        write_whole(str(folder / "cancel"), f"{epoch} {grace} {reason}".encode())
    else:
        try:
            _write_all(file, seal(epoch, grace, reason, size=WISH_BYTES))
        finally:
            os.close(file)
    wake_keeper_pipe(folder)


def wake_keeper_pipe(folder: Path) -> bool:
    """Have a keeper look at what was written for it; false if none is listening."""
    try:
        bell = os.open(folder / "bell", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NOBODY_LISTENS:
            raise
        return False  # it will look when it begins, if it ever does
    try:
        os.write(bell, b"!")
    except BlockingIOError:
        return True  # it has been rung often enough
    except BrokenPipeError:
        return False
    finally:
        os.close(bell)
    return True


def _words_of(spec: KeeperSpec, *, certain: bool) -> list[tuple[bytes, bytes]]:
    command = spec.command
    _check(spec)
    environment = {**command.env, MARKER: spec.name}
    automatic = ProcessTreeMode.PIDNS if certain else ProcessTreeMode.GUARD
    tree = automatic if spec.tree is ProcessTreeMode.AUTO else spec.tree
    told = {"name": spec.name, "cwd": command.cwd, "tree": tree.value, "term": spec.term.value}
    bounds = {key: value for key, value in asdict(spec.bounds).items() if value is not None}
    return [
        *((key.encode(), os.fsencode(str(value))) for key, value in {**told, **bounds}.items()),
        *((b"argv", os.fsencode(word)) for word in command.argv),
        *((b"env", os.fsencode(f"{key}={value}")) for key, value in environment.items()),
    ]


def _check(spec: KeeperSpec) -> None:
    command = spec.command
    if not command.argv:
        raise Invalid("command.argv", "", "name a program")
    if not spec.name.isprintable() or not 0 < len(spec.name.encode()) <= MAX_NAME:
        raise Invalid("name", spec.name, f"use 1 to {MAX_NAME} bytes that can be printed")
    for key in command.env:
        if not key or "=" in key:
            raise Invalid("command.env", key, "use a name without = in it")
    words = (spec.name, command.cwd, *command.argv, *command.env, *command.env.values())
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "leave out the NUL character; no program can be told it")


def _begin(
    folder: Path, spec: KeeperSpec, program: KeeperBinary, orders: bytes, executor: str
) -> int:
    lock = _furnish(folder, spec, executor)
    try:
        pid = _spawn(folder, program, spec.name, orders, lock)
        with suppress(OSError):  # a full disk: then it stays a zombie until this process ends
            os.pwrite(lock, b"%d" % pid, 0)
        return pid
    finally:
        os.close(lock)


def _furnish(folder: Path, spec: KeeperSpec, executor: str) -> int:
    """Fill the folder of an attempt, and return its lock, held."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.mkfifo(folder / "bell", 0o600)
        for name, data in (
            ("in", spec.command.stdin),
            ("beat", seal(0, "starting", 0, 0, 0, 0, 0)),
            ("unswept", executor.encode()),
        ):
            _create(folder / name, data)
        if not spec.command.keep_stdin_open:
            _create(folder / "in.end", b"")
        _create(folder / "cancel", b"", reserve=WISH_BYTES)
        _create(folder / "exit.reserve", b"", reserve=RESERVE_BYTES)
    except BaseException:
        os.close(lock)
        raise
    return lock


def _create(path: Path, data: bytes, *, reserve: int = 0) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        if reserve:
            os.posix_fallocate(file, 0, reserve)
        _write_all(file, data)
    finally:
        os.close(file)


def _write_all(file: int, data: bytes, offset: int = 0) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(file, view, offset)
        view, offset = view[written:], offset + written


def _spawn(folder: Path, program: KeeperBinary, name: str, orders: bytes, lock: int) -> int:
    told = os.memfd_create("rota-orders")
    high: list[int] = []
    complaints = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        _write_all(told, orders)
        high.extend(
            fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, FREE_OF_STANDARD_FDS) for file in (told, lock)
        )
        return os.posix_spawn(
            program.python,
            program.argv(str(folder.absolute())),
            {MARKER: name},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, high[0], 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(folder / "keeper.err"), complaints, 0o600),
                (os.POSIX_SPAWN_DUP2, high[1], LOCK_FD),
            ],
            setsid=True,
            setsigmask=(),
        )
    finally:
        for file in (told, *high):
            os.close(file)


LAST_WORDS = 500
SWEPT = "{} processes were found by their marker and ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperProgress:
    """How far a keeper was when it last said so; `at` is boot time in nanoseconds, 0 if never."""

    at: int
    state: str
    in_offset: int
    out: SpoolState
    err: SpoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperAlive:
    """A keeper holds the attempt, or the kernel is just clearing its tree away.

    `pid` is 0 until the keeper has introduced itself.
    """

    pid: int = 0
    pid_started: int = 0
    tree: str = ""
    beat: KeeperProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperEnded:
    """The attempt is over, and this will not change."""

    ending: ExitRecord


def probe(folder: Path, identity: KeeperIdentity) -> KeeperAlive | KeeperEnded:
    """Return who keeps an attempt, or how it ended."""
    ending = look(folder, identity)
    return peek(folder, identity) if ending is None else KeeperEnded(ending=ending)


def look(
    folder: Path,
    identity: KeeperIdentity,
    *,
    sweep: Callable[[str], int | None] = sweep,
    reap: Callable[[Path], object] = reap,
) -> ExitRecord | None:
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


def peek(folder: Path, identity: KeeperIdentity) -> KeeperAlive:
    """Return who keeps an attempt and what it last said, whether it lives or not."""
    facts, beat = _facts(folder), read_beat(folder)
    if facts is None or facts.nonce != identity.nonce:
        return KeeperAlive(beat=beat)
    return KeeperAlive(pid=facts.pid, pid_started=facts.pid_started, tree=facts.tree, beat=beat)


def state_of(seen: KeeperAlive, *, alive: bool) -> str:
    """Return how far a keeper is, in one word."""
    if not seen.pid:
        return "starting"
    if not alive:
        return "gone"
    return seen.beat.state if seen.beat is not None else "running"


def wake_keeper(alive: KeeperAlive) -> bool:
    """Let a keeper go on that somebody has stopped."""
    return _strike(alive, signal.SIGCONT)


def stop_keeper(alive: KeeperAlive) -> bool:
    """Ask a keeper to end its tree where no wish can be written: the signal needs no disk."""
    return _strike(alive, signal.SIGTERM)


def kill_keeper(alive: KeeperAlive) -> bool:
    """Kill a keeper that gives no sign of life; its tree ends with it, and the next look judges."""
    return _strike(alive, signal.SIGKILL)


def _strike(alive: KeeperAlive, number: signal.Signals) -> bool:
    same = alive.pid_started
    return bool(same) and strike(alive.pid, number, lambda pid: start_time(pid) == same)


def read_beat(folder: Path) -> KeeperProgress | None:
    """Return the last sign of life of a keeper; none if it is being written just now."""
    words = unseal(read_file(str(folder / "beat"), SEALED_BYTES))
    if not words:
        return None
    out, err = (SpoolState(size=int(words[n]), total=int(words[n + 1])) for n in (3, 5))
    return KeeperProgress(
        at=int(words[0]), state=words[1], in_offset=int(words[2]), out=out, err=err
    )


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


def _judge(
    folder: Path, identity: KeeperIdentity, sweep: Callable[[str], int | None]
) -> ExitRecord | None:
    """Give the ending about a keeper that is dead, or None while its tree dies."""
    facts = _facts(folder)
    ending = read_ending(folder)
    if ending is None:
        if identity.boot != boot_id():
            lost, proven, detail = ExitReason.LOST_REBOOT, True, ""
        elif facts is None:
            lost, proven, detail = ExitReason.LOST_NEVER_STARTED, True, _last_words(folder)
        elif _inner_lives(facts):
            return None
        elif _is_clear(folder, facts):
            lost, proven, detail = ExitReason.LOST_KEEPER_DIED, True, ""
        elif (found := sweep(identity.name)) is None:
            return None
        else:
            lost, proven, detail = ExitReason.LOST_KEEPER_DIED, False, SWEPT.format(found)
        write_ending(folder, _told(folder, facts, identity, lost, detail, proven=proven))
        ending = read_ending(folder)
    if ending is None:
        message = f"the ending in {folder} is gone"
        raise FileNotFoundError(message)
    return _dated(folder, identity, ending)


def _dated(folder: Path, identity: KeeperIdentity, ending: ExitRecord) -> ExitRecord:
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
    identity: KeeperIdentity,
    lost: ExitReason,
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


def _never_made(identity: KeeperIdentity, sweep: Callable[[str], int | None]) -> ExitRecord | None:
    """Return the ending about an attempt without a folder, which nobody can write down."""
    reason = ExitReason.LOST_REBOOT if identity.boot != boot_id() else ExitReason.LOST_NEVER_STARTED
    found = 0 if reason is ExitReason.LOST_REBOOT else sweep(identity.name)
    if found is None:
        return None
    if found:
        reason = ExitReason.LOST_KEEPER_DIED
    detail = "it has no folder"
    return ExitRecord(reason=reason, detail=detail, nonce=identity.nonce, proven=not found)


def read_ending(folder: Path) -> ExitRecord | None:
    """Return the ending in an attempt's folder, if there is one; an error if nobody can tell."""
    data = read_if_there(f"{folder}/exit", 2 * RESERVE_BYTES, surely=True)
    if data is None:
        return None
    try:
        return _ending(*from_lines(data))
    except (KeyError, ValueError):
        return ExitRecord(reason=ExitReason.KEEPER_ERROR, detail="its record cannot be read")


def _ending(facts: dict[str, str], tails: bytes) -> ExitRecord:
    out_tail = int(facts.get("out_tail", 0))
    return ExitRecord(
        reason=ExitReason(facts["reason"]),
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


def _stream(name: str, facts: dict[str, str], tail: bytes) -> SpoolState:
    size, total, errno = (
        int(facts.get(f"{name}_{what}", 0)) for what in ("size", "total", "errno")
    )
    return SpoolState(size=size, total=total, errno=errno, tail=tail)


def _maybe_int(text: str | None) -> int | None:
    return None if text is None else int(text)


def _instant(nanoseconds: str | None) -> datetime | None:
    return from_micros(int(nanoseconds) // 1000) if nanoseconds and nanoseconds != "0" else None


NANOSECONDS = 1_000_000_000


def boot_time() -> int:
    """Return the nanoseconds since the boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class KeeperLease:
    """A record of a deadline in boot time and of the epoch of the daemon that gave it.

    It is renewed in place, which works on a full disk. Keepers ignore an epoch lower than one they
    have seen, and look at it only when the deadline they know has passed.
    """

    def __init__(self, path: Path, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self.until = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def renew(self, seconds: float, since: int | None = None) -> None:
        """Let keepers go on for some seconds, counted from an instant of boot time, or from now.

        The instant is best taken before the daemon's own renewal was sent.
        """
        start = boot_time() if since is None else since
        self.until = start + int(seconds * NANOSECONDS)
        os.pwrite(self._file, seal(self.until, self.epoch), 0)

    def close(self) -> None:
        """Let go of the record; it stays as it is."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lease(path: Path) -> tuple[int, int] | None:
    """Return the deadline in boot time and the epoch that a lease record tells."""
    words = unseal(read_file(str(path), SEALED_BYTES))
    return (int(words[0]), int(words[1])) if words else None


READ_BYTES = 64 * 1024


class KeeperFifo:
    """One FIFO for all keepers of a daemon.

    Hand `fileno` to an event loop; when it is readable, `names` tells which attempts have news.
    Rings are hints: after a start, and now and then, everything is looked at anyway.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def fileno(self) -> int:
        """Return what an event loop can wait for."""
        return self._file

    def names(self) -> set[str]:
        """Return the names of the attempts that have rung since the last look."""
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return set()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return {line.decode(errors="surrogateescape") for line in lines}

    def close(self) -> None:
        """Hear no more; keepers notice and do not mind."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
