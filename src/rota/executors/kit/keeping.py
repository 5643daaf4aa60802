"""The daemon's side of a keeper: start one, speak to it, read what its program wrote.

Everything here is short file work, and nothing here remembers anything: a daemon that was killed
and comes back does the same calls with the same folder. The way of one attempt:

    identity = introduce(spec.name)         # into the database, before anything is started
    start(folder, spec, identity, …)        # at most once for a folder
    read_spool, write_input, cancel         # as often as wanted, by whichever daemon
    probe(folder, identity)                 # rota.executors.kit.probing: alive, or the ending

A line read from a spool is recorded once if its offset is committed together with it. Follow-up
input arrives once if its offset is recorded first: the same bytes at the same place, again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from rota.errors import Invalid
from rota.executors.kit.building import Program, certain_kill
from rota.executors.kit.descriptors import usual_files
from rota.executors.kit.keeper.words import (
    LOCK_FD,
    MARKER,
    RESERVE_BYTES,
    WISH_BYTES,
    boot_id,
    pack,
    seal,
    write_whole,
)
from rota.executors.kit.lease import Lease
from rota.executors.kit.spec import Spec, Tree
from rota.executors.kit.wake import Wake

LEFTOVER_SECONDS = 1.0
BEAT_SECONDS = 15.0
SLACK_SECONDS = 60.0
LONGEST_NAME = 200
FREE_OF_STANDARD_FDS = 10
LONGEST_REASON = 400
NOBODY_LISTENS = frozenset({errno.ENXIO, errno.ENOENT})
SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Whatever a program of the same user may have put there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which keeper is meant: the attempt, the boot it was started in, and a word of its own."""

    name: str
    boot: str
    nonce: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A keeper that was started."""

    folder: Path
    identity: Identity
    pid: int


def introduce(name: str) -> Identity:
    """Return who the keeper of an attempt will be, to be written down before it is started."""
    return Identity(name=name, boot=boot_id(), nonce=secrets.token_hex(8))


def start(
    folder: Path,
    spec: Spec,
    identity: Identity,
    program: Program,
    *,
    executor: str = "",
    epoch: int = 0,
    lease: Lease | None = None,
    wake: Wake | None = None,
    slack_seconds: float = SLACK_SECONDS,
    leftover_seconds: float = LEFTOVER_SECONDS,
    beat_seconds: float = BEAT_SECONDS,
) -> Kept:
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
    return Kept(folder=folder, identity=identity, pid=pid)


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
    ring(folder)


def cancel(folder: Path, epoch: int, grace_seconds: float, reason: str) -> None:
    """Ask the keeper to end its tree: politely, and after a grace for certain.

    A keeper that has heard of a higher epoch does not listen. Asking again can only hurry it. The
    wish has room on a full disk; OSError is raised where it could not be said all the same.
    """
    grace = int(grace_seconds * 1000)
    reason = reason.encode(errors="replace")[:LONGEST_REASON].decode(errors="ignore")
    try:
        file = os.open(folder / "cancel", os.O_WRONLY | SAFELY)
    except FileNotFoundError:  # its keeper is of a version that takes no sealed wish
        write_whole(str(folder / "cancel"), f"{epoch} {grace} {reason}".encode())
    else:
        try:
            _write_all(file, seal(epoch, grace, reason, size=WISH_BYTES))
        finally:
            os.close(file)
    ring(folder)


def ring(folder: Path) -> bool:
    """Have a keeper look at what was written for it; false if none is listening."""
    try:
        bell = os.open(folder / "bell", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as fault:
        if fault.errno not in NOBODY_LISTENS:
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


def _words_of(spec: Spec, *, certain: bool) -> list[tuple[bytes, bytes]]:
    command = spec.command
    _check(spec)
    environment = {**command.env, MARKER: spec.name}
    automatic = Tree.PIDNS if certain else Tree.GUARD
    tree = automatic if spec.tree is Tree.AUTO else spec.tree
    told = {"name": spec.name, "cwd": command.cwd, "tree": tree.value, "term": spec.term.value}
    bounds = {key: value for key, value in asdict(spec.bounds).items() if value is not None}
    return [
        *((key.encode(), os.fsencode(str(value))) for key, value in {**told, **bounds}.items()),
        *((b"argv", os.fsencode(word)) for word in command.argv),
        *((b"env", os.fsencode(f"{key}={value}")) for key, value in environment.items()),
    ]


def _check(spec: Spec) -> None:
    command = spec.command
    if not command.argv:
        raise Invalid("command.argv", "", "name a program")
    if not spec.name.isprintable() or not 0 < len(spec.name.encode()) <= LONGEST_NAME:
        raise Invalid("name", spec.name, f"use 1 to {LONGEST_NAME} bytes that can be printed")
    for key in command.env:
        if not key or "=" in key:
            raise Invalid("command.env", key, "use a name without = in it")
    words = (spec.name, command.cwd, *command.argv, *command.env, *command.env.values())
    for word in words:
        if "\0" in word:
            raise Invalid("command", word, "leave out the NUL character; no program can be told it")


def _begin(folder: Path, spec: Spec, program: Program, orders: bytes, executor: str) -> int:
    lock = _furnish(folder, spec, executor)
    try:
        pid = _spawn(folder, program, spec.name, orders, lock)
        with suppress(OSError):  # a full disk: then it stays a zombie until this process ends
            os.pwrite(lock, b"%d" % pid, 0)
        return pid
    finally:
        os.close(lock)


def _furnish(folder: Path, spec: Spec, executor: str) -> int:
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


def _spawn(folder: Path, program: Program, name: str, orders: bytes, lock: int) -> int:
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
