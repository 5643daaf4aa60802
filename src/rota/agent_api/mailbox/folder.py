"""One mailbox folder, accessed through descriptors, and strict parsing of its commands.

The program that owns `out` is treated as hostile. Files there are listed, read once and unlinked.
Nothing is created, renamed or changed, no link is followed, and no call blocks. `in` belongs to
Rota, and isolated programs can only read it.
"""

from __future__ import annotations

import errno
import json
import math
import os
import re
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, NamedTuple, NoReturn

from rota.commands.json_size import MOST_VALUES, has_too_many_values
from rota.ports.mailbox import IN, MESSAGES, OUT, REPLIES

LARGEST = 1024 * 1024
"""Maximum bytes of a command."""
MOST_REPLIES = 1_000
"""Number of replies that are kept."""
NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}\.json", re.ASCII)
SUFFIX = ".json"
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
PRIVATE = 0o600
RENAME = "write it as NAME.tmp and rename it to NAME.json when it is complete"


class PendingFiles(NamedTuple):
    """The sorted names in `out`, and whether there are more than requested."""

    names: list[str]
    more: bool


class MailboxFile:
    """The content of a file and the open file itself.

    While it is open, no other file can have its inode, so a replaced file is recognized.
    """

    def __init__(self, data: bytes, file: int) -> None:
        self.data = data
        self._file = file

    def is_at(self, there: os.stat_result) -> bool:
        """Return whether a path still refers to this file."""
        return os.path.samestat(there, os.fstat(self._file))

    def close(self) -> None:
        """Close the file."""
        file, self._file = self._file, -1
        if file >= 0:
            os.close(file)

    __del__ = close


class Mailbox:
    """An open mailbox; every call is short and thread-safe."""

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
        """The descriptor of `out`, for a watch."""
        return self._out

    def changed(self) -> int:
        """Return when an entry was last added to or removed from `out`."""
        return os.fstat(self._out).st_ctime_ns

    def close(self) -> None:
        """Close the folders when no call uses them."""
        with self._lock:
            for held in {self._out, self._in} - {-1}:
                os.close(held)
            self._out = self._in = -1

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Keep the descriptors open within the block, so that their numbers are not reused."""
        with self._lock:
            if self._out < 0:
                raise OSError(errno.EBADF, "the mailbox is closed")
            yield

    # written by the program

    def waiting(self, most: int) -> PendingFiles:
        """Return up to `most` names in `out` without examining the entries."""
        with self._open():
            held = os.open(".", FOLDER, dir_fd=self._out)
            try:
                with os.scandir(held) as entries:
                    names = [entry.name for entry in islice(entries, most + 1)]
            finally:
                os.close(held)
        return PendingFiles(sorted(names[:most]), len(names) > most)

    def read(self, name: str) -> MailboxFile | None:
        """Read a command once; None if it is gone, raises CommandRejected if it is invalid."""
        if NAME.fullmatch(name) is None:
            raise CommandRejected(
                "bad_name", "use a name of at most 64 of a-z, 0-9, - and _, with .json"
            )
        with self._open():
            try:
                _check_plain_file(
                    os.stat(name, dir_fd=self._out, follow_symlinks=False), self._user
                )
                held = os.open(name, PLAIN, dir_fd=self._out)
            except FileNotFoundError:
                return None
            except OSError as fault:
                if fault.errno == errno.ELOOP:
                    raise CommandRejected("symlink", RENAME) from None
                why = os.strerror(fault.errno or 0).lower()
                raise CommandRejected("unreadable", f"{why}: {RENAME}") from None
            try:
                _check_plain_file(os.fstat(held), self._user)
                return MailboxFile(_bounded(held), held)
            except BaseException:
                os.close(held)
                raise

    def drop(self, name: str, found: MailboxFile | None = None) -> bool:
        """Delete a file in `out`; False if it is a folder or belongs to another user.

        With `found`, a file that has replaced it since is kept.
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

    # read by the program

    def reply(self, name: str, answer: Mapping[str, Any]) -> None:
        """Write a reply and delete the oldest ones if there are too many."""
        self._write(REPLIES, name + SUFFIX, answer)
        self._replies[name + SUFFIX] = None
        while len(self._replies) > MOST_REPLIES:
            oldest = next(iter(self._replies))
            del self._replies[oldest]
            self._remove(REPLIES, oldest)

    def show(self, name: str, content: Mapping[str, Any]) -> None:
        """Write a file directly in `in`."""
        self._write(None, name, content)

    def shown(self, name: str) -> dict[str, Any]:
        """Return the content of a JSON file in `in`, or an empty dict."""
        with self._open():
            try:
                held = os.open(name, PLAIN, dir_fd=self._in)
            except OSError:
                return {}
            try:
                found = json.loads(_bounded(held))
            except (ValueError, RecursionError, CommandRejected):
                return {}
            finally:
                os.close(held)
        return found if isinstance(found, dict) else {}

    def give(self, number: int, message: Mapping[str, Any]) -> None:
        """Write a message into the mailbox."""
        self._write(MESSAGES, f"{number:04}{SUFFIX}", message)

    def unread(self) -> list[int]:
        """Return the numbers of messages that are not acknowledged."""
        stems = (name.removesuffix(SUFFIX) for name in self._names(MESSAGES))
        return sorted(int(stem) for stem in stems if stem.isascii() and stem.isdecimal())

    def take_back(self, number: int) -> None:
        """Delete a message from the mailbox."""
        self._remove(MESSAGES, f"{number:04}{SUFFIX}")

    @contextmanager
    def within(self, folder: str | None) -> Iterator[int]:
        """Yield the descriptor of a folder in `in`, or of `in` itself."""
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
        """Write a file under another name and rename it, so that it is never incomplete."""
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


def _check_plain_file(facts: os.stat_result, user: int) -> None:
    """Refuse a file that is not a plain file of the program with one name."""
    if stat.S_ISLNK(facts.st_mode):
        raise CommandRejected("symlink", f"links are not followed: {RENAME}")
    if not stat.S_ISREG(facts.st_mode):
        raise CommandRejected("not_a_file", RENAME)
    if facts.st_nlink != 1:
        raise CommandRejected("hard_link", f"it has a second hard link: {RENAME}")
    if facts.st_uid != user:
        raise CommandRejected("not_yours", "it belongs to another user")
    if facts.st_size > LARGEST:
        raise _too_large()


def _bounded(held: int) -> bytes:
    """Read a file up to one byte more than the limit."""
    found = b""
    while len(found) <= LARGEST:
        part = os.read(held, LARGEST + 1 - len(found))
        if not part:
            return found
        found += part
    raise _too_large()


def _too_large() -> CommandRejected:
    return CommandRejected(
        "too_large", "a command has at most 1 MiB: put larger data into the artifacts folder"
    )


MAX_DEPTH = 16
LARGEST_INTEGER = 2**63 - 1
LONGEST_INTEGER = len(str(-LARGEST_INTEGER))
REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
VERB = re.compile(r"[a-z][a-z0-9_]{0,63}", re.ASCII)


class CommandRejected(Exception):
    """A file is not a valid command; `code` is stable, the message names a correction."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class MailboxCommand(NamedTuple):
    """A parsed command."""

    request_id: str
    verb: str
    fields: Mapping[str, Any]


def read_command(data: bytes) -> MailboxCommand:
    """Parse a command or raise CommandRejected."""
    found = read_object(data)
    request_id, verb = found.pop("request_id", None), found.pop("type", None)
    if not isinstance(request_id, str) or REQUEST_ID.fullmatch(request_id) is None:
        message = "request_id: give 1 to 64 of A-Z, a-z, 0-9, - and _, unique in this run"
        raise CommandRejected("bad_request_id", message)
    if not isinstance(verb, str) or VERB.fullmatch(verb) is None:
        raise CommandRejected("bad_type", "type: name an operation, such as list_tasks")
    return MailboxCommand(request_id, verb, found)


def read_object(data: bytes) -> dict[str, Any]:
    """Parse a JSON object or raise CommandRejected."""
    if has_too_many_values(data):
        raise _too_many()
    try:
        found = json.loads(
            data.decode(),
            object_pairs_hook=_said_once,
            parse_int=_whole,
            parse_constant=_no_number,
        )
    except RecursionError:
        raise CommandRejected("too_deep", f"nest at most {MAX_DEPTH} levels") from None
    except ValueError as fault:  # includes UnicodeDecodeError
        raise CommandRejected(
            "not_json", f"write one JSON object in UTF-8: {_short(fault)}"
        ) from None
    if not isinstance(found, dict):
        raise CommandRejected("not_json", "write one JSON object, in braces")
    _check(found)
    return found


def _whole(digits: str) -> int:
    """Parse an integer; too many digits are refused without computing it."""
    if len(digits) > LONGEST_INTEGER or abs(number := int(digits)) > LARGEST_INTEGER:
        raise CommandRejected("bad_number", "use integers of at most 63 bits")
    return number


def _said_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise CommandRejected("duplicate_key", "use every key of an object once")
    return made


def _check(found: dict[str, Any]) -> None:
    """Refuse values that are too deep, too many, or not storable."""
    left = MOST_VALUES
    level: list[Any] = [found]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for value in level:
            left -= len(value)
            if left < 0:
                raise _too_many()
            if isinstance(value, dict):
                for name in value:
                    _check_text(name)
                value = value.values()  # noqa: PLW2901
            for inner in value:
                if isinstance(inner, dict | list):
                    below.append(inner)
                else:
                    _check_value(inner)
        if not below:
            return
        level = below
    raise CommandRejected("too_deep", f"nest at most {MAX_DEPTH} levels")


def _check_value(value: object) -> None:
    if isinstance(value, str):
        _check_text(value)
    elif isinstance(value, float) and not math.isfinite(value):
        raise _no_number("")


def _check_text(text: str) -> None:
    if text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        raise CommandRejected("bad_text", "a text contains a lone surrogate") from None


def _no_number(_: str) -> NoReturn:
    raise CommandRejected("bad_number", "NaN and infinity are not allowed")


def _too_many() -> CommandRejected:
    return CommandRejected("too_many_values", f"give at most {MOST_VALUES} values")


def _short(fault: ValueError) -> str:
    return str(fault)[:100]
