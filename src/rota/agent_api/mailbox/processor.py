"""Executes the commands of one mailbox and stores rejected files.

A command is read, executed, answered and deleted, in this order. If the process dies in between,
the next one finds the file again and sends the same request, by attempt and id, and so gets the
same answer.

A watch fires once and is set again before the folder is listed. So no file is missed, and a program
that writes continuously causes no more wake-ups than there are listings.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import hashlib
import json
import logging
import os
import struct
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from rota.agent_api.dispatcher import RateLimiter
from rota.agent_api.mailbox.contents import (
    CommandDispatcher,
    FileDelivery,
    FollowUpMessages,
    SnapshotWriter,
    nobody,
)
from rota.agent_api.mailbox.folder import (
    NAME,
    SUFFIX,
    CommandRejected,
    Mailbox,
    MailboxCommand,
    MailboxFile,
    read_command,
)
from rota.errors import LeaseLost, RotaError, shown
from rota.faultpoints import reach
from rota.model.audit import AttemptIdentity, NewAuditEntry
from rota.ports.mailbox import Acknowledged
from rota.rules.redaction import Redactor
from rota.store.audit import record_request
from rota.store.store import HookedStore, RequestAudit, Store

log = logging.getLogger(__name__)

Result = TypeVar("Result")

BURST = 60.0
"""Number of commands that may be executed at once before the rate applies."""
BYTES = 64 * 1024
"""Bytes of a file that cost as much as one command."""
MOST_WAITING = 500
MOST_REFUSED = 100
MAX_KEPT = 50
"""Maximum number of rejected files that are stored for one mailbox."""
A_PASS = 20
"""Number of commands executed before the folder is listed again."""
POLL_SECONDS = 10.0
UNWATCHED_SECONDS = 1.0
"""Poll interval of a mailbox with and without a watch."""
PATIENCE = (1.0, 2.0, 4.0, 8.0)
"""Waits for a store that does not answer, before the program gets an error."""
AGAIN = frozenset({"unavailable", "busy", "too_fast"})
FENCED = frozenset({"fenced", LeaseLost.code})

FLOODED = (
    f"it left more than {MOST_WAITING} files in its mailbox: write fewer and wait for the replies"
)
TOO_MANY_REFUSED = (
    f"it put more than {MOST_REFUSED} invalid files into its mailbox: "
    "see the folder `errors` of the home folder"
)


class MailboxMisused(Exception):
    """The program exceeded a limit of its mailbox."""


class AttemptSuperseded(Exception):
    """The attempt is no longer current, so its commands are not executed."""


class MailboxProcessor:
    """Serves one mailbox until it is closed; `stop` ends a program that exceeds a limit."""

    def __init__(
        self,
        held: AttemptIdentity,
        box: Mailbox,
        desk: CommandDispatcher,
        store: Store,
        *,
        pace: RateLimiter,
        errors: RejectedFiles,
        watcher: FolderWatcher,
        threads: Executor,
        stop: Callable[[str], None],
        acknowledged: Acknowledged = nobody,
    ) -> None:
        self.held = held
        self.follow_ups = FollowUpMessages(held, box, self.off, acknowledged)
        self.bringing = FileDelivery(box, store, self.off)
        self._snapshots = SnapshotWriter(desk, store)
        self._own: Mapping[str, Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]]] = {
            **self.follow_ups.verbs,
            "refresh": self._refresh,
        }
        self.broken: str | None = None
        self._box = box
        self._desk = desk
        self._store = store
        self._errors = errors
        self._watcher = watcher
        self._threads = threads
        self._stop = stop
        self._pace = pace
        self._bell = asyncio.Event()
        self._watch: int | None = None
        self._last = False
        self._stuck: set[str] = set()
        self._refused = 0
        self._kept = 0
        self._task: asyncio.Task[None] | None = None

    async def fill(self) -> None:
        """Write the snapshots; a program without them can still send commands."""
        try:
            await self._snapshots.fill(self.held, self._box, self.off)
        except OSError as fault:
            log.warning(
                "mailbox.fill_failed", extra={"run_id": self.held.run_id, "error": str(fault)}
            )

    async def begin(self) -> None:
        """Start serving the mailbox."""
        await self.follow_ups.open()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def drain(self) -> None:
        """Execute the commands that are present now, and none that arrive later."""
        self._last = True
        self._bell.set()
        if self._task is not None:
            await asyncio.wait({self._task})
            self._task.result()

    def close(self) -> None:
        """Stop serving the mailbox."""
        if self._task is not None and not self._task.cancel() and not self._task.cancelled():
            self._task.exception()  # the caller of drain has the exception
        self._watcher.disarm(self._watch)
        self._box.close()

    async def off(self, work: Callable[..., Result], *args: object) -> Result:
        """Run a function on files in a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *args)

    async def _run(self) -> None:
        try:
            await self._serve()
        except (MailboxMisused, OSError) as fault:
            why = (
                str(fault)
                if isinstance(fault, MailboxMisused)
                else f"its mailbox is damaged: {fault}"
            )
            self._give_up(why)
        except AttemptSuperseded:
            log.warning("mailbox.fenced", extra={"run_id": self.held.run_id})
        except Exception:
            self._give_up("its mailbox could not be served")
            raise

    def _give_up(self, why: str) -> None:
        log.warning("mailbox.broken", extra={"run_id": self.held.run_id, "error": why})
        self.broken = why
        self._stop(why)

    async def _serve(self) -> None:
        listed = None
        while True:
            self._bell.clear()
            last = self._last
            self._watch = self._watcher.arm(self._box.out, self._bell.set)
            changed = self._box.changed()
            found = await self._pass(None if last else A_PASS)
            if last:
                return
            if not found and not await self._rung(listed):
                listed = (
                    changed  # changed a whole poll interval ago, so later changes have another time
                )

    async def _rung(self, listed: int | None) -> bool:
        """Wait for the watch; False if the folder may have changed without it.

        Returns True if the folder has not changed since it was `listed`.
        """
        while True:
            seconds = UNWATCHED_SECONDS if self._watch is None else POLL_SECONDS
            try:
                async with asyncio.timeout(seconds):
                    await self._bell.wait()
            except TimeoutError:
                if self._watch is None or self._box.changed() != listed:
                    return False
            else:
                return True

    async def _pass(self, most: int | None) -> bool:
        """Execute waiting commands in the order of their names; return whether there were any."""
        waiting = await self.off(self._box.waiting, MOST_WAITING)
        if waiting.more:
            raise MailboxMisused(FLOODED)
        whole = [name for name in waiting.names if name.endswith(SUFFIX)]
        self._stuck.intersection_update(whole)
        ready = [name for name in whole if name not in self._stuck]
        for name in ready[:most]:
            await self._pace.wait(self.held.name)
            await self._one(name)
        return bool(ready)

    async def _one(self, name: str) -> None:
        taken = await self.off(self._read, name)
        if taken is None:
            return
        command, found = taken
        try:
            await self._serve_one(name, command, found)
        finally:
            if found is not None:
                found.close()

    async def _serve_one(
        self, name: str, command: MailboxCommand | CommandRejected, found: MailboxFile | None
    ) -> None:
        if isinstance(command, CommandRejected):
            self._pace.charge(self.held.name, 1.0 + _weight(found))
            await self._refuse(name, command, found)
            return
        reach("mailbox.read")
        answer = await self._answer(command)
        self._pace.charge(self.held.name, _weight(found))
        error = None if answer.get("ok") is True else answer.get("error", {})
        if error is not None:
            await self._keep(name, error, found)
        reach("mailbox.served")
        await self._finish(name, command.request_id, answer, found)
        if error is not None and error.get("code") in FENCED:
            raise AttemptSuperseded

    def _read(
        self, name: str
    ) -> tuple[MailboxCommand | CommandRejected, MailboxFile | None] | None:
        """Parse a file, or return why it is rejected; None if it is gone."""
        found = None
        try:
            found = self._box.read(name)
            return None if found is None else (read_command(found.data), found)
        except CommandRejected as fault:
            return fault, found

    async def _answer(self, command: MailboxCommand) -> dict[str, Any]:
        own = self._own.get(command.verb)
        if own is not None:
            self._pace.charge(self.held.name, 1.0)
            return await own(command.fields)
        for pause in (*PATIENCE, None):
            answer = await self._ask(command)
            if pause is None or answer.get("error", {}).get("code") not in AGAIN:
                break
            await asyncio.sleep(pause)
        return answer

    async def _refresh(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        if fields:
            return refusal("invalid", "refresh has no fields: give none")
        return {"ok": True, "files": await self._snapshots.fill(self.held, self._box, self.off)}

    async def _ask(self, command: MailboxCommand) -> dict[str, Any]:
        request_id, verb, fields = command
        try:
            return await self._desk.serve(self.held, verb, fields, request_id)
        except RotaError as fault:
            return refusal(fault.code, str(fault))

    async def _finish(
        self, name: str, reply: str, answer: Mapping[str, Any], found: MailboxFile | None
    ) -> None:
        """Write the reply and delete the command; on a full disk both are repeated later."""
        try:
            gone = await self.off(self._reply_and_drop, name, reply, answer, found)
        except OSError as fault:
            if fault.errno not in {errno.ENOSPC, errno.EDQUOT}:
                raise
            log.warning("mailbox.disk_full", extra={"run_id": self.held.run_id})
            await asyncio.sleep(UNWATCHED_SECONDS)
            gone = not self._last or await self.off(self._box.drop, name)
        if not gone:
            self._stuck.add(name)

    def _reply_and_drop(
        self, name: str, reply: str, answer: Mapping[str, Any], found: MailboxFile | None
    ) -> bool:
        self._box.reply(reply, answer)
        reach("mailbox.answered")
        return self._box.drop(name, found)

    async def _refuse(self, name: str, fault: CommandRejected, found: MailboxFile | None) -> None:
        """Delete a rejected file, reply to the program and store the file for people."""
        self._refused += 1
        if self._refused > MOST_REFUSED:
            raise MailboxMisused(TOO_MANY_REFUSED)
        facts = {"file": shown(name).strip('"'), "why": fault.code}
        log.warning("mailbox.rejected", extra={"run_id": self.held.run_id, **facts})
        await self._note(facts)
        error = {"code": fault.code, "message": str(fault)}
        await self._keep(name, error, found)
        await self._finish(name, reply_name(name), {"ok": False, "error": error}, found)

    async def _note(self, facts: Mapping[str, str]) -> None:
        """Write an audit entry about a rejected file."""
        noted = NewAuditEntry(
            caller=self.held.name,
            space=self.held.space,
            command="mailbox_rejected",
            subject={"run": self.held.run_id, **facts},
        )
        try:
            await HookedStore(self._store, RequestAudit(self._store, noted)).write(record_request)
        except RotaError as fault:
            log.warning(
                "mailbox.note_failed", extra={"run_id": self.held.run_id, "error": str(fault)}
            )

    async def _keep(self, name: str, error: Mapping[str, Any], found: MailboxFile | None) -> None:
        """Store a rejected file for people."""
        if self._kept == MAX_KEPT:
            return
        self._kept += 1
        held, content = self.held, None if found is None else found.data
        facts = {
            "run": held.run_id,
            "attempt": held.epoch,
            "space": held.space,
            "task": held.task,
            "file": shown(name).strip('"'),
            "error": dict(error),
        }
        short = f"{held.run_id}-{held.epoch}-{reply_name(name)}"
        try:
            await self.off(self._errors.keep, self._store.now(), short, facts, content)
        except OSError as fault:
            log.warning("mailbox.write_failed", extra={"run_id": held.run_id, "error": str(fault)})


def _weight(found: MailboxFile | None) -> float:
    return 0.0 if found is None else len(found.data) // BYTES


def refusal(code: str, message: str) -> dict[str, Any]:
    """Return the reply for a rejected command."""
    return {"ok": False, "error": {"code": code, "message": message}}


def reply_name(name: str) -> str:
    """Return the name of the reply to a file without a valid request id."""
    if NAME.fullmatch(name) is not None:
        return name.removesuffix(SUFFIX)
    return f"refused-{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}"


FOLDER = "errors"
MAX_FILES = 500
PRIVATE = 0o600
LONGEST_CONTENT = 64 * 1024


class RejectedFiles:
    """The folder `errors` of a home, with the newest files, redacted."""

    def __init__(self, home: Path, redactor: Redactor) -> None:
        self.folder = home / FOLDER
        self._redactor = redactor

    def keep(self, at: int, name: str, facts: Mapping[str, Any], content: bytes | None) -> None:
        """Store the content of a file and the reason; `at` is in microseconds."""
        record = dict(self._redactor.redact_json(facts))
        if content is not None:
            text = content[: 2 * LONGEST_CONTENT].decode("utf-8", "replace")
            record["content"] = self._redactor.redact_text(text)[:LONGEST_CONTENT]
            record["bytes"] = len(content)
        self.folder.mkdir(mode=0o700, exist_ok=True)
        path = self.folder / f"{at:016}-{self._redactor.redact_text(name)}.json"
        held = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE)
        with os.fdopen(held, "w") as file:
            file.write(json.dumps(record, indent=1) + "\n")
        for old in sorted(os.listdir(self.folder))[:-MAX_FILES]:  # noqa: PTH208 - only the names
            with suppress(FileNotFoundError):
                (self.folder / old).unlink()


CLOSED_AFTER_WRITING = 0x0008
MOVED_HERE = 0x0080
OVERFLOW = 0x4000
ONLY_A_FOLDER = 0x0100_0000
ONCE = 0x8000_0000
FINISHED = CLOSED_AFTER_WRITING | MOVED_HERE | ONLY_A_FOLDER | ONCE
HEAD = struct.Struct("=iIII")
MAX_BYTES = 64 * 1024


class FolderWatcher:
    """Watches folders for the running loop; reports when the kernel has no watch left."""

    def __init__(self) -> None:
        self._rings: dict[int, Callable[[], None]] = {}
        self._kernel = ctypes.CDLL(None, use_errno=True)
        self._held = -1
        begin = getattr(self._kernel, "inotify_init1", None)  # Linux only
        if begin is not None:
            self._held = begin(os.O_CLOEXEC | os.O_NONBLOCK)
        self._complained = False
        self._loop = asyncio.get_running_loop()
        if self._held < 0:
            self._complain()
        else:
            self._loop.add_reader(self._held, self._hear)

    def arm(self, folder: int, ring: Callable[[], None]) -> int | None:
        """Call `ring` when a file is next written to the folder; None if there is no watch left."""
        if self._held < 0:
            return None
        path = b"/proc/self/fd/%d" % folder  # the open folder, wherever it was moved to
        watch: int = self._kernel.inotify_add_watch(self._held, path, ctypes.c_uint32(FINISHED))
        if watch < 0:
            self._complain()
            return None
        self._rings[watch] = ring
        return watch

    def disarm(self, watch: int | None) -> None:
        """Remove a watch."""
        if watch is not None and self._rings.pop(watch, None) is not None:
            self._kernel.inotify_rm_watch(self._held, watch)

    def close(self) -> None:
        """Close the inotify queue."""
        if self._held >= 0:
            self._loop.remove_reader(self._held)
            os.close(self._held)
            self._held = -1

    def _complain(self) -> None:
        if not self._complained:
            self._complained = True
            log.warning("mailbox.watch_failed", extra={"error": os.strerror(ctypes.get_errno())})

    def _hear(self) -> None:
        try:
            told = os.read(self._held, MAX_BYTES)
        except BlockingIOError:
            return
        at = 0
        while at + HEAD.size <= len(told):
            watch, what, _, longer = HEAD.unpack_from(told, at)
            at += HEAD.size + longer
            if what & OVERFLOW:
                self._ring_all()
            ring = self._rings.pop(watch, None)
            if ring is not None:
                ring()

    def _ring_all(self) -> None:
        for ring in [*self._rings.values()]:
            ring()
