"""The yard of a home: the folders of its keepers, the lease they read and the bell they ring."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from rota.errors import Unavailable
from rota.executors.kit.apart import Apart
from rota.executors.kit.artifacts import HomeArtifacts, result_name, shelf_of
from rota.executors.kit.aside import Aside
from rota.executors.kit.bells import UNWATCHED_SECONDS, Bells
from rota.executors.kit.boxes import delete, make_box, make_folder, write_anew
from rota.executors.kit.building import Program, build
from rota.executors.kit.cells import cell_of
from rota.executors.kit.claims import Claims
from rota.executors.kit.executor import GUARDED, Executor, Interpreter, Outlet, Windowed
from rota.executors.kit.gateways import Gateway
from rota.executors.kit.holding import walled
from rota.executors.kit.keeper.words import boot_id
from rota.executors.kit.keeping import (
    Identity,
    cancel,
    read_input,
    read_spool,
    start,
    write_input,
)
from rota.executors.kit.leading import WayOut
from rota.executors.kit.leading import attempt_name as _name
from rota.executors.kit.leading import room_name as _room_name
from rota.executors.kit.lease import NANOSECONDS, Lease, boot_time
from rota.executors.kit.probing import glance, kill_keeper, look, stop_keeper, wake_keeper
from rota.executors.kit.resources import read_config, resources_of
from rota.executors.kit.shortage import told_if_short
from rota.executors.kit.signs import is_alive, sign_of, waits_for_a_disk
from rota.executors.kit.spec import Spec
from rota.executors.kit.tidying import UNSWEPT, tidy, unswept
from rota.executors.kit.wake import Wake
from rota.executors.kit.working import found, inside
from rota.model.beats import Sign
from rota.model.keeping import Ending, Kept, Stream
from rota.model.outcomes import LONGEST_RESULT
from rota.model.programs import Bounds, Command
from rota.model.sites import Site
from rota.model.spaces import Role
from rota.model.tasks import TaskKind
from rota.ports.agent import Prepared, Redaction, Room
from rota.ports.runner import Assignment
from rota.rules.gates import GATE

CONTAINER = "container"
PRIVATE = 0o700
MOST_PLACES = 1024
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


class HomeYard:
    """The keepers of one home folder; only one process has it at a time."""

    def __init__(
        self,
        folder: Path,
        host: str,
        executors: Mapping[str, Executor],
        outlet: Outlet | None = None,
        desk: Outlet | None = None,
        gateway: Gateway | None = None,
        redactor: Redaction | None = None,
    ) -> None:
        self._redactor = redactor
        self._executors = executors
        self._desk = desk
        self.host = host
        self.boot = boot_id()
        self._spaces = folder.absolute() / "spaces"
        self._artifacts = HomeArtifacts(folder.absolute())
        self._python = Interpreter.running().program
        self._folder = folder / "keepers"
        self._attempts = self._folder / "attempts"
        self._place = lru_cache(MOST_PLACES)(self._attempts.joinpath)
        self._way_out = WayOut(outlet, gateway, self._attempts)
        self.home = f"{host}:{self._folder.absolute()}"
        self._claims = Claims(self._rooms, self._spaces, GUARDED)
        self._bells = Bells()
        self._aside = Aside(self._bells.ring)
        self._sweeps, self._looks = Apart(), Apart()
        self._lock = -1
        self._epoch = 0
        self._tidy_at = -math.inf
        self._program: Program | None = None
        self._lease: Lease | None = None
        self._wake: Wake | None = None

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
        self._lease = Lease(self._folder / "lease", self._epoch)
        self._wake = Wake(self._folder / "wake")
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
    ) -> Room:
        """Return the folders of an attempt, which are made if they are not there.

        A path means the same inside walls as outside.
        """
        with told_if_short(unbegun=assignment.kept is None):
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
            return Room(
                folder=files,
                cwd=inside(work, assignment.task.spec.get("folder")),
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
        return self._artifacts.read(space, lease.run_id, name, LONGEST_RESULT + 1)

    def mailbox(self, kept: Kept) -> str:
        """Return the mailbox of a try, which is made if it is not there: no other try has it."""
        attempt = self._mailboxes / _room_name(kept.run_id, kept.epoch)
        with told_if_short(unbegun=not kept.tries):
            return make_box(attempt, _state_name(kept.nonce))

    async def start(
        self, kept: Kept, room: Room, site: Site, role: Role, prepared: Prepared, bounds: Bounds
    ) -> None:
        """Start the keeper of an attempt, at most once; how that went is seen by looking."""
        if self._lock < 0:
            raise Unavailable("this process does not have the home")
        self._bells.hang(_name(kept))
        try:
            with told_if_short(unbegun=not kept.tries):
                spec = await self._furnished(kept, room, site, role, prepared, bounds)
                await asyncio.to_thread(self._start, kept, spec)
        except BaseException:
            self._bells.take_down(_name(kept))
            raise

    async def _furnished(
        self, kept: Kept, room: Room, site: Site, role: Role, prepared: Prepared, bounds: Bounds
    ) -> Spec:
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
        bounded = walled(bounds, executor.holds(isolated=True)) if site.isolated else bounds
        given = cell_of(*named, bounded, outlet=outlet, desk=self._desk)
        return executor.wrap(found(prepared.command, room), given)

    def _executor(self, name: str) -> Executor:
        try:
            return self._executors[name]
        except KeyError:
            known = ", ".join(sorted(self._executors))
            raise Unavailable(f"there is no executor {name!r} here: there are {known}") from None

    def _start(self, kept: Kept, spec: Spec) -> None:
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

    def look(self, kept: Kept) -> Ending | None:
        """Return how an attempt ended, None while it goes on; what is left of it is ended first."""
        name = _name(kept)
        sweep, reap = self._aside.sweep, self._aside.reap
        ending = look(self._place(name), _identity(kept), sweep=sweep, reap=reap)
        if ending is not None:
            self._bells.take_down(name)
        return ending

    def beside(self, kept: Kept) -> Sequence[Kept]:
        """Return what else was ever started for an attempt, by the names of its folders."""
        first = _name(replace(kept, nonce=""))
        names = sorted(path.name for path in self._attempts.glob(f"{first}*"))
        others = (replace(kept, nonce=name.removeprefix(first)) for name in names)
        return [other for other in others if other.nonce != kept.nonce]

    def wrote(self, kept: Kept) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""
        return self._way_out.wrote(kept)

    def read(self, kept: Kept, stream: Stream, offset: int, most: int) -> bytes:
        """Return what a stream has at an offset."""
        return read_spool(self._place(_name(kept)), stream.value, offset, most)

    def input(self, kept: Kept) -> tuple[bytes, bool]:
        """Return all that a program was given to read, and whether that has ended."""
        return read_input(self._place(_name(kept)))

    def write(self, kept: Kept, offset: int, data: bytes, *, end: bool = False) -> None:
        """Put bytes at an offset of what a program reads; with `end` there is no more."""
        write_input(self._place(_name(kept)), offset, data, end=end)

    def cancel(self, kept: Kept, grace_seconds: float, why: str) -> None:
        """Ask a keeper to end its tree: politely, then for certain."""
        folder = self._place(_name(kept))
        if not folder.exists():
            return
        try:
            cancel(folder, self._epoch, grace_seconds, why)
        except OSError as fault:
            if not stop_keeper(glance(folder, _identity(kept))) and fault.errno in NO_MORE_FILES:
                raise

    async def sweep(self, kept: Kept) -> None:
        """End what outlives the tree of an attempt; raise Unavailable while something is left."""
        await self._sweeps.do(kept.executor, self._sweep, kept)

    def _sweep(self, kept: Kept) -> None:
        name = _name(kept)
        self._executor(kept.executor).sweep(Spec(name=name, command=Command(argv=())))
        (self._place(name) / UNSWEPT).unlink(missing_ok=True)

    async def unswept(self, known: Sequence[Kept]) -> Sequence[Kept]:
        """Return what has ended, is not known any more, and may have left something behind."""
        return await asyncio.to_thread(unswept, self._folder, self.home, known)

    def pane(self, kept: Kept) -> str | None:
        """Return what the pane of an attempt shows, None where none answers; takes a moment."""
        executor: object = self._executors.get(kept.executor)
        if not isinstance(executor, Windowed):
            return None
        room = self._rooms / _room_name(kept.run_id, kept.epoch)
        try:
            return executor.capture(str(room / _state_name(kept.nonce)))
        except (OSError, Unavailable):
            return None

    async def forget(self, kept: Kept) -> None:
        """Delete the folder of an attempt that has ended and is on record."""
        self._bells.take_down(_name(kept))
        await self._way_out.dismiss(kept)
        await asyncio.to_thread(self._forget, kept)

    def _forget(self, kept: Kept) -> None:
        room = _room_name(kept.run_id, kept.epoch)
        self._claims.drop(self._rooms / room)
        for folder in (self._place(_name(kept)), self._mailboxes / room):
            delete(folder)

    async def tidy(self, known: Sequence[Kept]) -> None:
        """Delete what has ended long ago and is not known any more: a later attempt replaced it."""
        self._way_out.keep(known)
        if self.moment() >= self._tidy_at:
            self._tidy_at = self.moment() + TIDY_SECONDS
            await asyncio.to_thread(tidy, self._folder, known, self._claims)

    async def sign(self, kept: Kept) -> Sign:
        """Return what can be seen of an attempt without disturbing it."""
        place, rang = self._place(_name(kept)), self._bells.rang(_name(kept))
        sign = partial(sign_of, kept, place, _identity(kept), rang)
        return await self._looks.do(kept.executor, lambda: sign(self.pane(kept)))

    def rouse(self, kept: Kept, *, for_good: bool) -> bool:
        """Wake a silent keeper, or end it for good; one that waits for a disk is left alone."""
        seen = glance(self._place(_name(kept)), _identity(kept))
        if not is_alive(seen.pid, seen.pid_started) or waits_for_a_disk(seen.pid):
            return False
        return kill_keeper(seen) if for_good else wake_keeper(seen)

    async def rung(self, kept: Kept, seconds: float) -> None:
        """Wait until the keeper has something new or has ended, at most so long."""
        name = _name(kept)
        if not self._bells.watches(name):
            seen = glance(self._place(name), _identity(kept))
            if not self._bells.watch(name, seen.pid, seen.pid_started):
                seconds = min(seconds, UNWATCHED_SECONDS)
        await self._bells.rung(name, seconds)


def _state_name(nonce: str) -> str:
    return nonce[:STATE_NAME]


def _identity(kept: Kept) -> Identity:
    return Identity(name=_name(kept), boot=kept.boot, nonce=kept.nonce)
