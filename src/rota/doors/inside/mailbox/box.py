"""One mailbox, held by descriptors: what was opened once is never looked up by its path again.

`out` belongs to a program that is taken to be hostile. From there files are listed, read once and
unlinked, and nothing else happens: nothing is created, renamed or changed, no link is followed, and
nothing is waited for. `in` is ours; behind walls the program can only read it.
"""

from __future__ import annotations

import errno
import json
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple

from rota.doors.inside.mailbox.strict import Rejected
from rota.ports.mailboxes import IN, MESSAGES, OUT, REPLIES

LARGEST = 1024 * 1024
"""How many bytes a command may have."""
MOST_REPLIES = 1_000
"""How many of its newest replies a program finds."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.json", re.ASCII)
SUFFIX = ".json"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE = 0o600
RENAME = "write it as NAME.tmp and rename it to NAME.json when it is whole"


class Waiting(NamedTuple):
    """What lies in `out`: names in order, and whether there are more than were asked for."""

    names: list[str]
    more: bool


class Found:
    """What a file held when it was read, and the file itself.

    As long as that is open no other file has its number: one that was changed since is told from
    one that was put in its place.
    """

    def __init__(self, data: bytes, file: int) -> None:
        self.data = data
        self._file = file

    def is_at(self, there: os.stat_result) -> bool:
        """Whether this is the file that was found."""
        return os.path.samestat(there, os.fstat(self._file))

    def close(self) -> None:
        """Let go of the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    __del__ = close


class Box:
    """A mailbox that is open; every call is short and may be made from any thread."""

    def __init__(self, folder: str) -> None:
        self._lock = threading.Lock()
        held = os.open(folder, FOLDER)
        try:
            self._out = os.open(OUT, FOLDER, dir_fd=held)
            try:
                self._in = os.open(IN, FOLDER, dir_fd=held)
            except OSError:
                os.close(self._out)
                raise
        finally:
            os.close(held)
        self._user = os.geteuid()
        self._replies: dict[str, None] = dict.fromkeys(self._names(REPLIES))

    @property
    def out(self) -> int:
        """The descriptor of `out`, to be watched."""
        return self._out

    def changed(self) -> int:
        """Return when something last came into `out` or left it, as the kernel says."""
        return os.fstat(self._out).st_ctime_ns

    def close(self) -> None:
        """Let go of the folders, once nobody is amid a call."""
        with self._lock:
            for held in {self._out, self._in} - {-1}:
                os.close(held)
            self._out = self._in = -1

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keep the descriptors from being closed, and then from meaning something else."""
        with self._lock:
            if self._out < 0:
                raise OSError(errno.EBADF, "the mailbox is closed")
            yield

    # what the program wrote

    def waiting(self, most: int) -> Waiting:
        """Return the names in `out`, at most so many; no entry is looked at."""
        with self._open():
            held = os.open(".", FOLDER, dir_fd=self._out)
            try:
                with os.scandir(held) as entries:
                    names = [entry.name for entry in islice(entries, most + 1)]
            finally:
                os.close(held)
        return Waiting(sorted(names[:most]), len(names) > most)

    def read(self, name: str) -> Found | None:
        """Return the bytes of a command, read once; None if it is gone, Rejected if it is none."""
        if NAME.fullmatch(name) is None:
            raise Rejected("bad_name", "name it with a-z, 0-9, - and _, at most 64, and .json")
        with self._open():
            try:
                _check_plain(os.stat(name, dir_fd=self._out, follow_symlinks=False), self._user)
                held = os.open(name, PLAIN, dir_fd=self._out)
            except FileNotFoundError:
                return None
            except OSError as fault:
                if fault.errno == errno.ELOOP:
                    raise Rejected("symlink", RENAME) from None
                why = os.strerror(fault.errno or 0).lower()
                raise Rejected("unreadable", f"{why}: {RENAME}") from None
            try:
                _check_plain(os.fstat(held), self._user)
                return Found(_bounded(held), held)
            except BaseException:
                os.close(held)
                raise

    def drop(self, name: str, found: Found | None = None) -> bool:
        """Take a file out of `out`; false if it cannot be: it is a folder, or not ours to take.

        With what was found in it, another one that was put in its place since stays.
        """
        with self._open():
            try:
                there = os.stat(name, dir_fd=self._out, follow_symlinks=False)
                if found is not None and not found.is_at(there):
                    return True
                os.unlink(name, dir_fd=self._out)
            except FileNotFoundError:
                return True
            except OSError:
                with suppress(OSError):
                    os.rmdir(name, dir_fd=self._out)
                    return True
                return False
        return True

    # what the program reads

    def reply(self, name: str, answer: Mapping[str, Any]) -> None:
        """Answer a request; the oldest answers go when there are many."""
        self._write(REPLIES, name + SUFFIX, answer)
        self._replies[name + SUFFIX] = None
        while len(self._replies) > MOST_REPLIES:
            oldest = next(iter(self._replies))
            del self._replies[oldest]
            self._remove(REPLIES, oldest)

    def show(self, name: str, content: Mapping[str, Any]) -> None:
        """Put a file into `in` itself."""
        self._write(None, name, content)

    def shown(self, name: str) -> dict[str, Any]:
        """Return what a file in `in` says, nothing if it says nothing."""
        with self._open():
            try:
                held = os.open(name, PLAIN, dir_fd=self._in)
            except OSError:
                return {}
            try:
                found = json.loads(_bounded(held))
            except (ValueError, RecursionError, Rejected):
                return {}
            finally:
                os.close(held)
        return found if isinstance(found, dict) else {}

    def give(self, number: int, message: Mapping[str, Any]) -> None:
        """Put a message into the mailbox."""
        self._write(MESSAGES, f"{number:04}{SUFFIX}", message)

    def unread(self) -> list[int]:
        """Return the numbers of the messages that were given and not taken away yet."""
        stems = (name.removesuffix(SUFFIX) for name in self._names(MESSAGES))
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())

    def take_back(self, number: int) -> None:
        """Take a message out of the mailbox."""
        self._remove(MESSAGES, f"{number:04}{SUFFIX}")

    @contextmanager
    def within(self, folder: str | None) -> Iterator[int]:
        """Give the descriptor of a folder in `in`, or of `in` itself."""
        with self._open():
            held = os.open(folder or ".", FOLDER, dir_fd=self._in)
            try:
                yield held
            finally:
                os.close(held)

    def _names(self, folder: str) -> list[str]:
        with self.within(folder) as held, os.scandir(held) as entries:
            found = islice((each.name for each in entries), 10 * MOST_REPLIES)
            return sorted(name for name in found if not name.startswith("."))

    def _write(self, folder: str | None, name: str, content: Mapping[str, Any]) -> None:
        """Write a file aside and rename it, so that nobody ever reads half of it."""
        aside = f".{secrets.token_hex(8)}"
        data = json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
        with self.within(folder) as held:
            file = os.open(aside, NEW, PRIVATE, dir_fd=held)
            try:
                with os.fdopen(file, "wb") as writing:
                    writing.write(data)
                os.rename(aside, name, src_dir_fd=held, dst_dir_fd=held)
            except OSError:
                with suppress(OSError):
                    os.unlink(aside, dir_fd=held)
                raise

    def _remove(self, folder: str, name: str) -> None:
        with self.within(folder) as held, suppress(FileNotFoundError):
            os.unlink(name, dir_fd=held)


def _check_plain(facts: os.stat_result, user: int) -> None:
    """Refuse what is no plain file of the program's own."""
    if stat.S_ISLNK(facts.st_mode):
        raise Rejected("symlink", f"a link is not followed: {RENAME}")
    if not stat.S_ISREG(facts.st_mode):
        raise Rejected("not_a_file", RENAME)
    if facts.st_nlink != 1:
        raise Rejected("hard_link", f"it has another name: {RENAME}")
    if facts.st_uid != user:
        raise Rejected("not_yours", "it is another user's")
    if facts.st_size > LARGEST:
        raise _too_large()


def _bounded(held: int) -> bytes:
    """Return what a file holds, with one byte more than it may hold at most."""
    found = b""
    while len(found) <= LARGEST:
        part = os.read(held, LARGEST + 1 - len(found))
        if not part:
            return found
        found += part
    raise _too_large()


def _too_large() -> Rejected:
    return Rejected("too_large", "a command has at most 1 MiB: leave more among the artifacts")
