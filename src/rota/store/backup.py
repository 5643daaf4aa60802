"""The format of backup files, and what a restore changes.

It appears under its name only when it is whole and on disk. The manifest is written last and holds
the length and SHA-256 of every part, so a file that was cut short or changed is never taken.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from rota.errors import Conflict, Invalid, Unavailable
from rota.model.backups import Backup, RestoredSpan
from rota.model.events import EventName
from rota.model.instants import from_micros, to_micros
from rota.model.schedules import Decide
from rota.store import plans as store_plans
from rota.store import queue
from rota.store.events import PRUNED
from rota.store.transactions import QueryRows, Transaction

FORMAT = "rota backup 1"
MANIFEST = "manifest.json"
CHUNK = 1 << 20
LONGEST_MANIFEST = 1 << 20
PRIVATE = 0o600
DAMAGE = (
    zipfile.BadZipFile, zlib.error, EOFError, LookupError, NotImplementedError, OSError,
    OverflowError, RuntimeError, TypeError, ValueError,
)  # fmt: skip
"""What reading a file that was changed may raise."""


class BackupPart:
    """A part while it is written: counts and hashes what goes by."""

    def __init__(self, target: IO[bytes], path: str) -> None:
        self._target = target
        self._path = path
        self._size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes) -> int:
        """Write some of it."""
        self._size += len(data)
        self._digest.update(data)
        with writable(self._path):
            return self._target.write(data)

    @property
    def facts(self) -> dict[str, object]:
        """What the manifest says about it."""
        return {"size": self._size, "sha256": self._digest.hexdigest()}


class BackupWriter:
    """A backup in the making."""

    def __init__(self, archive: zipfile.ZipFile, path: str) -> None:
        self._archive = archive
        self._path = path
        self.parts: dict[str, dict[str, object]] = {}

    @contextmanager
    def part(self, name: str) -> Iterator[BackupPart]:
        """Open the next part for writing."""
        target = self._archive.open(name, "w", force_zip64=True)
        part = BackupPart(target, self._path)
        try:
            yield part
        finally:
            with writable(self._path):
                target.close()
        self.parts[name] = part.facts


@contextmanager
def write_backup(path: str, facts: dict[str, object], *, force: bool) -> Iterator[BackupWriter]:
    """Write a backup; `facts` go into its manifest, and may be added to until the end."""
    target = Path(path)
    check_free(target, force=force)
    sweep(target)
    begun = draft_path(target, "part")
    try:
        with writable(path):
            file = open_private(begun)
        with file:
            archive = zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1)
            try:
                writer = BackupWriter(archive, path)
                yield writer
                with writable(path):
                    manifest = {"format": FORMAT, **facts, "parts": writer.parts}
                    archive.writestr(MANIFEST, json.dumps(manifest, indent=2))
                    archive.close()
                    os.fsync(file.fileno())
                    put_in_place(begun, target, force=force)
            finally:
                with suppress(OSError, ValueError):
                    archive.close()  # of one that was given up; a second time it does nothing
    finally:
        with suppress(OSError):
            begun.unlink(missing_ok=True)


@contextmanager
def writable(path: str) -> Iterator[None]:
    """Tell in one sentence why a backup cannot be written."""
    try:
        yield
    except OSError as fault:
        message = f"cannot write the backup {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def check_free(target: Path, *, force: bool) -> None:
    """Refuse to write over a file, or into a folder that is not there."""
    if target.is_dir() or not target.parent.is_dir():
        raise Invalid("file", str(target), "name a file in a folder that exists")
    if target.exists() and not force:
        message = f"{target} exists: choose another name, or --force to replace it"
        raise Conflict(message)


def draft_path(target: Path, what: str) -> Path:
    """Return the name of a passing file in the same folder, so that a rename is one step."""
    return target.with_name(f".{target.name}.{what}-{os.getpid()}")


def sweep(target: Path) -> None:
    """Remove what processes that are gone have left beside a file."""
    for path in target.parent.glob(f".{target.name}.*-*"):
        pid = re.match(r"\d+", path.name.rpartition("-")[2])
        if pid is not None and not Path("/proc", pid[0]).exists():
            path.unlink(missing_ok=True)


def open_private(path: Path) -> IO[bytes]:
    """Open a new file that only its owner may read."""
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE)
    return os.fdopen(handle, "w+b", buffering=0)


def put_in_place(begun: Path, target: Path, *, force: bool) -> None:
    """Give a finished file its name, in one step that outlives a power cut."""
    if force:
        begun.replace(target)
    else:
        try:
            os.link(begun, target)
        except FileExistsError:
            message = f"{target} came into being meanwhile: choose another name, or --force"
            raise Conflict(message) from None
    sync_folder(target.parent)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class BackupFile:
    """A backup that was read to its end and found whole."""

    def __init__(self, path: str, archive: zipfile.ZipFile, manifest: dict[str, Any]) -> None:
        self._archive = archive
        self.manifest = manifest
        self.backup = Backup(
            path=path,
            store=manifest["store"],
            schema=manifest["schema"],
            incarnation=manifest["incarnation"],
            at=from_micros(manifest["at"]),
            rows=manifest["rows"],
            size=Path(path).stat().st_size,
        )

    def part(self, name: str) -> BinaryIO:
        """Open a part for reading."""
        return cast("BinaryIO", self._archive.open(name))


@contextmanager
def open_backup(path: str, store: str) -> Iterator[BackupFile]:
    """Open a backup of one kind of store, after every byte of it was checked."""
    with _opened(path) as file:
        yield _checked(file, path, store)


def _opened(path: str) -> BinaryIO:
    try:
        return Path(path).open("rb")
    except FileNotFoundError:
        raise Invalid("file", path, "there is no such backup") from None
    except OSError as fault:
        message = f"cannot read the backup {path}: {(fault.strerror or str(fault)).lower()}"
        raise Unavailable(message) from fault


def _checked(file: BinaryIO, path: str, store: str) -> BackupFile:
    try:
        opened = zipfile.ZipFile(file)
    except DAMAGE as fault:
        raise _damaged(path, "it is no backup of Rota, or was cut short") from fault
    try:
        archive = BackupFile(path, opened, _manifest(opened, path))
        _check_store(archive.backup, store)
        _check_parts(opened, archive.manifest["parts"], path)
    except DAMAGE as fault:
        raise _damaged(path, "it was changed after it was written") from fault
    return archive


def _manifest(opened: zipfile.ZipFile, path: str) -> dict[str, Any]:
    with opened.open(MANIFEST) as file:
        manifest: dict[str, Any] = json.loads(file.read(LONGEST_MANIFEST))
    if manifest["format"] != FORMAT:
        raise _damaged(path, "its format is not known to this Rota")
    return manifest


def _check_store(backup: Backup, store: str) -> None:
    if backup.store != store:
        advice = f"it was taken from {backup.store}, and this is {store}: give another --store"
        raise Invalid("file", backup.path, advice)


def _check_parts(
    opened: zipfile.ZipFile, parts: Mapping[str, Mapping[str, object]], path: str
) -> None:
    for name, known in parts.items():
        size, digest = 0, hashlib.sha256()
        with opened.open(name) as file:
            while data := file.read(CHUNK):
                size += len(data)
                digest.update(data)
        if (size, digest.hexdigest()) != (known["size"], known["sha256"]):
            raise _damaged(path, f"its part {name} is not what was written")


def _damaged(path: str, why: str) -> Invalid:
    return Invalid("file", path, f"{why}: restore another one")


MOST = 1_000
DOUBT = "it may have been sent between the backup and the restore"
MILLION = 1_000_000
LIKELY_A_SECOND = 1_000

FLEETING = frozenset({"facts", "workers", "heads", "pings", "homes", "kept", "beats"})
"""Tables that are not taken over: leases and caches of another life, and facts one by one."""

RESTORED = "restored"
"""The fact that says when that was last: what was running before may have been begun."""

JUMPING = ("runs", "questions", "deliveries", "events")
"""Tables whose ids people and channels may have seen since the backup."""


async def adjust_restored_rows(
    tx: Transaction, backup: Backup, pass_over: Decide | None, now: int
) -> RestoredSpan:
    """Settle what the time since the backup means, and rebuild what claiming caches.

    Without `pass_over` nothing has happened since: slots are left to the catch-up policy, and only
    messages that were being sent are in doubt.
    """
    slots = 0 if pass_over is None else await _pass_over(tx, pass_over, now)
    states = ["sending"] if pass_over is None else ["pending", "sending"]
    messages = await _doubt(tx, states, now)
    # Positions of the other life mean nothing in this one; its cursors are told apart anyway.
    await tx.run("note_fact", name=PRUNED, value="0.0")
    await tx.run("note_fact", name=RESTORED, value=str(now))
    running = (await tx.rows("count_running"))[0][0]
    await queue.rebuild_queue_heads(tx)
    data = {"from": backup.incarnation, "at": backup.at.isoformat(), "slots": slots}
    event: dict[str, object] = {"name": EventName.RESTORED.value, "data": json.dumps(data)}
    await tx.run("insert_events", rows=QueryRows([event]), now=now)
    return RestoredSpan(slots=slots, messages=messages, running=running)


async def _pass_over(tx: Transaction, pass_over: Decide, now: int) -> int:
    slots = 0
    while due := await store_plans.list_due_schedules(tx, MOST):
        plans = [pass_over(schedule, now) for schedule in due]
        await store_plans.apply_plans(tx, plans)
        slots += sum(entry.count for p in plans for entry in p.ledger)
    return slots


async def _doubt(tx: Transaction, states: list[str], now: int) -> int:
    rows = await tx.rows("doubt_deliveries", states=states, error=DOUBT)
    events = QueryRows(
        {
            "name": EventName.DELIVERY_UNKNOWN.value,
            "run_id": row[1],
            "data": json.dumps({"delivery_id": row[0], "channel": row[2]}),
        }
        for row in rows
    )
    if events:
        await tx.run("insert_events", rows=events, now=now)
    return len(events)


def next_id(newest: int, backup: Backup, now: int) -> int:
    """Return an id that is above all that can have been given out since the backup.

    Ids that people, questions and dedupe keys have seen must not come to stand for something else.
    """
    seconds = max(0, now - to_micros(backup.at)) // 1_000_000
    likely = newest + max(MILLION, seconds * LIKELY_A_SECOND)
    return -(-likely // MILLION) * MILLION
