"""The daemon's side of one keeper: start it, read and write its files, cancel, conclude its end.

All functions are short operations on files and keep no state: a restarted daemon makes the same
calls with the same folder. In the course of an attempt:

    identity = new_identity(spec.name)           # stored in the database before anything is started
    start_keeper(folder, spec, identity, …)      # at most once per folder
    read_spool, write_input, request_cancel      # any number of times, by any daemon
    probe(folder, identity)                      # KeeperAlive, or KeeperEnded with the exit record

Output is recorded once if its offset is committed together with it. Follow-up input arrives once if
its offset is recorded first: a repetition writes the same bytes at the same place.

An exit record is written once. The keeper writes it while it holds the lock of the attempt. If it
could not, a daemon that acquires the lock does, because then no keeper exists and none is starting:

lost:reboot          the machine was rebooted: no process of the tree exists lost:never_started   no
keeper got as far as starting the program lost:keeper_died     the keeper was killed; the tree died
with its namespace or its guard, or was killed by its marker, in which case `proven` is false

Process ids may be reused, so each is used together with the start time of its process.
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
from rota.keeper.build import KeeperBinary, certain_kill, default_file_limit
from rota.keeper.cleanup import kill_marked, reap_keeper
from rota.keeper.linux import send_signal, start_time
from rota.keeper.protocol import (
    CANCEL_BYTES,
    LOCK_FD,
    MARKER,
    RESERVE_BYTES,
    SEALED_BYTES,
    boot_id,
    from_lines,
    overwrite,
    pack,
    read_file,
    read_if_there,
    replace_file,
    seal,
    to_lines,
    unseal,
)
from rota.model.attempts import ExitReason, ExitRecord, SpoolState
from rota.model.instants import from_micros, to_micros
from rota.ports.executor import KeeperSpec, ProcessTreeMode

LEFTOVER_SECONDS = 1.0
HEARTBEAT_SECONDS = 15.0
SLACK_SECONDS = 60.0
MAX_NAME = 200
FREE_OF_STANDARD_FDS = 10
MAX_REASON = 400
NO_READER = frozenset({errno.ENXIO, errno.ENOENT})
SAFE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Safe for files that a program of the same user may have replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperIdentity:
    """Identity of a keeper: its attempt, the boot it was started in, and a random nonce."""

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
    """Return the identity of a keeper to start, to be stored first."""
    return KeeperIdentity(name=name, boot=boot_id(), nonce=secrets.token_hex(8))


def start_keeper(
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
    beat_seconds: float = HEARTBEAT_SECONDS,
) -> StartedKeeper:
    """Start the keeper of an attempt in a new folder.

    The lock of the attempt is held when the folder appears and is inherited by the keeper, so a
    free lock always means that no keeper exists and none is starting.
    """
    orders = [
        *_orders_for(spec, certain=certain_kill(spec.tree, program)),
        (b"nonce", identity.nonce.encode()),
        (b"boot", identity.boot.encode()),
        (b"epoch", b"%d" % epoch),
        (b"usual_files", b"%d" % default_file_limit()),
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
        pid = _launch(folder, spec, program, pack(orders), executor)
    except BaseException:  # no keeper was started, so no folder may remain
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return StartedKeeper(folder=folder, identity=identity, pid=pid)


def read_spool(folder: Path, stream: str, offset: int, limit: int) -> bytes:
    """Return bytes of a stream (`out` or `err`) from an offset; empty if it is not that long."""
    path = f"{folder}/{stream}"
    try:
        if os.lstat(path).st_size <= offset:
            return b""
        file = os.open(path, os.O_RDONLY | SAFE_FLAGS)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(file, limit, offset)
    finally:
        os.close(file)


def read_input(folder: Path) -> tuple[bytes, bool]:
    """Return all input of the program, and whether its input was closed."""
    ended = (folder / "in.end").exists()
    try:
        size = os.lstat(folder / "in").st_size
    except FileNotFoundError:
        return b"", True
    return read_spool(folder, "in", 0, size), ended


def write_input(folder: Path, offset: int, data: bytes, *, end: bool = False) -> None:
    """Write input of the program at an offset; with `end`, close it afterwards."""
    file = os.open(folder / "in", os.O_WRONLY | SAFE_FLAGS)
    try:
        _write_all(file, data, offset)
    finally:
        os.close(file)
    if end:
        (folder / "in.end").touch(mode=0o600)
    wake_keeper_pipe(folder)


def request_cancel(folder: Path, epoch: int, grace_seconds: float, reason: str) -> None:
    """Ask the keeper to stop its tree: SIGTERM, and SIGKILL after the grace period.

    A keeper ignores a request with an epoch lower than one it has seen. Asking again can only
    shorten the grace period. The request has reserved space; OSError is raised if it cannot be
    written all the same.
    """
    grace = int(grace_seconds * 1000)
    reason = reason.encode(errors="replace")[:MAX_REASON].decode(errors="ignore")
    try:
        file = os.open(folder / "cancel", os.O_WRONLY | SAFE_FLAGS)
    except FileNotFoundError:  # the keeper is of an older version, without the reserved file
        replace_file(str(folder / "cancel"), f"{epoch} {grace} {reason}".encode())
    else:
        try:
            _write_all(file, seal(epoch, grace, reason, size=CANCEL_BYTES))
        finally:
            os.close(file)
    wake_keeper_pipe(folder)


def wake_keeper_pipe(folder: Path) -> bool:
    """Make a keeper read the files written for it; false if it is not listening."""
    try:
        fifo = os.open(folder / "bell", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in NO_READER:
            raise
        return False  # it reads them when it starts, if it ever does
    try:
        os.write(fifo, b"!")
    except BlockingIOError:
        return True  # the pipe is full of wake-ups already
    except BrokenPipeError:
        return False
    finally:
        os.close(fifo)
    return True


def _orders_for(spec: KeeperSpec, *, certain: bool) -> list[tuple[bytes, bytes]]:
    command = spec.command
    _check(spec)
    environment = {**command.env, MARKER: spec.name}
    automatic = ProcessTreeMode.PIDNS if certain else ProcessTreeMode.GUARD
    tree = automatic if spec.tree is ProcessTreeMode.AUTO else spec.tree
    fields = {"name": spec.name, "cwd": command.cwd, "tree": tree.value, "term": spec.term.value}
    limits = {key: value for key, value in asdict(spec.bounds).items() if value is not None}
    return [
        *((key.encode(), os.fsencode(str(value))) for key, value in {**fields, **limits}.items()),
        *((b"argv", os.fsencode(word)) for word in command.argv),
        *((b"env", os.fsencode(f"{key}={value}")) for key, value in environment.items()),
    ]


def _check(spec: KeeperSpec) -> None:
    command = spec.command
    if not command.argv:
        raise Invalid("command.argv", "", "name a program")
    if not spec.name.isprintable() or not 0 < len(spec.name.encode()) <= MAX_NAME:
        raise Invalid("name", spec.name, f"use 1 to {MAX_NAME} printable bytes")
    for key in command.env:
        if not key or "=" in key:
            raise Invalid("command.env", key, "use a name without = in it")
    words = (spec.name, command.cwd, *command.argv, *command.env, *command.env.values())
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "remove the NUL character")


def _launch(
    folder: Path, spec: KeeperSpec, program: KeeperBinary, packed: bytes, executor: str
) -> int:
    lock = _create_files(folder, spec, executor)
    try:
        pid = _spawn(folder, program, spec.name, packed, lock)
        with suppress(OSError):  # disk full: then it stays a zombie until this process exits
            os.pwrite(lock, b"%d" % pid, 0)
        return pid
    finally:
        os.close(lock)


def _create_files(folder: Path, spec: KeeperSpec, executor: str) -> int:
    """Create the files of an attempt, and return its lock, held."""
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
        _create(folder / "cancel", b"", reserve=CANCEL_BYTES)
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


def _spawn(folder: Path, program: KeeperBinary, name: str, packed: bytes, lock: int) -> int:
    orders_file = os.memfd_create("rota-orders")
    inherited: list[int] = []
    append = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    try:
        _write_all(orders_file, packed)
        inherited.extend(
            fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, FREE_OF_STANDARD_FDS)
            for file in (orders_file, lock)
        )
        return os.posix_spawn(
            program.python,
            program.argv(str(folder.absolute())),
            {MARKER: name},
            file_actions=[
                (os.POSIX_SPAWN_DUP2, inherited[0], 0),
                (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, str(folder / "keeper.err"), append, 0o600),
                (os.POSIX_SPAWN_DUP2, inherited[1], LOCK_FD),
            ],
            setsid=True,
            setsigmask=(),
        )
    finally:
        for file in (orders_file, *inherited):
            os.close(file)


ERROR_TAIL = 500
KILLED_TEXT = "{} processes were found by their marker and killed"


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperProgress:
    """Last progress reported by a keeper; `at` is boot time in nanoseconds, 0 if never."""

    at: int
    state: str
    in_offset: int
    out: SpoolState
    err: SpoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperAlive:
    """A keeper holds the attempt, or the kernel is still killing its tree.

    `pid` is 0 until the keeper has recorded itself.
    """

    pid: int = 0
    pid_started: int = 0
    tree: str = ""
    beat: KeeperProgress | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeeperEnded:
    """The attempt has ended, finally."""

    ending: ExitRecord


def probe(folder: Path, identity: KeeperIdentity) -> KeeperAlive | KeeperEnded:
    """Return the keeper of an attempt, or its exit record."""
    ending = find_exit_record(folder, identity)
    return read_keeper(folder, identity) if ending is None else KeeperEnded(ending=ending)


def find_exit_record(
    folder: Path,
    identity: KeeperIdentity,
    *,
    kill_marked: Callable[[str], int | None] = kill_marked,
    reap_keeper: Callable[[Path], object] = reap_keeper,
) -> ExitRecord | None:
    """Return the exit record of an attempt; None while it runs.

    If nobody else can write the record, it is written here. This is called on every wake-up, so it
    does as little as possible. It only waits in `kill_marked` and `reap_keeper`; a `kill_marked`
    that returns None has not finished yet.
    """
    ending = read_exit_record(folder)
    if ending is not None:
        reap_keeper(folder)
        return _with_age(folder, identity, ending)
    try:
        lock = os.open(f"{folder}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except FileNotFoundError:
        return _lost_without_folder(identity, kill_marked)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return None
    else:
        ending = _conclude(folder, identity, kill_marked)
    finally:
        os.close(lock)
    if ending is not None:
        reap_keeper(folder)
    return ending


def read_keeper(folder: Path, identity: KeeperIdentity) -> KeeperAlive:
    """Return the keeper of an attempt with its last progress, whether it is alive or not."""
    facts, beat = _read_facts(folder), read_progress(folder)
    if facts is None or facts.nonce != identity.nonce:
        return KeeperAlive(beat=beat)
    return KeeperAlive(pid=facts.pid, pid_started=facts.pid_started, tree=facts.tree, beat=beat)


def state_of(seen: KeeperAlive, *, alive: bool) -> str:
    """Return the state of a keeper as one word."""
    if not seen.pid:
        return "starting"
    if not alive:
        return "gone"
    return seen.beat.state if seen.beat is not None else "running"


def wake_keeper(alive: KeeperAlive) -> bool:
    """Continue a keeper that was stopped with SIGSTOP."""
    return _signal_keeper(alive, signal.SIGCONT)


def stop_keeper(alive: KeeperAlive) -> bool:
    """Ask a keeper to stop its tree with a signal, which needs no disk space."""
    return _signal_keeper(alive, signal.SIGTERM)


def kill_keeper(alive: KeeperAlive) -> bool:
    """Kill an unresponsive keeper; its tree dies with it, and the next call concludes its end."""
    return _signal_keeper(alive, signal.SIGKILL)


def _signal_keeper(alive: KeeperAlive, number: signal.Signals) -> bool:
    same = alive.pid_started
    return bool(same) and send_signal(alive.pid, number, lambda pid: start_time(pid) == same)


def read_progress(folder: Path) -> KeeperProgress | None:
    """Return the last progress of a keeper; None while it is being written."""
    fields = unseal(read_file(str(folder / "beat"), SEALED_BYTES))
    if not fields:
        return None
    out, err = (SpoolState(size=int(fields[n]), total=int(fields[n + 1])) for n in (3, 5))
    return KeeperProgress(
        at=int(fields[0]), state=fields[1], in_offset=int(fields[2]), out=out, err=err
    )


class _KeeperFacts(NamedTuple):
    """The record of a keeper; all zero if it is damaged."""

    nonce: str = ""
    pid: int = 0
    pid_started: int = 0
    inner: int = 0
    inner_started: int = 0
    tree: str = ""


def _read_facts(folder: Path) -> _KeeperFacts | None:
    data = read_if_there(str(folder / "keeper"))
    if data is None:
        return None
    fields, _ = from_lines(data)
    try:
        return _KeeperFacts(
            nonce=fields["nonce"],
            pid=int(fields["pid"]),
            pid_started=int(fields["pid_started"]),
            inner=int(fields["inner"]),
            inner_started=int(fields["inner_started"]),
            tree=fields["tree"],
        )
    except (KeyError, ValueError):
        return _KeeperFacts()


def _conclude(
    folder: Path, identity: KeeperIdentity, kill_marked: Callable[[str], int | None]
) -> ExitRecord | None:
    """Write the exit record for a dead keeper; return None while its tree is dying."""
    facts = _read_facts(folder)
    ending = read_exit_record(folder)
    if ending is None:
        if identity.boot != boot_id():
            reason, proven, detail = ExitReason.LOST_REBOOT, True, ""
        elif facts is None:
            reason, proven, detail = ExitReason.LOST_NEVER_STARTED, True, _error_tail(folder)
        elif _is_init_alive(facts):
            return None
        elif _is_tree_gone(folder, facts):
            reason, proven, detail = ExitReason.LOST_KEEPER_DIED, True, ""
        elif (found := kill_marked(identity.name)) is None:
            return None
        else:
            reason, proven, detail = ExitReason.LOST_KEEPER_DIED, False, KILLED_TEXT.format(found)
        write_exit_record(
            folder, _lost_facts(folder, facts, identity, reason, detail, proven=proven)
        )
        ending = read_exit_record(folder)
    if ending is None:
        message = f"the exit record in {folder} is missing"
        raise FileNotFoundError(message)
    return _with_age(folder, identity, ending)


def _with_age(folder: Path, identity: KeeperIdentity, ending: ExitRecord) -> ExitRecord:
    """Return an exit record with its age.

    The keeper's last progress gives the age by a clock that never jumps, if it is that of its end
    or the keeper was killed. After a reboot only the wall clock can tell.
    """
    beat, same = read_progress(folder), identity.boot == boot_id()
    age = 0
    if same and beat is not None and beat.at and (beat.state == "ended" or ending.lost):
        age = boot_time() - beat.at
    elif not same and ending.lost and (folder / "beat").exists():
        age = time.time_ns() - (folder / "beat").stat().st_mtime_ns
    elif ending.ended_at is not None:
        age = time.time_ns() - to_micros(ending.ended_at) * 1_000
    return replace(ending, ago=max(0, age) / NANOSECONDS)


def _error_tail(folder: Path) -> str:
    return read_file(str(folder / "keeper.err")).decode(errors="replace").strip()[-ERROR_TAIL:]


def _is_init_alive(facts: _KeeperFacts) -> bool:
    """Whether the init process is alive; it ends by itself once it runs."""
    began = facts.inner_started
    if not began or start_time(facts.inner) != began:
        return False
    send_signal(facts.inner, signal.SIGCONT, lambda pid: start_time(pid) == began)
    return True


def _is_tree_gone(folder: Path, facts: _KeeperFacts) -> bool:
    """Whether the tree of a dead keeper is certainly gone."""
    if facts.tree == "guard":
        return not (folder / "unproven").exists()  # the guard removes it when it has killed all
    return facts.tree == "pidns"  # its first process took all others with it


def _lost_facts(
    folder: Path,
    facts: _KeeperFacts | None,
    identity: KeeperIdentity,
    reason: ExitReason,
    detail: str,
    *,
    proven: bool,
) -> dict[str, object]:
    record: dict[str, object] = {
        "name": identity.name,
        "nonce": identity.nonce,
        "reason": reason.value,
        "detail": detail,
        "proven": int(proven),
        "tree": facts.tree if facts else "",
        "ended": time.time_ns(),
    }
    beat = read_progress(folder)
    for name in ("out", "err"):
        path = folder / name
        size = path.stat().st_size if path.exists() else 0
        seen = getattr(beat, name).total if beat else 0
        record |= {f"{name}_size": size, f"{name}_total": max(size, seen)}
    return record | ({"in_offset": beat.in_offset} if beat else {})


def _lost_without_folder(
    identity: KeeperIdentity, kill_marked: Callable[[str], int | None]
) -> ExitRecord | None:
    """Return an exit record for an attempt without a folder; it cannot be stored."""
    reason = ExitReason.LOST_REBOOT if identity.boot != boot_id() else ExitReason.LOST_NEVER_STARTED
    found = 0 if reason is ExitReason.LOST_REBOOT else kill_marked(identity.name)
    if found is None:
        return None
    if found:
        reason = ExitReason.LOST_KEEPER_DIED
    detail = "it has no folder"
    return ExitRecord(reason=reason, detail=detail, nonce=identity.nonce, proven=not found)


def read_exit_record(folder: Path) -> ExitRecord | None:
    """Return the exit record in an attempt's folder, or None; raise OSError if unreadable."""
    data = read_if_there(f"{folder}/exit", 2 * RESERVE_BYTES, required=True)
    if data is None:
        return None
    try:
        return _parse_exit_record(*from_lines(data))
    except (KeyError, ValueError):
        return ExitRecord(reason=ExitReason.KEEPER_ERROR, detail="its record cannot be read")


def _parse_exit_record(facts: dict[str, str], tails: bytes) -> ExitRecord:
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


def write_exit_record(folder: Path, facts: dict[str, object]) -> None:
    """Write an exit record if there is none; the caller holds the lock of the attempt."""
    draft = folder / "exit.reserve"
    if draft.is_symlink() or not draft.is_file():
        draft.unlink(missing_ok=True)
    file = os.open(draft, os.O_WRONLY | os.O_CREAT | SAFE_FLAGS, 0o600)
    try:
        overwrite(file, to_lines(facts))
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
    """Return the nanoseconds since boot, sleep included."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class KeeperLease:
    """A file with a deadline in boot time and the epoch of the daemon that set it.

    It is rewritten in place, which works on a full disk. Keepers ignore an epoch lower than one
    they have seen, and read the file only after the deadline they know has passed.
    """

    def __init__(self, path: Path, epoch: int) -> None:
        self.path = path
        self.epoch = epoch
        self.until = 0
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def renew(self, seconds: float, since: int | None = None) -> None:
        """Extend the lease by some seconds, counted from an instant of boot time, or from now.

        The instant should be from before the daemon renewed its own lease.
        """
        start = boot_time() if since is None else since
        self.until = start + int(seconds * NANOSECONDS)
        os.pwrite(self._file, seal(self.until, self.epoch), 0)

    def close(self) -> None:
        """Close the file; its content stays."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read_lease(path: Path) -> tuple[int, int] | None:
    """Return deadline (boot time) and epoch of a lease file."""
    fields = unseal(read_file(str(path), SEALED_BYTES))
    return (int(fields[0]), int(fields[1])) if fields else None


READ_BYTES = 64 * 1024


class KeeperFifo:
    """The FIFO with which all keepers wake their daemon.

    Register `fileno` with an event loop; when it is readable, `read_names` returns the attempts
    with news. Wake-ups are hints: after a start and periodically, all attempts are checked anyway.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_fifo():
            path.unlink(missing_ok=True)
            os.mkfifo(path, 0o600)
        self._file = os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._rest = b""

    def fileno(self) -> int:
        """Return the descriptor for an event loop."""
        return self._file

    def read_names(self) -> set[str]:
        """Return the names of the attempts with news since the last call."""
        try:
            data = os.read(self._file, READ_BYTES)
        except BlockingIOError:
            return set()
        *lines, self._rest = (self._rest + data).split(b"\n")
        return {line.decode(errors="surrogateescape") for line in lines}

    def close(self) -> None:
        """Close the FIFO; keepers tolerate that."""
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
