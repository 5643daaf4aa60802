"""The keepers of a home as attempts use them, their egress, and calls that may block."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import math
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TypeVar, TypeVarTuple

from rota.errors import Exhausted, Unavailable
from rota.keeper.build import Interpreter, KeeperBinary, build_keeper
from rota.keeper.cleanup import UNSWEPT, CleanupThread, find_uncleaned, remove_old_folders
from rota.keeper.client import (
    NANOSECONDS,
    KeeperFifo,
    KeeperIdentity,
    KeeperLease,
    boot_time,
    find_exit_record,
    kill_keeper,
    read_input,
    read_keeper,
    read_spool,
    request_cancel,
    start_keeper,
    stop_keeper,
    wake_keeper,
    write_input,
)
from rota.keeper.monitor import (
    UNWATCHED_SECONDS,
    KeeperEvents,
    is_alive,
    is_in_disk_sleep,
    take_sample,
)
from rota.keeper.protocol import boot_id
from rota.keeper.workspace import (
    FolderLocks,
    LocalArtifactStore,
    artifacts_folder,
    attempt_folder_name,
    delete_tree,
    egress_name,
    execution_spec,
    find_program,
    limits_for_isolated,
    make_folder,
    make_mailbox,
    read_config,
    replace_file,
    resources_folder,
    result_name,
    working_folder,
)
from rota.model.attempts import MAX_RESULT_BYTES, Assignment, ExitRecord, KeptAttempt, OutputStream
from rota.model.heartbeats import AttemptSample
from rota.model.programs import NetworkAccess, Program, ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.ports.agent import AgentWorkspace, PreparedProgram, Redaction
from rota.ports.executor import (
    GUARDED,
    NO_EGRESS,
    EgressGateway,
    EgressSocket,
    Executor,
    KeeperSpec,
    TerminalExecutor,
)
from rota.rules.checks import GATE
from rota.rules.effects import write_scope

PRIVATE = 0o700
MAX_PLACES = 1024
"""Size of the cache of attempt paths, which are needed again and again."""
DELETE_OLD_SECONDS = 600.0
"""How often folders of unknown attempts are searched for."""
STATE_NAME = 8
"""Length of names of state folders: paths of sockets in them must be short."""
OUT_OF_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def state_folders(home: Path, run_id: int, epoch: int) -> list[Path]:
    """Return the state folders of an attempt, one per launch, newest last."""
    room = home / "keepers" / "rooms" / egress_name(run_id, epoch)
    return sorted(room.glob("[0-9a-f]" * STATE_NAME), key=lambda path: path.stat().st_mtime_ns)


class LocalKeeperHome:
    """The keepers of one home folder; only one process can acquire it."""

    def __init__(
        self,
        folder: Path,
        host: str,
        executors: Mapping[str, Executor],
        egress: EgressSocket | None = None,
        desk: EgressSocket | None = None,
        gateway: EgressGateway | None = None,
        redactor: Redaction | None = None,
    ) -> None:
        self._redactor = redactor
        self._executors = executors
        self._desk = desk
        self.host = host
        self.boot = boot_id()
        self._spaces = folder.absolute() / "spaces"
        self._artifacts = LocalArtifactStore(folder.absolute())
        self._python = Interpreter.running().program
        self._folder = folder / "keepers"
        self._attempts = self._folder / "attempts"
        self._attempt_path = lru_cache(MAX_PLACES)(self._attempts.joinpath)
        self._egress = EgressRouter(egress, gateway, self._attempts)
        self.home = f"{host}:{self._folder.absolute()}"
        self._folder_locks = FolderLocks(self._rooms, self._spaces, GUARDED)
        self._events = KeeperEvents()
        self._cleanup = CleanupThread(self._events.notify)
        self._cleanup_calls, self._sample_calls = BlockingCalls(), BlockingCalls()
        self._lock = -1
        self._epoch = 0
        self._delete_old_at = -math.inf
        self._program: KeeperBinary | None = None
        self._lease: KeeperLease | None = None
        self._wake: KeeperFifo | None = None

    def acquire(self) -> bool:
        """Acquire the home for this process; false if another process has it."""
        if self._lock >= 0:
            return True
        for folder in (self._folder, self._attempts, self._rooms, self._mailboxes):
            make_folder(folder)
        lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return False
        self._lock = lock
        self._epoch = int(os.pread(lock, 32, 0) or b"0") + 1
        os.pwrite(lock, b"%d\n" % self._epoch, 0)
        self._lease = KeeperLease(self._folder / "lease", self._epoch)
        self._wake = KeeperFifo(self._folder / "wake")
        asyncio.get_running_loop().add_reader(self._wake.fileno(), self._on_wakeup)
        return True

    def close(self) -> None:
        """Release the home; its keepers continue until their lease ends."""
        self._egress.close()
        self._events.close()
        if self._wake is not None:
            asyncio.get_running_loop().remove_reader(self._wake.fileno())
            self._wake.close()
            self._wake = None
        if self._lease is not None:
            self._lease.close()
            self._lease = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    @property
    def _rooms(self) -> Path:
        return self._folder / "rooms"

    @property
    def _mailboxes(self) -> Path:
        return self._folder / "mailboxes"

    def _on_wakeup(self) -> None:
        for name in self._wake.read_names() if self._wake is not None else ():
            self._events.notify(name)

    def boot_time(self) -> float:
        """Return the seconds since boot, sleep included."""
        return boot_time() / NANOSECONDS

    def extend_lease(self, until: float) -> None:
        """Extend the lease of all keepers to an instant of boot time."""
        if self._lease is not None:
            self._lease.renew(until, since=0)
        self._egress.extend_lease(until)

    def make_workspace(
        self,
        assignment: Assignment,
        site: Site,
        offered: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> AgentWorkspace:
        """Create the folders of an attempt; their paths are the same inside and outside a site."""
        with raise_if_exhausted(unbegun=assignment.kept is None):
            lease = assignment.lease
            own = self._spaces / assignment.task.space
            room = self._rooms / egress_name(lease.run_id, lease.epoch)
            resources = resources_folder(own, assignment.task.name)
            folders = (room, room / "files", own / "work", own / "home", room / "tmp", resources)
            for folder in folders:
                make_folder(folder)
            files, work, home, tmp, task_files = (str(folder.absolute()) for folder in folders[1:])
            shelf = artifacts_folder(own, lease.run_id)
            is_script = assignment.task.kind is TaskKind.SCRIPT
            offered, gateway_variables = self._egress.environment(assignment, site, offered)
            has_result = is_script or assignment.task.spec.get(GATE) is not None
            return AgentWorkspace(
                folder=files,
                cwd=working_folder(work, assignment.task.spec.get("folder")),
                home=home,
                work=work,
                offered=offered if site.isolated else {**offered, "TMPDIR": tmp},
                ids={
                    **ids,
                    **gateway_variables,
                    "ROTA_ARTIFACTS": str(shelf),
                    "ROTA_RESOURCES": task_files,
                },
                isolated=site.isolated,
                in_image=site.image is not None,
                python=self._python if site.image is None else "python3",
                artifacts=str(shelf),
                resources=task_files,
                result=str(shelf / result_name(lease.epoch)) if has_result else None,
                config=read_config(resources) if is_script else None,
                egress=assignment.task.kind is TaskKind.AGENT,
                writes=self._egress.can_write(assignment),
                redactor=self._redactor,
            )

    def read_result(self, assignment: Assignment) -> bytes | None:
        """Return the result file of an attempt, at most one byte more than allowed."""
        lease, space = assignment.lease, assignment.task.space
        name = result_name(lease.epoch)
        return self._artifacts.read_artifact(space, lease.run_id, name, MAX_RESULT_BYTES + 1)

    def make_mailbox(self, kept: KeptAttempt) -> str:
        """Create the mailbox of a launch if needed, and return its path."""
        attempt = self._mailboxes / egress_name(kept.run_id, kept.epoch)
        with raise_if_exhausted(unbegun=not kept.launches):
            return make_mailbox(attempt, _state_name(kept.nonce))

    async def start(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> None:
        """Start the keeper of an attempt, at most once; its outcome is found in its files."""
        if self._lock < 0:
            raise Unavailable("this process has not acquired the home")
        self._events.register(attempt_folder_name(kept))
        try:
            with raise_if_exhausted(unbegun=not kept.launches):
                spec = await self._make_spec(kept, room, site, role, prepared, bounds)
                await asyncio.to_thread(self._start, kept, spec)
        except BaseException:
            self._events.unregister(attempt_folder_name(kept))
            raise

    async def _make_spec(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> KeeperSpec:
        for file in prepared.files:
            replace_file(Path(room.folder) / file.name, file.content)
        if room.artifacts is not None and not room.settled:
            shelf, anew = Path(room.artifacts), kept.epoch == 1 and kept.launches == 0
            await asyncio.to_thread(self._artifacts.prepare, shelf, kept.epoch, anew=anew)
        state = Path(room.folder).parent / _state_name(kept.nonce)
        state.mkdir(mode=PRIVATE)
        if site.isolated:
            await asyncio.to_thread(self._folder_locks.acquire, state, room.cwd)
        executor = self._executor(kept.executor)
        egress = await self._egress.open_sockets(kept, room, site)
        place = (attempt_folder_name(kept), str(state), room, site, role)
        limits = (
            limits_for_isolated(bounds, executor.holds(isolated=True)) if site.isolated else bounds
        )
        spec = execution_spec(*place, limits, egress=egress, desk=self._desk)
        return executor.wrap(find_program(prepared.command, room), spec)

    def _executor(self, name: str) -> Executor:
        try:
            return self._executors[name]
        except KeyError:
            known = ", ".join(sorted(self._executors))
            raise Unavailable(f"unknown executor {name!r}: there are {known}") from None

    def _start(self, kept: KeptAttempt, spec: KeeperSpec) -> None:
        if self._lease is None or self._lease.until < boot_time():
            return  # after such a long suspension the run may belong to another worker
        if self._program is None:
            self._program = build_keeper(self._folder / "program")
        start_keeper(
            self._attempt_path(spec.name),
            spec,
            _identity(kept),
            self._program,
            executor=kept.executor,
            epoch=self._epoch,
            lease=self._lease,
            wake=self._wake,
        )

    def exit_record(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return the exit record of an attempt, None while it runs; conclude its end if needed."""
        name = attempt_folder_name(kept)
        kill_marked, reap_keeper = self._cleanup.kill_marked, self._cleanup.reap_keeper
        exit_record = find_exit_record(
            self._attempt_path(name),
            _identity(kept),
            kill_marked=kill_marked,
            reap_keeper=reap_keeper,
        )
        if exit_record is not None:
            self._events.unregister(name)
        return exit_record

    def other_launches(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Return the other launches of an attempt, by the names of their folders."""
        first = attempt_folder_name(replace(kept, nonce=""))
        names = sorted(path.name for path in self._attempts.glob(f"{first}*"))
        others = (replace(kept, nonce=name.removeprefix(first)) for name in names)
        return [other for other in others if other.nonce != kept.nonce]

    def has_written(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to the outside; None if that is unknown."""
        return self._egress.has_written(kept)

    def read_output(
        self, kept: KeptAttempt, stream: OutputStream, offset: int, limit: int
    ) -> bytes:
        """Return bytes of an output stream from an offset."""
        return read_spool(
            self._attempt_path(attempt_folder_name(kept)), stream.value, offset, limit
        )

    def read_input(self, kept: KeptAttempt) -> tuple[bytes, bool]:
        """Return all input of a program, and whether its input was closed."""
        return read_input(self._attempt_path(attempt_folder_name(kept)))

    def write_input(
        self, kept: KeptAttempt, offset: int, data: bytes, *, end: bool = False
    ) -> None:
        """Write input of a program at an offset; with `end`, close it afterwards."""
        write_input(self._attempt_path(attempt_folder_name(kept)), offset, data, end=end)

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to stop its tree: SIGTERM, and SIGKILL after the grace period."""
        folder = self._attempt_path(attempt_folder_name(kept))
        if not folder.exists():
            return
        try:
            request_cancel(folder, self._epoch, grace_seconds, why)
        except OSError as error:
            if (
                not stop_keeper(read_keeper(folder, _identity(kept)))
                and error.errno in OUT_OF_FILES
            ):
                raise

    async def clean_up(self, kept: KeptAttempt) -> None:
        """Clean up what outlives a process tree; raise Unavailable while something is left."""
        await self._cleanup_calls.run(kept.executor, self._clean_up, kept)

    def _clean_up(self, kept: KeptAttempt) -> None:
        name = attempt_folder_name(kept)
        self._executor(kept.executor).sweep(KeeperSpec(name=name, command=Program(argv=())))
        (self._attempt_path(name) / UNSWEPT).unlink(missing_ok=True)

    async def find_uncleaned(self, known: Sequence[KeptAttempt]) -> Sequence[KeptAttempt]:
        """Return ended attempts that are unknown to the store and not cleaned up."""
        return await asyncio.to_thread(find_uncleaned, self._folder, self.home, known)

    def capture_pane(self, kept: KeptAttempt) -> str | None:
        """Return the content of an attempt's terminal, or None; takes a moment."""
        executor: object = self._executors.get(kept.executor)
        if not isinstance(executor, TerminalExecutor):
            return None
        room = self._rooms / egress_name(kept.run_id, kept.epoch)
        try:
            return executor.capture(str(room / _state_name(kept.nonce)))
        except (OSError, Unavailable):
            return None

    async def delete(self, kept: KeptAttempt) -> None:
        """Delete the folder of an ended attempt that is recorded."""
        self._events.unregister(attempt_folder_name(kept))
        await self._egress.revoke(kept)
        await asyncio.to_thread(self._delete, kept)

    def _delete(self, kept: KeptAttempt) -> None:
        room = egress_name(kept.run_id, kept.epoch)
        self._folder_locks.release(self._rooms / room)
        for folder in (self._attempt_path(attempt_folder_name(kept)), self._mailboxes / room):
            delete_tree(folder)

    async def delete_old(self, known: Sequence[KeptAttempt]) -> None:
        """Delete old folders of attempts that later ones have replaced."""
        self._egress.revoke_others(known)
        if self.boot_time() >= self._delete_old_at:
            self._delete_old_at = self.boot_time() + DELETE_OLD_SECONDS
            await asyncio.to_thread(remove_old_folders, self._folder, known, self._folder_locks)

    async def take_sample(self, kept: KeptAttempt) -> AttemptSample:
        """Return a sample of an attempt without disturbing it."""
        place, rang = (
            self._attempt_path(attempt_folder_name(kept)),
            self._events.last_event_at(attempt_folder_name(kept)),
        )
        sign = partial(take_sample, kept, place, _identity(kept), rang)
        return await self._sample_calls.run(kept.executor, lambda: sign(self.capture_pane(kept)))

    def wake(self, kept: KeptAttempt, *, for_good: bool) -> bool:
        """Wake an unresponsive keeper, or kill it `for_good`; not if it waits for a disk."""
        keeper = read_keeper(self._attempt_path(attempt_folder_name(kept)), _identity(kept))
        if not is_alive(keeper.pid, keeper.pid_started) or is_in_disk_sleep(keeper.pid):
            return False
        return kill_keeper(keeper) if for_good else wake_keeper(keeper)

    async def wait_for_change(self, kept: KeptAttempt, seconds: float) -> None:
        """Wait until a keeper reports something new or ends, at most `seconds`."""
        name = attempt_folder_name(kept)
        if not self._events.is_watched(name):
            keeper = read_keeper(self._attempt_path(name), _identity(kept))
            if not self._events.watch(name, keeper.pid, keeper.pid_started):
                seconds = min(seconds, UNWATCHED_SECONDS)
        await self._events.wait(name, seconds)


def _state_name(nonce: str) -> str:
    return nonce[:STATE_NAME]


def _identity(kept: KeptAttempt) -> KeeperIdentity:
    return KeeperIdentity(name=attempt_folder_name(kept), boot=kept.boot, nonce=kept.nonce)


ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


class EgressRouter:
    """Gives attempts egress: through the operator's socket or through the gateway."""

    def __init__(
        self, egress: EgressSocket | None, gateway: EgressGateway | None, attempts: Path
    ) -> None:
        self._egress = egress
        self._gateway = gateway
        self._attempts = attempts

    def environment(
        self, assignment: Assignment, site: Site, offered: Mapping[str, str]
    ) -> tuple[Mapping[str, str], dict[str, str]]:
        """Return the variables an attempt may choose from, and those of its egress.

        The grant of an adopted attempt is renewed.
        """
        asked = site.network is NetworkAccess.EGRESS
        if self._gateway is None:
            return offered, self._outlet_variable(site)
        offered = self._gateway.filter_environment(offered, isolated=site.isolated)
        if assignment.task.kind is not TaskKind.AGENT and not asked:
            return offered, {}
        ids = (assignment.lease.run_id, assignment.lease.epoch)
        name, own_loopback, space = egress_name(*ids), site.own_loopback, assignment.task.space
        scope = write_scope(assignment.lease)
        variables = self._gateway.environment(
            name, ids, space, offered, scope, own_loopback=own_loopback
        )
        if variables and assignment.kept is not None:
            self._gateway.readmit(
                name, ids, self._exit_file(assignment.kept), own_loopback=own_loopback
            )
        return offered, {**self._outlet_variable(site), **variables}

    def _outlet_variable(self, site: Site) -> dict[str, str]:
        if site.network is not NetworkAccess.EGRESS or self._egress is None:
            return {}
        return {"ROTA_EGRESS_ADDRESS": f"127.0.0.1:{self._egress.port}"}

    async def open_sockets(
        self, kept: KeptAttempt, room: AgentWorkspace, site: Site
    ) -> EgressSocket | None:
        """Return the egress socket to pass to a program, if its task has one."""
        asked, own_loopback = site.network is NetworkAccess.EGRESS, site.own_loopback
        if self._gateway is not None and TOKEN in room.ids:
            ids = (kept.run_id, kept.epoch)
            ended = self._exit_file(kept)
            socket = await self._gateway.admit(
                egress_name(*ids), ids, ended, own_loopback=own_loopback
            )
            port = int(room.ids[ADDRESS].rpartition(":")[2])
            return EgressSocket(socket=socket, port=port, alone=True) if own_loopback else None
        if asked and self._egress is None:
            raise Unavailable(NO_EGRESS)
        return self._egress if site.isolated and (asked or room.egress) else None

    def can_write(self, assignment: Assignment) -> bool:
        """Whether an attempt could write to the outside."""
        lease = assignment.lease
        name = egress_name(lease.run_id, lease.epoch)
        return self._gateway is not None and self._gateway.can_write(name)

    def has_written(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to the outside; None if that is unknown."""
        name = egress_name(kept.run_id, kept.epoch)
        return None if self._gateway is None else self._gateway.has_written(name)

    def extend_lease(self, until: float) -> None:
        """Extend all grants to an instant of boot time."""
        if self._gateway is not None:
            self._gateway.extend_lease(until)

    def revoke_others(self, known: Sequence[KeptAttempt]) -> None:
        """Revoke the grants of all attempts except those that are current."""
        if self._gateway is not None:
            living = [kept for kept in known if kept.current]
            self._gateway.revoke_others([egress_name(kept.run_id, kept.epoch) for kept in living])

    async def revoke(self, kept: KeptAttempt) -> None:
        """Revoke the grant of an attempt."""
        if self._gateway is not None:
            await self._gateway.revoke(egress_name(kept.run_id, kept.epoch))

    def close(self) -> None:
        """Close the connection to the gateway."""
        if self._gateway is not None:
            self._gateway.close()

    def _exit_file(self, kept: KeptAttempt) -> str:
        """Return the file that exists once an attempt has ended."""
        return str((self._attempts / attempt_folder_name(kept) / "exit").absolute())


EXHAUSTED = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)


@contextmanager
def raise_if_exhausted(*, unbegun: bool) -> Iterator[None]:
    """Turn lack of disk, files or memory into Exhausted, unless a program has been started."""
    try:
        yield
    except OSError as error:
        if not unbegun or error.errno not in EXHAUSTED:
            raise
        raise Exhausted(f"this machine has run out: {error.strerror}") from error


Result = TypeVar("Result")
Args = TypeVarTuple("Args")

MAX_CONCURRENT = 8
"""Concurrent calls per kind; others wait."""


class BlockingCalls:
    """Runs calls that may hang in threads, so that only calls of the same kind are delayed."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(
            lambda: asyncio.Semaphore(MAX_CONCURRENT)
        )

    async def run(self, asked: str, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Run a function in a thread of its own and return its result."""
        async with self._turns[asked]:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"rota-{asked}")
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, work, *args)
            finally:
                thread.shutdown(wait=False)
