"""Folders of an attempt: mailbox, task files, working folder, artifacts, locks on folders.

Programs are not trusted: every step of a path is opened relative to the previous one, and
everything but regular files with one hard link is skipped, because links could lead to files that
the program itself cannot read, and reading a pipe might never end.

A folder lock is a file in the attempt's state folder, written before its program starts, so that a
later daemon finds it. It lists the guarded names that were missing: only guards created for these
are ever removed, and not before the last attempt in the same folder has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from rota.errors import Invalid, NotFound, NotPermitted, Refused, shown
from rota.keeper.paths import missing_names, open_below, remove_guards
from rota.model.attempts import KeptAttempt
from rota.model.ids import Epoch, RunId
from rota.model.json import encode
from rota.model.programs import LimitEnforcement, Program, ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.ports.agent import AgentWorkspace
from rota.ports.executor import EgressSocket
from rota.ports.executor import ExecutionSpec as Cell
from rota.ports.host import Artifact, ArtifactFolder, ArtifactList, OpenArtifact
from rota.ports.mailbox import FILES, IN, MESSAGES, OUT, REPLIES
from rota.rules.task_spec import ADVICE, check_folder, check_program

ISOLATED_PROCESSES = 1024


def limits_for_isolated(
    limits: ResourceLimits, enforcement: Mapping[str, LimitEnforcement]
) -> ResourceLimits:
    """Return limits for isolated programs: by default 1024 processes and half of the memory.

    The memory limit is only set if it applies to all processes together: per process it would break
    programs that reserve more than they use.
    """
    if limits.processes is None:
        limits = replace(limits, processes=ISOLATED_PROCESSES)
    if limits.memory_bytes is None and enforcement["memory_mib"] is LimitEnforcement.TOGETHER:
        limits = replace(limits, memory_bytes=total_memory() // 2)
    return limits


def total_memory() -> int:
    """Return the memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


PRIVATE = 0o700


def make_folder(folder: Path) -> None:
    """Create a private folder and its parents, if missing."""
    try:
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        advice = "something else has the name of this folder: remove it"
        raise Invalid("folder", str(folder), advice) from None


def make_mailbox(attempt: Path, name: str) -> str:
    """Create the mailbox of a launch if needed, and return its path."""
    box = attempt.absolute() / name
    inner = (box / IN / name for name in (REPLIES, MESSAGES, FILES))
    for folder in (attempt, box, box / OUT, box / IN, *inner):
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    return str(box)


def readable_folders(box: str | None) -> list[str]:
    """Return the folders of a mailbox that its program reads."""
    return [] if box is None else [f"{box}/{IN}"]


def writable_folder(box: str | None) -> str | None:
    """Return the folder of a mailbox that its program writes."""
    return None if box is None else f"{box}/{OUT}"


def delete_tree(folder: Path) -> None:
    """Delete a folder filled by a program, however deep; what cannot be deleted stays."""
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            remove_tree(above, folder.name)
    finally:
        os.close(above)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file without opening the existing one, which a program may have put there."""
    path.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags, 0o600), "wb") as file:
        file.write(content)


def execution_spec(
    name: str,
    state: str,
    room: AgentWorkspace,
    site: Site,
    role: SpaceRole,
    bounds: ResourceLimits,
    *,
    egress: EgressSocket | None,
    desk: EgressSocket | None,
) -> Cell:
    """Return the ExecutionSpec of an attempt."""
    return Cell(
        name=name,
        state=state,
        folder=room.cwd,
        home=room.home,
        artifacts=room.artifacts,
        outbox=writable_folder(room.mailbox),
        readable=[room.folder, *filter(None, [room.resources]), *readable_folders(room.mailbox)],
        shared=site.mounts,
        network=site.network,
        egress=egress,
        desk=desk if room.desk else None,
        bounds=bounds,
        isolated=site.isolated,
        role=role,
        image=site.image,
    )


CONFIGS = ("task_config.json", "config.json")
MAX_CONFIG = 64 * 1024


def resources_folder(space: Path, task: str) -> Path:
    """Return the folder with a task's files; the task's name is escaped."""
    return space / "resources" / quote(task, safe="")


def read_config(folder: Path) -> str | None:
    """Return the first config file as JSON; raise Invalid unless it is a small JSON object."""
    for name in CONFIGS:
        try:
            descriptor = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Invalid(name, str(folder), f"it cannot be read: {error.strerror}") from error
        with os.fdopen(descriptor, "rb") as file:
            plain = stat.S_ISREG(os.fstat(descriptor).st_mode)
            text = file.read(MAX_CONFIG + 1) if plain else b""
        try:
            found = json.loads(text)
            text_ = encode(found)
        except (ValueError, RecursionError):
            found, text_ = None, ""
        if not isinstance(found, dict) or max(len(text), len(text_)) > MAX_CONFIG:
            raise Invalid(name, str(folder), "write one JSON object of at most 64 KiB")
        return text_
    return None


def working_folder(work: str, folder: object) -> str:
    """Return a folder below the space's; it must exist, and no link may lead to it."""
    if folder is None:
        return work
    check_folder(str(folder))
    path = f"{work}/{folder}"
    try:
        held = open_below(work, path)
    except NotPermitted as error:
        raise Invalid("folder", folder, f"create it in the space's folder: {error}") from error
    is_folder = stat.S_ISDIR(os.fstat(held).st_mode)
    os.close(held)
    if not is_folder:
        raise Invalid("folder", folder, "it is a file: name a folder")
    return path


def _is_in_space(own: Path, room: AgentWorkspace) -> bool:
    """Whether a file is in the space's folder after resolving links.

    The interpreter of a virtual environment is always a link, so there its folder is checked.
    """
    root = os.path.realpath(room.work or room.cwd)
    environment = own.parent.name == "bin" and (own.parent.parent / "pyvenv.cfg").is_file()
    by_nature = environment and own.name.startswith("python")
    return _is_below(root, own) or (by_nature and _is_below(root, own.parent))


def _is_below(root: str, path: Path) -> bool:
    try:
        os.close(open_below(root, os.path.realpath(path)))
    except NotPermitted:
        return False
    return True


def find_program(command: Program, room: AgentWorkspace) -> Program:
    """Return a command with the path of its program, if that is in the working folder.

    Python files that are not executable are run by Rota's interpreter.
    """
    program, *words = command.argv
    if program == room.python:
        return command
    check_program(command.argv)
    own = Path(command.cwd) / program
    if not own.is_file():
        return command
    if not _is_in_space(own, room):
        raise Invalid("command", program, f"it is a link to another place: {ADVICE}")
    by_python = own.suffix == ".py" and not os.access(own, os.X_OK)
    return replace(command, argv=(*([room.python] if by_python else []), str(own), *words))


LOCK_FILE = "works-in"


class FolderLock(NamedTuple):
    """A folder in which an attempt works, and the guarded names that were missing in it."""

    folder: str
    missing: frozenset[str]


class FolderLocks:
    """Locks of attempts on working folders below `spaces`."""

    def __init__(self, rooms: Path, spaces: Path, names: Sequence[str]) -> None:
        self._rooms = rooms
        self._spaces = spaces
        self._names = list(names)
        self._lock = threading.Lock()

    def acquire(self, state: Path, folder: str) -> None:
        """Lock a folder for a launch before its program starts."""
        with self._lock:
            missing = set(missing_names(str(self._spaces), folder, self._names))
            for lock in _read_locks(self._rooms, f"*/*/{LOCK_FILE}"):
                if lock.folder == folder:  # what is held for it was missing before, too
                    missing |= lock.missing
            record = {"folder": folder, "missing": sorted(missing)}
            replace_file(state / LOCK_FILE, json.dumps(record).encode())

    def release(self, room: Path) -> None:
        """Delete an ended attempt's workspace, and remove guards nobody else needs."""
        with self._lock:
            own = _read_locks(room, f"*/{LOCK_FILE}")
            others_left = _read_locks(self._rooms, f"*/*/{LOCK_FILE}", but=room) if own else []
            others = {lock.folder for lock in others_left}
            for lock in own:
                if lock.missing and lock.folder not in others:
                    remove_guards(str(self._spaces), lock.folder, self._names, lock.missing)
            delete_tree(room)


def _read_locks(folder: Path, pattern: str, but: Path | None = None) -> list[FolderLock]:
    """Return the locks below a folder; one without names removes nothing."""
    found = []
    for path in folder.glob(pattern):
        if path.parent.parent == but:
            continue
        text = path.read_text()
        lock = FolderLock(text, frozenset())
        with suppress(ValueError, KeyError, TypeError):
            record = json.loads(text)
            lock = FolderLock(str(record["folder"]), frozenset(record["missing"]))
        found.append(lock)
    return found


FOLDER = "artifacts"
MAX_ARTIFACT_BYTES = 1024 * 1024 * 1024
"""Bytes of an artifact that can be downloaded."""
MAX_LISTED = 1_000
MAX_SEEN = 10_000
MAX_DEPTH = 16
MAX_STEP = 255
BATCH = 1_000
LATEST = datetime(2999, 12, 31, tzinfo=UTC).timestamp()
STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def artifacts_folder(space: Path, run_id: int) -> Path:
    """Return the artifact folder of a run."""
    return space / FOLDER / str(run_id)


def result_name(attempt: int) -> str:
    """Return the name of an attempt's result file."""
    return f"result-{attempt}"


class LocalArtifactStore:
    """The artifacts of all spaces of a home."""

    def __init__(self, home: Path) -> None:
        self._spaces = home / "spaces"

    def list_artifacts(self, space: str, run_id: int) -> ArtifactList:
        """Return the artifacts of a run, up to a limit."""
        found: list[Artifact] = []
        left_out, seen = 0, 0
        waiting: list[tuple[str, ...]] = []
        with suppress(FileNotFoundError, NotADirectoryError), self._folder(space, FOLDER) as top:
            waiting.append(())
            while waiting and seen < MAX_SEEN and len(found) <= MAX_LISTED:
                above = waiting.pop()
                for name, facts in _entries(top, (str(run_id), *above)):
                    seen += 1
                    if seen > MAX_SEEN or len(found) > MAX_LISTED:
                        waiting.append(above)
                        break
                    steps = (*above, name)
                    if facts is None or not _is_valid_path(steps):
                        left_out += 1
                    elif stat.S_ISDIR(facts.st_mode):
                        waiting.append(steps)
                    elif _is_plain(facts):
                        found.append(_artifact("/".join(steps), facts))
                    else:
                        left_out += 1
        more = bool(waiting) or len(found) > MAX_LISTED
        return ArtifactList(files=tuple(sorted(found)[:MAX_LISTED]), left_out=left_out, more=more)

    def open(self, space: str, run_id: int, name: str) -> OpenArtifact:
        """Open an artifact; raise NotFound if it is no regular file, Refused if it is too large."""
        held = self._opened(space, run_id, name)
        if held is None:
            raise NotFound("artifact", name, f"see `rota artifacts {run_id}`")
        facts = os.fstat(held)
        if facts.st_size > MAX_ARTIFACT_BYTES:
            os.close(held)
            raise Refused(f"{shown(name)} is larger than 1 GiB: copy it on the machine itself")
        return OpenArtifact(_artifact(name, facts), os.fdopen(held, "rb"))

    def read_artifact(self, space: str, run_id: int, name: str, most: int) -> bytes | None:
        """Return the start of an artifact, or None if there is no such regular file."""
        held = self._opened(space, run_id, name)
        if held is None:
            return None
        with os.fdopen(held, "rb") as file:
            return file.read(most)

    def _opened(self, space: str, run_id: int, name: str) -> int | None:
        steps = tuple(name.split("/"))
        if not _is_valid_path(steps):
            return None
        try:
            with self._shelf(space, run_id) as shelf, _below(shelf, steps[:-1]) as folder:
                return _open_plain(folder, steps[-1])
        except OSError:
            return None

    def list_folders(self) -> list[ArtifactFolder]:
        """Return the artifact folders of all runs."""
        found = []
        for space in _names(self._spaces):
            for name in _names(self._spaces / space / FOLDER):
                if name.isascii() and name.isdigit():
                    with suppress(OSError), self._folder(space, FOLDER) as top:
                        facts = os.stat(name, dir_fd=top, follow_symlinks=False)
                        if stat.S_ISDIR(facts.st_mode):
                            empty = next(_entries(top, (name,)), None) is None
                            found.append(
                                ArtifactFolder(space, int(name), _instant(facts.st_mtime), empty)
                            )
        return found

    def delete_folder(self, shelf: ArtifactFolder) -> None:
        """Delete the artifact folder of a run."""
        with suppress(OSError), self._folder(shelf.space, FOLDER) as held:
            remove_tree(held, str(shelf.run_id))

    def prepare(self, shelf: Path, attempt: int, *, anew: bool) -> None:
        """Prepare the artifact folder of a run; with `anew`, empty it.

        A run of a restored database may have the id of a lost one. A result file of this attempt
        cannot be its own yet, so it is removed.
        """
        space, _, name = shelf.relative_to(self._spaces).parts
        shelf.parent.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        with self._folder(space, FOLDER) as above:
            with suppress(FileNotFoundError):
                if anew or not _is_folder(above, name):
                    remove_tree(above, name)
            with suppress(FileExistsError):
                os.mkdir(name, PRIVATE, dir_fd=above)
            _restore_access(above, name)
            with _below(above, (name,)) as held, suppress(FileNotFoundError):
                remove_tree(held, result_name(attempt))

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


def remove_tree(above: int, name: str) -> None:
    """Delete a file or a tree of any depth; what cannot be deleted stays.

    Inner folders are moved to the top before they are emptied, so that depth costs neither memory
    nor descriptors.
    """
    if not _is_folder(above, name):
        os.unlink(name, dir_fd=above)
        return
    _restore_access(above, name)
    with _below(above, (name,)) as top:
        while _remove_some(top, top):
            pass
    os.rmdir(name, dir_fd=above)


def _remove_some(folder: int, top: int) -> bool:
    """Delete a batch of entries of a folder; true if any was deleted."""
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
    """Delete a folder at the top, or move it to the top."""
    _restore_access(folder, name)
    if folder != top:
        moved = secrets.token_hex(16)
        os.rename(name, moved, src_dir_fd=folder, dst_dir_fd=top)
        return
    with _below(top, (name,)) as inner:
        while _remove_some(inner, top):
            pass
    os.rmdir(name, dir_fd=top)


def _restore_access(above: int, name: str) -> None:
    """Restore this user's access to a folder whose mode a program has changed."""
    held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=above)
    try:
        if os.fstat(held).st_mode & PRIVATE != PRIVATE:
            os.chmod(f"/proc/self/fd/{held}", PRIVATE)
    finally:
        os.close(held)


def _entries(top: int, steps: Sequence[str]) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield names and stat results of a folder's entries; None if one cannot be examined."""
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
    """Open a folder some steps below another one."""
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
    """Open a regular file; anything else is not opened at all."""
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


def _is_valid_path(steps: Sequence[str]) -> bool:
    """Whether a path can be printed, typed and opened."""
    return len(steps) <= MAX_DEPTH and all(
        step not in {"", ".", ".."}
        and step.isprintable()
        and "/" not in step
        and len(step.encode()) <= MAX_STEP
        for step in steps
    )


def _artifact(name: str, facts: os.stat_result) -> Artifact:
    return Artifact(name, facts.st_size, _instant(facts.st_mtime))


def _instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(min(max(seconds, 0.0), LATEST), UTC)


def _names(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def attempt_folder_name(kept: KeptAttempt) -> str:
    """Return the name of the folder of an attempt's keeper."""
    return f"run-{kept.run_id}-{kept.epoch}-{kept.nonce}"


def parse_attempt_folder(name: str, home: str, executor: str) -> KeptAttempt:
    """Return the attempt that the name of a keeper's folder identifies."""
    _, run_id, epoch, nonce = name.split("-")
    return KeptAttempt(
        run_id=RunId(int(run_id)),
        epoch=Epoch(int(epoch)),
        home=home,
        nonce=nonce,
        boot="",
        executor=executor,
    )


def egress_name(run_id: int, epoch: int) -> str:
    """Return the name of an attempt in `rooms` and at the gateway."""
    return f"{run_id}-{epoch}"
