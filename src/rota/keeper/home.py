"""All keepers of a home, as attempts use them."""

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
from rota.keeper.build import Interpreter, KeeperBinary, build
from rota.keeper.cleanup import UNSWEPT, CleanupThread, remove_old_folders, unswept
from rota.keeper.client import (
    NANOSECONDS,
    KeeperFifo,
    KeeperIdentity,
    KeeperLease,
    boot_time,
    cancel,
    kill_keeper,
    look,
    peek,
    read_input,
    read_spool,
    start,
    stop_keeper,
    wake_keeper,
    write_input,
)
from rota.keeper.monitor import (
    UNWATCHED_SECONDS,
    KeeperEvents,
    is_alive,
    take_sample,
    waits_for_a_disk,
)
from rota.keeper.protocol import boot_id
from rota.keeper.workspace import (
    FolderLocks,
    LocalArtifactStore,
    attempt_folder_name,
    delete,
    egress_name,
    execution_spec,
    find_program,
    limits_for_isolated,
    make_box,
    make_folder,
    read_config,
    resources_of,
    result_name,
    shelf_of,
    working_folder,
    write_anew,
)
from rota.keeper.workspace import (
    attempt_folder_name as _name,
)
from rota.keeper.workspace import (
    egress_name as _room_name,
)
from rota.model.attempts import MAX_RESULT_BYTES, Assignment, ExitRecord, KeptAttempt, OutputStream
from rota.model.heartbeats import AttemptSample
from rota.model.programs import NetworkAccess, Program, ResourceLimits, Site
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.ports.agent import AgentWorkspace, PreparedProgram, Redaction
from rota.ports.executor import (
    GUARDED,
    NO_OUTLET,
    EgressGateway,
    EgressSocket,
    Executor,
    KeeperSpec,
    TerminalExecutor,
)
from rota.rules.checks import GATE
from rota.rules.effects import write_scope
from rota.rules.task_spec import has_own_loopback

CONTAINER = "container"
PRIVATE = 0o700
MAX_PLACES = 1024
"""Of attempts that are looked at again and again; their paths are put together once."""
TIDY_SECONDS = 600.0
"""How often what nobody knows any more is looked for."""
STATE_NAME = 8
"""How long the names of state folders are: the path of a socket in one must be short."""
NO_MORE_FILES = frozenset({errno.EMFILE, errno.ENFILE})


def states_of(home: Path, run_id: int, epoch: int) -> list[Path]:
    """Return the state folders of an attempt in its home, one for each try, the newest last."""
    room = home / "keepers" / "rooms" / _room_name(run_id, epoch)
    return sorted(room.glob("[0-9a-f]" * STATE_NAME), key=lambda path: path.stat().st_mtime_ns)


class LocalKeeperHome:
    """The keepers of one home folder; only one process has it at a time."""

    def __init__(
        self,
        folder: Path,
        host: str,
        executors: Mapping[str, Executor],
        outlet: EgressSocket | None = None,
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
        self._place = lru_cache(MAX_PLACES)(self._attempts.joinpath)
        self._way_out = EgressRouter(outlet, gateway, self._attempts)
        self.home = f"{host}:{self._folder.absolute()}"
        self._claims = FolderLocks(self._rooms, self._spaces, GUARDED)
        self._bells = KeeperEvents()
        self._aside = CleanupThread(self._bells.ring)
        self._sweeps, self._looks = BlockingCalls(), BlockingCalls()
        self._lock = -1
        self._epoch = 0
        self._tidy_at = -math.inf
        self._program: KeeperBinary | None = None
        self._lease: KeeperLease | None = None
        self._wake: KeeperFifo | None = None

    def take(self) -> bool:
        """Take the home for this process; false if another one has it."""
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
        asyncio.get_running_loop().add_reader(self._wake.fileno(), self._hear)
        return True

    def close(self) -> None:
        """Let go of the home; its keepers go on until their lease ends."""
        self._way_out.close()
        self._bells.close()
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

    def _hear(self) -> None:
        for name in self._wake.names() if self._wake is not None else ():
            self._bells.ring(name)

    def moment(self) -> float:
        """Return the seconds since this machine was started, sleep included."""
        return boot_time() / NANOSECONDS

    def promise(self, until: float) -> None:
        """Let every keeper go on until a moment."""
        if self._lease is not None:
            self._lease.renew(until, since=0)
        self._way_out.promise(until)

    def room(
        self,
        assignment: Assignment,
        site: Site,
        offered: Mapping[str, str],
        ids: Mapping[str, str],
    ) -> AgentWorkspace:
        """Return the folders of an attempt, which are made if they are not there.

        A path means the same inside walls as outside.
        """
        with raise_if_exhausted(unbegun=assignment.kept is None):
            lease = assignment.lease
            own = self._spaces / assignment.task.space
            room = self._rooms / _room_name(lease.run_id, lease.epoch)
            resources = resources_of(own, assignment.task.name)
            folders = (room, room / "files", own / "work", own / "home", room / "tmp", resources)
            for folder in folders:
                make_folder(folder)
            files, work, home, tmp, given = (str(folder.absolute()) for folder in folders[1:])
            shelf = shelf_of(own, lease.run_id)
            is_script = assignment.task.kind is TaskKind.SCRIPT
            offered, led = self._way_out.told(assignment, site, offered)
            leaves = is_script or assignment.task.spec.get(GATE) is not None
            return AgentWorkspace(
                folder=files,
                cwd=working_folder(work, assignment.task.spec.get("folder")),
                home=home,
                work=work,
                offered=offered if site.isolated else {**offered, "TMPDIR": tmp},
                ids={**ids, **led, "ROTA_ARTIFACTS": str(shelf), "ROTA_RESOURCES": given},
                isolated=site.isolated,
                in_image=site.executor == CONTAINER,
                python="python3" if site.executor == CONTAINER else self._python,
                artifacts=str(shelf),
                resources=given,
                result=str(shelf / result_name(lease.epoch)) if leaves else None,
                config=read_config(resources) if is_script else None,
                outlet=assignment.task.kind is TaskKind.AGENT,
                writes=self._way_out.writes(assignment),
                redactor=self._redactor,
            )

    def result(self, assignment: Assignment) -> bytes | None:
        """Return what an attempt left in its result file, one byte more than counts at most."""
        lease, space = assignment.lease, assignment.task.space
        name = result_name(lease.epoch)
        return self._artifacts.read(space, lease.run_id, name, MAX_RESULT_BYTES + 1)

    def mailbox(self, kept: KeptAttempt) -> str:
        """Return the mailbox of a try, which is made if it is not there: no other try has it."""
        attempt = self._mailboxes / _room_name(kept.run_id, kept.epoch)
        with raise_if_exhausted(unbegun=not kept.tries):
            return make_box(attempt, _state_name(kept.nonce))

    async def start(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> None:
        """Start the keeper of an attempt, at most once; how that went is seen by looking."""
        if self._lock < 0:
            raise Unavailable("this process does not have the home")
        self._bells.hang(_name(kept))
        try:
            with raise_if_exhausted(unbegun=not kept.tries):
                spec = await self._furnished(kept, room, site, role, prepared, bounds)
                await asyncio.to_thread(self._start, kept, spec)
        except BaseException:
            self._bells.take_down(_name(kept))
            raise

    async def _furnished(
        self,
        kept: KeptAttempt,
        room: AgentWorkspace,
        site: Site,
        role: SpaceRole,
        prepared: PreparedProgram,
        bounds: ResourceLimits,
    ) -> KeeperSpec:
        for file in prepared.files:
            write_anew(Path(room.folder) / file.name, file.content)
        if room.artifacts is not None and not room.settled:
            shelf, anew = Path(room.artifacts), kept.epoch == 1 and kept.tries == 0
            await asyncio.to_thread(self._artifacts.prepare, shelf, kept.epoch, anew=anew)
        state = Path(room.folder).parent / _state_name(kept.nonce)
        state.mkdir(mode=PRIVATE)
        if site.isolated:
            await asyncio.to_thread(self._claims.make, state, room.cwd)
        executor = self._executor(kept.executor)
        outlet = await self._way_out.handed(kept, room, site)
        named = (_name(kept), str(state), room, site, role)
        bounded = (
            limits_for_isolated(bounds, executor.holds(isolated=True)) if site.isolated else bounds
        )
        given = execution_spec(*named, bounded, outlet=outlet, desk=self._desk)
        return executor.wrap(find_program(prepared.command, room), given)

    def _executor(self, name: str) -> Executor:
        try:
            return self._executors[name]
        except KeyError:
            known = ", ".join(sorted(self._executors))
            raise Unavailable(f"there is no executor {name!r} here: there are {known}") from None

    def _start(self, kept: KeptAttempt, spec: KeeperSpec) -> None:
        if self._lease is None or self._lease.until < boot_time():
            return  # who was away for so long may not be this run's any more
        if self._program is None:
            self._program = build(self._folder / "program")
        start(
            self._place(spec.name),
            spec,
            _identity(kept),
            self._program,
            executor=kept.executor,
            epoch=self._epoch,
            lease=self._lease,
            wake=self._wake,
        )

    def look(self, kept: KeptAttempt) -> ExitRecord | None:
        """Return how an attempt ended, None while it goes on; what is left of it is ended first."""
        name = _name(kept)
        sweep, reap = self._aside.sweep, self._aside.reap
        ending = look(self._place(name), _identity(kept), sweep=sweep, reap=reap)
        if ending is not None:
            self._bells.take_down(name)
        return ending

    def beside(self, kept: KeptAttempt) -> Sequence[KeptAttempt]:
        """Return what else was ever started for an attempt, by the names of its folders."""
        first = _name(replace(kept, nonce=""))
        names = sorted(path.name for path in self._attempts.glob(f"{first}*"))
        others = (replace(kept, nonce=name.removeprefix(first)) for name in names)
        return [other for other in others if other.nonce != kept.nonce]

    def wrote(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return self._way_out.wrote(kept)

    def read(self, kept: KeptAttempt, stream: OutputStream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset."""
        return read_spool(self._place(_name(kept)), stream.value, offset, most)

    def input(self, kept: KeptAttempt) -> tuple[bytes, bool]:
        """Return all that a program was given to read, and whether that has ended."""
        return read_input(self._place(_name(kept)))

    def write(self, kept: KeptAttempt, offset: int, data: bytes, *, end: bool = False) -> None:
        """Put bytes at an offset of what a program reads; with `end` there is no more."""
        write_input(self._place(_name(kept)), offset, data, end=end)

    def cancel(self, kept: KeptAttempt, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree: politely, then for certain."""
        folder = self._place(_name(kept))
        if not folder.exists():
            return
        try:
            cancel(folder, self._epoch, grace_seconds, why)
        except OSError as error:
            if not stop_keeper(peek(folder, _identity(kept))) and error.errno in NO_MORE_FILES:
                raise

    async def sweep(self, kept: KeptAttempt) -> None:
        """End what outlives the tree of an attempt; raise Unavailable while something is left."""
        await self._sweeps.do(kept.executor, self._sweep, kept)

    def _sweep(self, kept: KeptAttempt) -> None:
        name = _name(kept)
        self._executor(kept.executor).sweep(KeeperSpec(name=name, command=Program(argv=())))
        (self._place(name) / UNSWEPT).unlink(missing_ok=True)

    async def unswept(self, known: Sequence[KeptAttempt]) -> Sequence[KeptAttempt]:
        """Return what has ended, is not known any more, and may have left something behind."""
        return await asyncio.to_thread(unswept, self._folder, self.home, known)

    def pane(self, kept: KeptAttempt) -> str | None:
        """Return what the pane of an attempt shows, None where none answers; takes a moment."""
        executor: object = self._executors.get(kept.executor)
        if not isinstance(executor, TerminalExecutor):
            return None
        room = self._rooms / _room_name(kept.run_id, kept.epoch)
        try:
            return executor.capture(str(room / _state_name(kept.nonce)))
        except (OSError, Unavailable):
            return None

    async def forget(self, kept: KeptAttempt) -> None:
        """Delete the folder of an attempt that has ended and is on record."""
        self._bells.take_down(_name(kept))
        await self._way_out.dismiss(kept)
        await asyncio.to_thread(self._forget, kept)

    def _forget(self, kept: KeptAttempt) -> None:
        room = _room_name(kept.run_id, kept.epoch)
        self._claims.drop(self._rooms / room)
        for folder in (self._place(_name(kept)), self._mailboxes / room):
            delete(folder)

    async def tidy(self, known: Sequence[KeptAttempt]) -> None:
        """Delete what has ended long ago and is not known any more: a later attempt replaced it."""
        self._way_out.keep(known)
        if self.moment() >= self._tidy_at:
            self._tidy_at = self.moment() + TIDY_SECONDS
            await asyncio.to_thread(remove_old_folders, self._folder, known, self._claims)

    async def sign(self, kept: KeptAttempt) -> AttemptSample:
        """Return what can be seen of an attempt without disturbing it."""
        place, rang = self._place(_name(kept)), self._bells.rang(_name(kept))
        sign = partial(take_sample, kept, place, _identity(kept), rang)
        return await self._looks.do(kept.executor, lambda: sign(self.pane(kept)))

    def rouse(self, kept: KeptAttempt, *, for_good: bool) -> bool:
        """Wake a silent keeper, or end it for good; one that waits for a disk is left alone."""
        seen = peek(self._place(_name(kept)), _identity(kept))
        if not is_alive(seen.pid, seen.pid_started) or waits_for_a_disk(seen.pid):
            return False
        return kill_keeper(seen) if for_good else wake_keeper(seen)

    async def rung(self, kept: KeptAttempt, seconds: float) -> None:
        """Wait until the keeper has something new or has ended, at most so long."""
        name = _name(kept)
        if not self._bells.watches(name):
            seen = peek(self._place(name), _identity(kept))
            if not self._bells.watch(name, seen.pid, seen.pid_started):
                seconds = min(seconds, UNWATCHED_SECONDS)
        await self._bells.rung(name, seconds)


def _state_name(nonce: str) -> str:
    return nonce[:STATE_NAME]


def _identity(kept: KeptAttempt) -> KeeperIdentity:
    return KeeperIdentity(name=_name(kept), boot=kept.boot, nonce=kept.nonce)


ADDRESS, TOKEN = "ROTA_GATEWAY_URL", "ROTA_GATEWAY_TOKEN"


class EgressRouter:
    """Where programs are led: to an outlet of the operator's, or to the gateway."""

    def __init__(
        self, outlet: EgressSocket | None, gateway: EgressGateway | None, attempts: Path
    ) -> None:
        self._outlet = outlet
        self._gateway = gateway
        self._attempts = attempts

    def told(
        self, assignment: Assignment, site: Site, offered: Mapping[str, str]
    ) -> tuple[Mapping[str, str], dict[str, str]]:
        """Return what an attempt may choose from of the environment, and what it is told beside.

        One that is carried on stays let in.
        """
        asked = site.network is NetworkAccess.OUTLET
        if self._gateway is None:
            return offered, self._told(site)
        offered = self._gateway.offered(offered, isolated=site.isolated)
        if assignment.task.kind is not TaskKind.AGENT and not asked:
            return offered, {}
        ids = (assignment.lease.run_id, assignment.lease.epoch)
        name, walled, space = egress_name(*ids), has_own_loopback(site), assignment.task.space
        scope = write_scope(assignment.lease)
        told = self._gateway.told(name, ids, space, offered, scope, walled=walled)
        if told and assignment.kept is not None:
            self._gateway.carry_on(name, ids, self._ended(assignment.kept), walled=walled)
        return offered, {**self._told(site), **told}

    def _told(self, site: Site) -> dict[str, str]:
        if site.network is not NetworkAccess.OUTLET or self._outlet is None:
            return {}
        return {"ROTA_OUTLET_ADDRESS": f"127.0.0.1:{self._outlet.port}"}

    async def handed(
        self, kept: KeptAttempt, room: AgentWorkspace, site: Site
    ) -> EgressSocket | None:
        """Return the socket that a program is handed: if its task asks for it, or as usual."""
        asked, walled = site.network is NetworkAccess.OUTLET, has_own_loopback(site)
        if self._gateway is not None and TOKEN in room.ids:
            ids = (kept.run_id, kept.epoch)
            ended = self._ended(kept)
            door = await self._gateway.admit(egress_name(*ids), ids, ended, walled=walled)
            port = int(room.ids[ADDRESS].rpartition(":")[2])
            return EgressSocket(socket=door, port=port, alone=True) if walled else None
        if asked and self._outlet is None:
            raise Unavailable(NO_OUTLET)
        return self._outlet if site.isolated and (asked or room.outlet) else None

    def writes(self, assignment: Assignment) -> bool:
        """Whether an attempt could write to somewhere outside."""
        lease = assignment.lease
        name = egress_name(lease.run_id, lease.epoch)
        return self._gateway is not None and self._gateway.writes(name)

    def wrote(self, kept: KeptAttempt) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        name = egress_name(kept.run_id, kept.epoch)
        return None if self._gateway is None else self._gateway.wrote(name)

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""
        if self._gateway is not None:
            self._gateway.promise(until)

    def keep(self, known: Sequence[KeptAttempt]) -> None:
        """Let nobody ask but the attempts that go on."""
        if self._gateway is not None:
            living = [kept for kept in known if kept.current]
            self._gateway.keep([egress_name(kept.run_id, kept.epoch) for kept in living])

    async def dismiss(self, kept: KeptAttempt) -> None:
        """Let an attempt in no more."""
        if self._gateway is not None:
            await self._gateway.dismiss(egress_name(kept.run_id, kept.epoch))

    def close(self) -> None:
        """Let go of the gateway."""
        if self._gateway is not None:
            self._gateway.close()

    def _ended(self, kept: KeptAttempt) -> str:
        """Return the file that says that an attempt has ended."""
        return str((self._attempts / attempt_folder_name(kept) / "exit").absolute())


WANTING = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM}
)


@contextmanager
def raise_if_exhausted(*, unbegun: bool) -> Iterator[None]:
    """Raise Exhausted where a machine lacks something, if no program of an attempt has begun."""
    try:
        yield
    except OSError as error:
        if not unbegun or error.errno not in WANTING:
            raise
        raise Exhausted(f"this machine has run out: {error.strerror}") from error


Result = TypeVar("Result")
Args = TypeVarTuple("Args")

AT_ONCE = 8
"""Who asks the same; others wait."""


class BlockingCalls:
    """Does what may hang; it holds up nobody but who asks the same."""

    def __init__(self) -> None:
        self._turns: dict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(AT_ONCE))

    async def do(self, asked: str, work: Callable[[*Args], Result], *args: *Args) -> Result:
        """Return what some work comes to that asks something; its thread ends with it."""
        async with self._turns[asked]:
            thread = ThreadPoolExecutor(1, thread_name_prefix=f"rota-{asked}")
            try:
                return await asyncio.get_running_loop().run_in_executor(thread, work, *args)
            finally:
                thread.shutdown(wait=False)
