"""Where the parts are put together: a store from settings, a crew on it, and how that ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from rota.errors import NotFound, Unavailable
from rota.executors.inprocess.runner import InProcess
from rota.faultpoints import arm
from rota.flow.align import align
from rota.flow.deliver import deliver
from rota.flow.plan import plan
from rota.flow.rescue import expire
from rota.model.spaces import Limit, Quota, Role, Scope
from rota.model.tasks import Pool
from rota.model.views import Claimed
from rota.ports.mailboxes import Mailboxes
from rota.ports.passes import Passes
from rota.ports.runner import Runner
from rota.ports.store import Store
from rota.runtime.clock import SystemClock
from rota.runtime.crew import Crew, CrewSettings
from rota.runtime.zone_data import zone_data_mark
from rota.wiring.addresses import store_at
from rota.wiring.channels import every_channel
from rota.wiring.discretion import discreet
from rota.wiring.gauge import Gauge
from rota.wiring.identity import this_process
from rota.wiring.keeping import kept_work
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings

MAIN = "main"
LOCAL_THREAD = "cli:default"
EVERY_ROLE = frozenset({"planner", "worker", "postman", "caretaker"})
WORKER_ONLY = frozenset({"worker"})
MOST_PLANNINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """What a single pass did."""

    schedules: int
    processed: int
    sent: int


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Store]:
    """Open the store that settings name, with the space `main` in it, and close it again."""
    arm(settings.fault)
    _make_home(settings)
    store = store_at(settings.store, SystemClock())
    await store.open()
    try:
        await _make_main(store, settings.timezone)
        yield store
    finally:
        await store.close()


def unopened(settings: Settings) -> Store:
    """Return the store that settings name as it is, with a home to live in."""
    _make_home(settings)
    return store_at(settings.store, SystemClock())


@asynccontextmanager
async def looked_at(settings: Settings) -> AsyncIterator[Store]:
    """Open the store that settings name for reading alone, and close it again."""
    store = store_at(settings.store, SystemClock())
    await store.look()
    try:
        yield store
    finally:
        await store.close()


def _make_home(settings: Settings) -> None:
    """Create the home folder where the store lives in it; any other folder must exist."""
    if settings.store.startswith(f"sqlite:///{settings.home}"):
        make_home(settings)


def make_home(settings: Settings) -> None:
    """Create the home folder, which only its owner may look into."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        message = f"cannot create the home folder {settings.home}: {fault.strerror}"
        raise Unavailable(message) from fault


async def _make_main(store: Store, timezone: str) -> None:
    try:
        await store.find_space(MAIN)
    except NotFound:
        space = await store.add_space(MAIN, Role.MAIN, timezone)
        await store.add_thread(space.id, LOCAL_THREAD)


@contextmanager
def callables(settings: Settings) -> Iterator[Runner]:
    """Give a runner for callables named by their dotted path, and let go of its threads."""
    runner = InProcess({}, threads=settings.threads, allow_dotted=True)
    try:
        yield runner
    finally:
        runner.close()


def make_crew(
    settings: Settings,
    store: Store,
    runner: Runner,
    roles: frozenset[str] = EVERY_ROLE,
    passes: Passes | None = None,
    mailboxes: Mailboxes | None = None,
) -> Crew:
    """Return a crew for callables, agents and scripts, which sends messages to the log."""
    me = this_process()
    wanted = CrewSettings(
        worker_id=me.worker_id,
        home=f"{me.host}:{settings.home}",
        host=me.host,
        pid=me.pid,
        slots=settings.slots,
        drain=settings.drain,
        worker_ttl=settings.worker_ttl,
        keep=settings.retention,
        heartbeat=settings.heartbeat,
        roles=roles,
    )
    channels = every_channel()
    chance = random.SystemRandom()
    store = discreet(store, secrets_of(settings).redactor)
    kept = kept_work(settings, store, me.host, lambda: crew.worker.id, chance, passes, mailboxes)
    crew = Crew(
        store, [runner, kept], channels, wanted, SystemClock(), chance, keepers=kept, gauge=Gauge()
    )
    return crew


async def apply_limits(store: Store, settings: Settings) -> None:
    """Write the limits that settings name; a default only where no limit stands yet."""
    standing = {(limit.scope, limit.key) for limit in await store.list_limits()}
    wanted = [
        ("limit_foreground", Scope.POOL, Pool.FOREGROUND),
        ("limit_background", Scope.POOL, Pool.BACKGROUND),
        ("limit_space_foreground", Scope.SPACE, Pool.FOREGROUND),
        ("limit_space_background", Scope.SPACE, Pool.BACKGROUND),
        ("limit_space_queued", Scope.SPACE, Quota.QUEUED),
        ("limit_space_schedules", Scope.SPACE, Quota.SCHEDULES),
    ]
    limits = [
        Limit(scope=scope, key=key.value, cap=getattr(settings, name))
        for name, scope, key in wanted
        if name in settings.given or (scope, key.value) not in standing
    ]
    if limits:
        await store.set_limits(limits)


async def single_pass(
    settings: Settings, store: Store, most: int | None, mailboxes: Mailboxes | None = None
) -> Pass:
    """Plan what is due, run what is ready (at most `most` runs), deliver, and end."""
    rationed = _Rationed(store, most)
    with callables(settings) as runner:
        crew = make_crew(
            settings, cast("Store", rationed), runner, WORKER_ONLY, mailboxes=mailboxes
        )
        schedules, sent = await _pass(crew, store)
    return Pass(schedules=schedules, processed=rationed.given, sent=sent)


async def _pass(crew: Crew, store: Store) -> tuple[int, int]:
    chance = random.SystemRandom()
    await crew.start()
    await align(store, zone_data_mark())
    schedules = sent = 0
    for _ in range(MOST_PLANNINGS):
        planned = await plan(store)
        schedules += planned.schedules
        if planned.rest_micros != 0:
            break
    await expire(store, chance)
    async with asyncio.TaskGroup() as group:
        group.create_task(crew.run())
        crew.worker.wake()
        await crew.worker.idle()
        channels = every_channel()
        while count := await deliver(store, channels, crew.worker.id, chance):
            sent += count
        await crew.stop()
    return schedules, sent


class _Rationed:
    """A store that gives out a bounded number of runs, and is the same store otherwise."""

    def __init__(self, store: Store, most: int | None) -> None:
        self._store = store
        self._most = most
        self.given = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the store has
        return getattr(self._store, name)

    async def claim(
        self, worker: str, pools: Sequence[str], routes: Sequence[str], want: int
    ) -> Claimed:
        """Lease ready runs as long as there are any left to give."""
        left = want if self._most is None else min(want, self._most - self.given)
        if left <= 0:
            return Claimed(leases=[], tasks={}, answers={})
        claimed = await self._store.claim(worker, pools, routes, left)
        self.given += len(claimed.leases)
        return claimed


def database_exists(settings: Settings) -> bool:
    """Whether there is something to read; true for every store that is not a file."""
    if not settings.store.startswith("sqlite:///"):
        return True
    return Path(settings.store.removeprefix("sqlite:///")).expanduser().exists()
