"""Composition from settings: store, supervisor, attempts, gateway."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

from rota.app.addresses import store_at
from rota.app.environment import offered_variables, trust_environment
from rota.app.plugins import load_plugins
from rota.app.probes import LocalProbes
from rota.app.redaction import with_redaction
from rota.app.secrets import GATEWAY, LocalSecretStore, load_secrets
from rota.app.settings import Settings
from rota.app.sites import LocalSiteChecker
from rota.app.tokens import agent_api_socket
from rota.commands.context import AppContext, CommandLimits, DaemonControl
from rota.errors import NotFound, SqlRefused, Unavailable
from rota.executors.inprocess.runner import InProcessRunner
from rota.faultpoints import arm
from rota.flow.attempt.attempt import LaunchRetryPolicy
from rota.flow.attempt.runner import AttemptRunner
from rota.flow.deliver import deliver
from rota.flow.maintain import expire, prune_artifacts
from rota.flow.observe.status import WarningThresholds
from rota.flow.plan import align, plan
from rota.gateway.client import AttemptGateway, GatewayClient
from rota.gateway.upstreams import Upstream
from rota.keeper.build import Interpreter
from rota.keeper.home import LocalKeeperHome
from rota.keeper.workspace import LocalArtifactStore
from rota.model.programs import ResourceLimits
from rota.model.spaces import Limit, LimitScope, Quota, SpaceRole
from rota.model.tasks import Pool
from rota.model.views import ClaimResult
from rota.ports.channel import Channel
from rota.ports.clock import Random
from rota.ports.host import ArtifactStore, AttemptTokens, Probes
from rota.ports.mailbox import MailboxService
from rota.ports.runner import Runner
from rota.runtime.clock import SystemClock, zone_data_mark
from rota.runtime.heartbeats import ProcLoadGauge
from rota.runtime.supervisor import Supervisor, SupervisorSettings, this_process
from rota.store.claims import claim_runs, set_limits
from rota.store.sql_console import SqlConsole, SqlQuery, SqlResult
from rota.store.store import Database, HookedStore, Store
from rota.store.tasks import add_space, add_thread, find_space
from rota.store.views import list_limits

MAIN = "main"
LOCAL_THREAD = "cli:default"
EVERY_ROLE = frozenset({"planner", "worker", "sender", "maintenance"})
WORKER_ONLY = frozenset({"worker"})
MOST_PLANNINGS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PassResult:
    """The counts of a single pass."""

    schedules: int
    processed: int
    sent: int


@asynccontextmanager
async def open_store(settings: Settings) -> AsyncIterator[Database]:
    """Open the store of the settings, create the space `main`, and close the store afterwards."""
    arm(settings.fault)
    _make_home(settings)
    store = store_at(settings.store, SystemClock())
    await store.open()
    try:
        await _make_main(store, settings.timezone)
        yield store
    finally:
        await store.close()


def closed_store(settings: Settings) -> Database:
    """Return the store of the settings, not opened, with its home folder."""
    _make_home(settings)
    return store_at(settings.store, SystemClock())


@asynccontextmanager
async def open_store_read_only(settings: Settings) -> AsyncIterator[Database]:
    """Open the store of the settings for reading, and close it afterwards."""
    store = store_at(settings.store, SystemClock())
    await store.open_read_only()
    try:
        yield store
    finally:
        await store.close()


def _make_home(settings: Settings) -> None:
    """Create the home folder if the store is in it; any other folder must exist."""
    if settings.store.startswith(f"sqlite:///{settings.home}"):
        make_home(settings)


def make_home(settings: Settings) -> None:
    """Create the home folder with access for its owner only."""
    try:
        settings.home.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as fault:
        message = f"cannot create the home folder {settings.home}: {fault.strerror}"
        raise Unavailable(message) from fault


async def _make_main(store: Store, timezone: str) -> None:
    try:
        await store.read(find_space, MAIN)
    except NotFound:
        space = await store.write(add_space, MAIN, SpaceRole.MAIN, timezone)
        await store.write(add_thread, space.id, LOCAL_THREAD)


@contextmanager
def inprocess_runner(settings: Settings) -> Iterator[Runner]:
    """Yield a runner for callables by dotted path, and release its threads afterwards."""
    runner = InProcessRunner({}, threads=settings.threads, allow_dotted=True)
    try:
        yield runner
    finally:
        runner.close()


def make_supervisor(
    settings: Settings,
    store: Store,
    runner: Runner,
    roles: frozenset[str] = EVERY_ROLE,
    passes: AttemptTokens | None = None,
    mailboxes: MailboxService | None = None,
) -> Supervisor:
    """Return a supervisor for callables, agents and scripts, which sends messages to the log."""
    me = this_process()
    wanted = SupervisorSettings(
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
    channels = load_plugins(settings).channels
    chance = random.SystemRandom()
    store = with_redaction(store, load_secrets(settings).redactor)
    kept = make_attempt_runner(
        settings, store, me.host, lambda: crew.worker.id, chance, passes, mailboxes
    )
    crew = Supervisor(
        store,
        [runner, kept],
        channels,
        wanted,
        SystemClock(),
        chance,
        keepers=kept,
        gauge=ProcLoadGauge(),
    )
    return crew


async def apply_limits(store: Store, settings: Settings) -> None:
    """Write the limits of the settings; a default only if there is no limit."""
    standing = {(limit.scope, limit.key) for limit in await store.read(list_limits)}
    wanted = [
        ("limit_foreground", LimitScope.POOL, Pool.FOREGROUND),
        ("limit_background", LimitScope.POOL, Pool.BACKGROUND),
        ("limit_space_foreground", LimitScope.SPACE, Pool.FOREGROUND),
        ("limit_space_background", LimitScope.SPACE, Pool.BACKGROUND),
        ("limit_space_queued", LimitScope.SPACE, Quota.QUEUED),
        ("limit_space_schedules", LimitScope.SPACE, Quota.SCHEDULES),
    ]
    limits = [
        Limit(scope=scope, key=key.value, cap=getattr(settings, name))
        for name, scope, key in wanted
        if name in settings.given or (scope, key.value) not in standing
    ]
    if limits:
        await store.write(set_limits, limits)


async def single_pass(
    settings: Settings, store: Store, most: int | None, mailboxes: MailboxService | None = None
) -> PassResult:
    """Plan what is due, run at most `most` ready runs, deliver, and return."""
    quota = _RunQuota(most)
    with inprocess_runner(settings) as runner:
        limited = HookedStore(store, quota)
        crew = make_supervisor(settings, limited, runner, WORKER_ONLY, mailboxes=mailboxes)
        schedules, sent = await _pass(crew, store, load_plugins(settings).channels)
    return PassResult(schedules=schedules, processed=quota.claimed, sent=sent)


async def _pass(crew: Supervisor, store: Store, channels: Mapping[str, Channel]) -> tuple[int, int]:
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
        while count := await deliver(store, channels, crew.worker.id, chance):
            sent += count
        await crew.stop()
    return schedules, sent


class _RunQuota:
    """A hook that limits how many runs a store claims in total."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self.claimed = 0

    async def __call__(
        self,
        write: Callable[..., Awaitable[Any]],
        operation: Callable[..., Coroutine[Any, Any, Any]],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - the result of whatever operation
        """Run an operation; a claim gets what is left of the quota."""
        if operation is not claim_runs:
            return await write(operation, *args, **kwargs)
        worker, pools, routes, want = args
        left = want if self._most is None else min(want, self._most - self.claimed)
        if left <= 0:
            return ClaimResult(leases=[], tasks={}, answers={})
        claimed: ClaimResult = await write(operation, worker, pools, routes, left)
        self.claimed += len(claimed.leases)
        return claimed


def database_exists(settings: Settings) -> bool:
    """Return whether the database exists; always true for a store that is not a file."""
    if not settings.store.startswith("sqlite:///"):
        return True
    return Path(settings.store.removeprefix("sqlite:///")).expanduser().exists()


def make_artifact_store(settings: Settings) -> ArtifactStore:
    """Return the artifacts of this home."""
    return LocalArtifactStore(settings.home.absolute())


@cache
def probes_of(settings: Settings) -> Probes:
    """Return the probes of checks; a process has one object for all its attempts."""
    return LocalProbes(settings.home, inside=settings.check_internal_addresses)


def make_attempt_runner(
    settings: Settings,
    store: Store,
    host: str,
    holder: Callable[[], str],
    chance: Random,
    passes: AttemptTokens | None = None,
    mailboxes: MailboxService | None = None,
) -> AttemptRunner:
    """Return the runner of agents and scripts under the keepers of this home."""
    plugins, sites = load_plugins(settings), LocalSiteChecker(settings)
    secrets = load_secrets(settings)
    ways = make_attempt_gateway(settings, secrets)
    return AttemptRunner(
        store,
        LocalKeeperHome(
            settings.home,
            host,
            sites.executors,
            sites.egress,
            agent_api_socket(settings.home),
            ways,
            secrets.redactor,
        ),
        plugins.every_agent,
        holder,
        chance,
        executors=plugins.executors,
        usual_agent=plugins.agents.default,
        offered=offered_variables(),
        patience=LaunchRetryPolicy(retries=settings.launch_retries, wait=settings.launch_wait),
        tidy=partial(prune_artifacts, store, make_artifact_store(settings), settings.retention),
        usual=usual_bounds(settings),
        passes=passes,
        mailboxes=mailboxes,
        probes=probes_of(settings),
        prices=settings.prices,
    )


def usual_bounds(settings: Settings) -> ResourceLimits:
    """Return the default resource limits of programs."""
    idle = settings.idle_timeout
    return ResourceLimits(
        hard_seconds=settings.timeout.total_seconds(),
        idle_seconds=None if idle is None else idle.total_seconds(),
        grace_seconds=settings.grace.total_seconds(),
    )


PROGRAM = "rota.gateway.server"


def make_attempt_gateway(settings: Settings, secrets: LocalSecretStore) -> AttemptGateway:
    """Return the access of attempts to the gateway, which follows changes of secrets."""
    python = Interpreter.running()
    gateway = GatewayClient(
        settings.home / GATEWAY,
        lambda folder: python.module(PROGRAM, folder),
        trust_environment(),
        _upstreams(secrets),
    )
    inside = settings.egress_port if settings.egress_socket is None else None
    ways = AttemptGateway(gateway, secrets.plan, secrets.values, secrets.redactor, inside)
    ways.on_close(secrets.subscribe(ways.reconfigure))
    return ways


def _upstreams(secrets: LocalSecretStore) -> Callable[[], list[Upstream]]:
    def known() -> list[Upstream]:
        values = secrets.values()
        ready = (
            each for each in secrets.plan.upstreams if each.accepts_secret(values.get(each.secret))
        )
        return [each.with_secret(values[each.secret]) for each in ready]

    return known


IN_MEMORY = "SQL is not available for a store in memory: use a file or PostgreSQL"
NO_ROLE = (
    "SQL is off: run what `rota sql role` prints in the database, then set sql_url to that role"
)


class NoSqlConsole:
    """Refuses all queries where no safe console is available."""

    def __init__(self, why: str) -> None:
        self._why = why

    async def ask(self, inquiry: SqlQuery) -> SqlResult:  # noqa: ARG002 - the port's shape
        """Raise the reason."""
        raise SqlRefused(self._why)

    async def close(self) -> None:
        """Nothing to release."""


def make_sql_console(settings: Settings) -> SqlConsole:
    """Return the SQL console for the store of the settings; nothing is opened yet."""
    if settings.store == "memory:":
        return NoSqlConsole(IN_MEMORY)
    if settings.store.startswith("sqlite:///"):
        from rota.store.sqlite.sql_console import SqliteSqlConsole  # noqa: PLC0415 - the driver is heavy

        path = Path(settings.store.removeprefix("sqlite:///")).expanduser()
        return SqliteSqlConsole(str(path.absolute()))
    if settings.sql_url is None:
        return NoSqlConsole(NO_ROLE)
    from rota.store.postgres.sql_console import PostgresSqlConsole  # noqa: PLC0415

    return PostgresSqlConsole(settings.store, settings.sql_url)


def sql_role_ddl(role: str | None = None) -> str:
    """Return the SQL that an administrator of PostgreSQL runs to enable the console."""
    from rota.store.postgres.sql_console import ROLE, role_ddl  # noqa: PLC0415

    return role_ddl(role or ROLE)


def make_app_context(
    settings: Settings,
    store: Store,
    *,
    sql_console: SqlConsole | None = None,
    daemon: DaemonControl | None = None,
) -> AppContext:
    """Return the limits of the settings that apply to every interface."""
    return AppContext(
        store=store,
        chance=random.SystemRandom(),
        limits=_command_limits(settings),
        plugins=load_plugins(settings),
        sql_console=sql_console,
        sites=LocalSiteChecker(settings),
        artifacts=make_artifact_store(settings),
        probes=probes_of(settings),
        secrets=load_secrets(settings),
        daemon=daemon,
    )


def _command_limits(settings: Settings) -> CommandLimits:
    return CommandLimits(
        warnings=WarningThresholds(queue=settings.queue_warning, running=settings.running_warning),
        calls=frozenset(settings.callables),
        retention=settings.retention,
    )
