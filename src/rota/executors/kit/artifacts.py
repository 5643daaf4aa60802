"""Artifacts: files that untrusted programs wrote, found and read without following anything.

Every step is taken from the folder already held, and what is no plain file with one name alone is
passed over: a link would lead to what the program itself cannot read, a pipe would never end.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

from rota.errors import NotFound, Refused, shown
from rota.model.artifacts import Artifact, Artifacts, Shelf
from rota.ports.artifacts import Opened

FOLDER = "artifacts"
LARGEST = 1024 * 1024 * 1024
"""How many bytes an artifact may have to be handed out."""
MOST_LISTED = 1_000
MOST_SEEN = 10_000
DEEPEST = 16
LONGEST_STEP = 255
BATCH = 1_000
PRIVATE = 0o700
LATEST = datetime(2999, 12, 31, tzinfo=UTC).timestamp()
STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def shelf_of(space: Path, run_id: int) -> Path:
    """Return the folder for the artifacts of a run."""
    return space / FOLDER / str(run_id)


def result_name(attempt: int) -> str:
    """Return the name of the file in which an attempt may leave its result."""
    return f"result-{attempt}"


class HomeArtifacts:
    """The artifacts below the spaces of one home."""

    def __init__(self, home: Path) -> None:
        self._spaces = home / "spaces"

    def of(self, space: str, run_id: int) -> Artifacts:
        """Return what a run has left, bounded in number."""
        found: list[Artifact] = []
        left_out, seen = 0, 0
        waiting: list[tuple[str, ...]] = []
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(space, FOLDER) as top:
            waiting.append(())
            while waiting and seen < MOST_SEEN and len(found) <= MOST_LISTED:
                above = waiting.pop()
                for name, facts in _entries(top, (str(run_id), *above)):
                    seen += 1
                    if seen > MOST_SEEN or len(found) > MOST_LISTED:
                        waiting.append(above)
                        break
                    steps = (*above, name)
                    if facts is None or not _nameable(steps):
                        left_out += 1
                    elif stat.S_ISDIR(facts.st_mode):
                        waiting.append(steps)
                    elif _is_plain(facts):
                        found.append(_artifact("/".join(steps), facts))
                    else:
                        left_out += 1
        more = bool(waiting) or len(found) > MOST_LISTED
        return Artifacts(files=tuple(sorted(found)[:MOST_LISTED]), left_out=left_out, more=more)

    def open(self, space: str, run_id: int, name: str) -> Opened:
        """Open an artifact; NotFound if it is no plain file, Refused if it is too large."""
        held = self._opened(space, run_id, name)
        if held is None:
            raise NotFound("artifact", name, f"see `rota artifacts {run_id}`")
        facts = os.fstat(held)
        if facts.st_size > LARGEST:
            os.close(held)
            raise Refused(f"{shown(name)} has more than 1 GiB: fetch it on the machine itself")
        return Opened(_artifact(name, facts), os.fdopen(held, "rb"))

    def read(self, space: str, run_id: int, name: str, most: int) -> bytes | None:
        """Return the beginning of a small artifact, None if there is no such plain file."""
        held = self._opened(space, run_id, name)
        if held is None:
            return None
        with os.fdopen(held, "rb") as file:
            return file.read(most)

    def _opened(self, space: str, run_id: int, name: str) -> int | None:
        steps = tuple(name.split("/"))
        if not _nameable(steps):
            return None
        try:
            with self._shelf(space, run_id) as shelf, _below(shelf, steps[:-1]) as folder:
                return _open_plain(folder, steps[-1])
        except OSError:
            return None

    def shelves(self) -> list[Shelf]:
        """Return the folders of all runs."""
        found = []
        for space in _names(self._spaces):
            for name in _names(self._spaces / space / FOLDER):
                if name.isascii() and name.isdigit():
                    with suppress(OSError), self._folder(space, FOLDER) as top:
                        facts = os.stat(name, dir_fd=top, follow_symlinks=False)
                        if stat.S_ISDIR(facts.st_mode):
                            empty = next(_entries(top, (name,)), None) is None
                            found.append(Shelf(space, int(name), _instant(facts.st_mtime), empty))
        return found

    def drop(self, shelf: Shelf) -> None:
        """Delete a run's folder with everything in it."""
        with suppress(OSError), self._folder(shelf.space, FOLDER) as held:
            remove(held, str(shelf.run_id))

    def prepare(self, shelf: Path, attempt: int, *, anew: bool) -> None:
        """Make a run's folder ready for an attempt: empty if it begins anew, else as it was left.

        A run of a database that was restored may have the number of one that is lost. What stands
        where this attempt's result will be was not written by it.
        """
        space, _, name = shelf.relative_to(self._spaces).parts
        shelf.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with self._folder(space, FOLDER) as above:
            with suppress(FileNotFoundError):
                if anew or not _is_folder(above, name):
                    remove(above, name)
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE, dir_fd=above)
            _unlock(above, name)
            with _below(above, (name,)) as held, suppress(FileNotFoundError):
                remove(held, result_name(attempt))

    def _shelf(self, space: str, run_id: int) -> AbstractContextManager[int]:
        return self._folder(space, FOLDER, str(run_id))

    @contextmanager
    def _folder(self, *steps: str) -> Iterator[int]:
        above = os.open(self._spaces, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with _below(above, steps) as held:
                yield held
        finally:
            os.close(above)


def remove(above: int, name: str) -> None:
    """Delete a name and everything below it, however deep that is; what cannot be is left.

    Inner folders are moved up before they are emptied: no depth costs memory or descriptors.
    """
    if not _is_folder(above, name):
        os.unlink(name, dir_fd=above)
        return
    _unlock(above, name)
    with _below(above, (name,)) as top:
        while _remove_some(top, top):
            pass
    os.rmdir(name, dir_fd=above)


def _remove_some(folder: int, top: int) -> bool:
    """Delete some of what is in a folder, at the top or right below; true if something went."""
    went = False
    with os.scandir(folder) as rest:
        batch = list(islice(rest, BATCH))
    for entry in batch:
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                _remove_folder(entry.name, folder, top)
            else:
                os.unlink(entry.name, dir_fd=folder)
            went = True
    return went


def _remove_folder(name: str, folder: int, top: int) -> None:
    """Delete a folder at the top, or move it there."""
    _unlock(folder, name)
    if folder != top:
        moved = secrets.token_hex(16)
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)
        return
    with _below(top, (name,)) as inner:
        while _remove_some(inner, top):
            pass
    os.rmdir(name, dir_fd=top)


def _unlock(above: int, name: str) -> None:
    """Take back the right to a folder that a program has taken from its own user."""
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(held).st_mode & PRIVATE != PRIVATE:
            os.chmod(f"/proc/self/fd/{held}", PRIVATE)  # noqa: PTH101 - no other way leads there
    finally:
        os.close(held)


def _entries(top: int, steps: Sequence[str]) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield what is in a folder, without facts if it may not be looked at; what is gone is gone."""
    try:
        with _below(top, steps) as folder, os.scandir(folder) as rest:
            for entry in rest:
                with suppress(FileNotFoundError):
                    yield entry.name, _facts(entry)
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError:
        yield "", None


def _facts(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except PermissionError:
        return None


@contextmanager
def _below(above: int, steps: Sequence[str]) -> Iterator[int]:
    """Hold the folder that is some steps below another one."""
    held = os.dup(above)
    try:
        for step in steps:
            outer = held
            held = os.open(step, STEP, dir_fd=outer)
            os.close(outer)
        yield held
    finally:
        os.close(held)


def _open_plain(folder: int, name: str) -> int | None:
    """Return a descriptor of a plain file; anything else is not even opened."""
    if not _is_plain(os.stat(name, dir_fd=folder, follow_symlinks=False)):
        return None
    held = os.open(name, PLAIN, dir_fd=folder)
    if _is_plain(os.fstat(held)):
        return held
    os.close(held)
    return None


def _is_folder(above: int, name: str) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)


def _is_plain(facts: os.stat_result) -> bool:
    return stat.S_ISREG(facts.st_mode) and facts.st_nlink == 1


def _nameable(steps: Sequence[str]) -> bool:
    """Whether a name can be told, typed and opened."""
    return len(steps) <= DEEPEST and all(
        step not in {"", ".", ".."}
        and step.isprintable()
        and "/" not in step
        and len(step.encode()) <= LONGEST_STEP
        for step in steps
    )


def _artifact(name: str, facts: os.stat_result) -> Artifact:
    return Artifact(name, facts.st_size, _instant(facts.st_mtime))


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), UTC)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - only the names
    except OSError:
        return []
