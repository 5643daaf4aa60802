"""Folders of an attempt: mailbox, task files, working folder, artifacts, locks.

Every step is taken from the folder already held, and what is no plain file with one name alone is
passed over: a link would lead to what the program itself cannot read, a pipe would never end.

A claim is a file among the attempt's own, there before its program is: a daemon that comes later
finds it. Names that are held for one attempt are held for every other in the same folder. It says
which names were not there before: only what was made to hold one of these is ever taken away.
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
from rota.keeper.paths import missing_names, open_below, unguard
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

WALLED_PROCESSES = 1024


def limits_for_isolated(
    bounds: ResourceLimits, held: Mapping[str, LimitEnforcement]
) -> ResourceLimits:
    """Return bounds within which strangers may run: so many processes, and half of the memory.

    Memory only where it is bounded for all processes together: one by one, it would stop programs
    that reserve much more than they use.
    """
    if bounds.processes is None:
        bounds = replace(bounds, processes=WALLED_PROCESSES)
    if bounds.memory_bytes is None and held["memory_mib"] is LimitEnforcement.TOGETHER:
        bounds = replace(bounds, memory_bytes=memory_here() // 2)
    return bounds


def memory_here() -> int:
    """Return how much memory this machine has."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


PRIVATE = 0o700


def make_folder(folder: Path) -> None:
    """Make a folder for this user alone, with all above it, if it is not there."""
    try:
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    except FileNotFoundError:
        make_folder(folder.parent)
        make_folder(folder)
    except FileExistsError:
        advice = "something else stands in the place of this folder: remove it"
        raise Invalid("folder", str(folder), advice) from None


def make_box(attempt: Path, name: str) -> str:
    """Return the mailbox of a try of an attempt, which is made if it is not there."""
    box = attempt.absolute() / name
    inner = (box / IN / name for name in (REPLIES, MESSAGES, FILES))
    for folder in (attempt, box, box / OUT, box / IN, *inner):
        folder.mkdir(mode=PRIVATE, exist_ok=True)
    return str(box)


def visible_mailbox(box: str | None) -> list[str]:
    """Return what a program reads of its mailbox."""
    return [] if box is None else [f"{box}/{IN}"]


def outbox_of(box: str | None) -> str | None:
    """Return what a program writes into."""
    return None if box is None else f"{box}/{OUT}"


def delete(folder: Path) -> None:
    """Delete what a program may have filled, however deep; what cannot be is left."""
    above = os.open(folder.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with suppress(OSError):
            remove(above, folder.name)
    finally:
        os.close(above)


def write_anew(path: Path, content: bytes) -> None:
    """Put a file where an earlier try without walls may have left anything: it is not opened."""
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
    outlet: EgressSocket | None,
    desk: EgressSocket | None,
) -> Cell:
    """Return where a program is to run, and within which bounds."""
    return Cell(
        name=name,
        state=state,
        folder=room.cwd,
        home=room.home,
        artifacts=room.artifacts,
        outbox=outbox_of(room.mailbox),
        readable=[room.folder, *filter(None, [room.resources]), *visible_mailbox(room.mailbox)],
        shared=site.mounts,
        network=site.network,
        outlet=outlet,
        desk=desk if room.desk else None,
        bounds=bounds,
        isolated=site.isolated,
        role=role,
        image=site.image,
    )


CONFIGS = ("task_config.json", "config.json")
MAX_CONFIG = 64 * 1024


def resources_of(space: Path, task: str) -> Path:
    """Return the folder of a task, whose name may hold what parts a path."""
    return space / "resources" / quote(task, safe="")


def read_config(folder: Path) -> str | None:
    """Return the first config that is there as JSON; Invalid if it is no small JSON object."""
    for name in CONFIGS:
        try:
            held = os.open(folder / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise Invalid(name, str(folder), f"it cannot be read: {error.strerror}") from error
        with os.fdopen(held, "rb") as file:
            plain = stat.S_ISREG(os.fstat(held).st_mode)
            text = file.read(MAX_CONFIG + 1) if plain else b""
        try:
            found = json.loads(text)
            told = encode(found)
        except (ValueError, RecursionError):
            found, told = None, ""
        if not isinstance(found, dict) or max(len(text), len(told)) > MAX_CONFIG:
            raise Invalid(name, str(folder), "write one JSON object of at most 64 KiB")
        return told
    return None


def working_folder(work: str, folder: object) -> str:
    """Return a folder below the working folder, which must be there and reached without links."""
    if folder is None:
        return work
    check_folder(str(folder))
    path = f"{work}/{folder}"
    try:
        held = open_below(work, path)
    except NotPermitted as error:
        raise Invalid("folder", folder, f"make it in the space's folder first: {error}") from error
    is_folder = stat.S_ISDIR(os.fstat(held).st_mode)
    os.close(held)
    if not is_folder:
        raise Invalid("folder", folder, "it is a file: name a folder")
    return path


def _is_of_space(own: Path, room: AgentWorkspace) -> bool:
    """Whether a file lies in the space's folder, whatever links it is reached by.

    The interpreter of a virtual environment is always a link; there the environment must lie there.
    """
    root = os.path.realpath(room.work or room.cwd)
    environment = own.parent.name == "bin" and (own.parent.parent / "pyvenv.cfg").is_file()
    by_nature = environment and own.name.startswith("python")
    return _lies_in(root, own) or (by_nature and _lies_in(root, own.parent))


def _lies_in(root: str, path: Path) -> bool:
    try:
        os.close(open_below(root, os.path.realpath(path)))
    except NotPermitted:
        return False
    return True


def find_program(command: Program, room: AgentWorkspace) -> Program:
    """Return a command whose program, where it lies in the working folder, is named by its path.

    A file of Python's that cannot be executed by itself is run by Rota's interpreter.
    """
    program, *words = command.argv
    if program == room.python:
        return command
    check_program(command.argv)
    own = Path(command.cwd) / program
    if not own.is_file():
        return command
    if not _is_of_space(own, room):
        raise Invalid("command", program, f"it is a link that leads elsewhere: {ADVICE}")
    by_python = own.suffix == ".py" and not os.access(own, os.X_OK)
    return replace(command, argv=(*([room.python] if by_python else []), str(own), *words))


CLAIM = "works-in"


class Claim(NamedTuple):
    """A folder in which an attempt works, and the names that were missing in it."""

    folder: str
    missing: frozenset[str]


class FolderLocks:
    """The claims of a home's rooms on the folders below `spaces`."""

    def __init__(self, rooms: Path, spaces: Path, names: Sequence[str]) -> None:
        self._rooms = rooms
        self._spaces = spaces
        self._names = list(names)
        self._lock = threading.Lock()

    def make(self, state: Path, folder: str) -> None:
        """Claim a folder for a try, before its program begins."""
        with self._lock:
            missing = set(missing_names(str(self._spaces), folder, self._names))
            for claim in _claims(self._rooms, f"*/*/{CLAIM}"):
                if claim.folder == folder:  # what is held for it was missing before, too
                    missing |= claim.missing
            told = {"folder": folder, "missing": sorted(missing)}
            write_anew(state / CLAIM, json.dumps(told).encode())

    def drop(self, room: Path) -> None:
        """Delete the room of an attempt that is over, and put in order where it worked alone."""
        with self._lock:
            own = _claims(room, f"*/{CLAIM}")
            left = _claims(self._rooms, f"*/*/{CLAIM}", but=room) if own else []
            others = {claim.folder for claim in left}
            for claim in own:
                if claim.missing and claim.folder not in others:
                    unguard(str(self._spaces), claim.folder, self._names, claim.missing)
            delete(room)


def _claims(folder: Path, pattern: str, but: Path | None = None) -> list[Claim]:
    """Return the claims below a folder; of one that says no names, nothing is taken away."""
    found = []
    for path in folder.glob(pattern):
        if path.parent.parent == but:
            continue
        text = path.read_text()
        claim = Claim(text, frozenset())
        with suppress(ValueError, KeyError, TypeError):
            told = json.loads(text)
            claim = Claim(str(told["folder"]), frozenset(told["missing"]))
        found.append(claim)
    return found


FOLDER = "artifacts"
LARGEST = 1024 * 1024 * 1024
"""How many bytes an artifact may have to be handed out."""
MAX_LISTED = 1_000
MAX_SEEN = 10_000
MAX_DEPTH = 16
MAX_STEP = 255
BATCH = 1_000
LATEST = datetime(2999, 12, 31, tzinfo=UTC).timestamp()
STEP = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
PLAIN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def shelf_of(space: Path, run_id: int) -> Path:
    """Return the folder for the artifacts of a run."""
    return space / FOLDER / str(run_id)


def result_name(attempt: int) -> str:
    """Return the name of the file in which an attempt may leave its result."""
    return f"result-{attempt}"


class LocalArtifactStore:
    """The artifacts below the spaces of one home."""

    def __init__(self, home: Path) -> None:
        self._spaces = home / "spaces"

    def of(self, space: str, run_id: int) -> ArtifactList:
        """Return what a run has left, bounded in number."""
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
                    if facts is None or not _nameable(steps):
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
        """Open an artifact; NotFound if it is no plain file, Refused if it is too large."""
        held = self._opened(space, run_id, name)
        if held is None:
            raise NotFound("artifact", name, f"see `rota artifacts {run_id}`")
        facts = os.fstat(held)
        if facts.st_size > LARGEST:
            os.close(held)
            raise Refused(f"{shown(name)} has more than 1 GiB: fetch it on the machine itself")
        return OpenArtifact(_artifact(name, facts), os.fdopen(held, "rb"))

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

    def shelves(self) -> list[ArtifactFolder]:
        """Return the folders of all runs."""
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

    def drop(self, shelf: ArtifactFolder) -> None:
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
            os.chmod(f"/proc/self/fd/{held}", PRIVATE)
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
    """Return what the folder of an attempt's keeper is called."""
    return f"run-{kept.run_id}-{kept.epoch}-{kept.nonce}"


def parse_attempt_folder(name: str, home: str, executor: str) -> KeptAttempt:
    """Return the attempt whose keeper's folder is called so, as far as its name tells."""
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
    """Return what an attempt is called among the rooms and at the gateway."""
    return f"{run_id}-{epoch}"
