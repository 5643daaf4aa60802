"""Bugs of claiming and of leases: who may work on a run, and what becomes of it without them."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from weakref import WeakSet

from rota.flow import maintain
from rota.model.instants import ALWAYS
from rota.model.runs import Lease
from rota.model.views import ClaimResult
from rota.runtime import supervisor, worker
from rota.runtime.clock import LeaseClock
from rota.store import claims
from rota.store.tasks import get_tasks
from tests.tools.interception import intercepted
from tests.tools.simulation import world
from tests.zoo.bugs import bug, queries, replaced, schema, several


@bug(
    "claim-without-lease",
    "G2-W01, ZUB-W04",
    "A crash leaves a run running for ever: nothing looks for runs whose worker is gone",
)
def no_recovery() -> Iterator[None]:
    with queries(
        lost_runs=(
            "worker_id not in (select id from workers",
            "worker_id in (select '' from workers",
        )
    ):
        yield


@bug(
    "recovery-at-start-only",
    "dbos#716",
    "Abandoned runs are returned to the queue when a process starts, and never again",
)
def recovery_at_start_only() -> Iterator[None]:
    started: WeakSet[object] = WeakSet()
    rescue = maintain.rescue

    async def once(store, chance, **told):
        if store in started:
            return 0
        started.add(store)
        return await rescue(store, chance, **told)

    with replaced(supervisor, "rescue", once):
        yield


@bug(
    "lease-is-a-fixed-timeout",
    "celery#2599, celery#7009, IST-W02",
    "A run that takes longer than a fixed time is given to another worker while it runs",
)
def fixed_timeout() -> Iterator[None]:
    long_ago = "or started_at < (select max(seen_at) from workers) - 4000000"
    where = "worker_id not in (select id from workers where fenced = 0)"
    with queries(lost_runs=(where, f"({where} {long_ago})")):
        yield


@bug(
    "lease-judged-after-a-leap",
    "Rota, found by 3,000 fresh seeds",
    "The database's clock jumps forward, every lease looks expired, and others start the same work",
)
def judged_after_a_leap() -> Iterator[None]:
    with replaced(LeaseClock, "watched", lambda *_: ALWAYS):
        yield


@bug("lease-not-renewed", "GEN-W04", "A heartbeat is sent, but it does not extend the lease")
def lease_not_renewed() -> Iterator[None]:
    with queries(renew_worker=("lease_until = :until", "lease_until = lease_until")):
        yield


@bug(
    "worker-named-by-host",
    "oban-py#32, dbos#804, IST-W25",
    "Workers are identified by host name, and two of them count as one",
)
def worker_named_by_host() -> Iterator[None]:
    made = supervisor.SupervisorSettings

    def named(**settings):
        return made(**{**settings, "worker_id": "host"})

    with several(
        replaced(world, "SupervisorSettings", named),
        queries(insert_workers=("insert into workers", "insert or replace into workers")),
    ):
        yield


@bug(
    "fenced-worker-claims",
    "Rota, before it was simulated",
    "A fenced worker claims runs before it knows that it is fenced",
    rare=True,
)
def fenced_worker_claims() -> Iterator[None]:
    with queries(is_claiming_barred=("fenced = 1", "fenced = 7")):
        yield


@bug(
    "select-then-update",
    "ZUB-W06, steady-queue PR 54",
    "Runs are selected in one transaction and claimed in the next without a check",
)
def select_then_update() -> Iterator[None]:
    async def chosen(tx, routes):
        return await tx.rows("zoo_choose", routes=list(routes))

    async def claim_again(tx, ids, worker):
        await tx.run("zoo_take", ids=ids, worker=worker, now=tx.now())
        return await tx.rows("zoo_taken", ids=ids)

    async def in_two_steps(database, proceed, worker, pools, routes, want):
        seen = [row[0] for row in await database.read(chosen, routes)]
        taken = await proceed(worker, pools, routes, want)
        ids = [run_id for run_id in seen if run_id not in {lease.run_id for lease in taken.leases}]
        if not ids:
            return taken
        rows = await database.write(claim_again, ids, worker)
        tasks = {task.id: task for task in await database.read(get_tasks, [row[3] for row in rows])}
        leases = [*taken.leases, *(Lease(*row) for row in rows)]
        return ClaimResult(leases=leases, tasks={**taken.tasks, **tasks}, answers=taken.answers)

    claim_again.__name__ = claims.claim_runs.__name__
    with several(
        intercepted(claims.claim_runs, in_two_steps),
        queries(
            zoo_choose="select id from runs where queue_state = 'ready' and lane is null and metered = 0"
            " and limit_group = '' and route in (select value from json_each(:routes)) limit 2",
            zoo_take="update runs set state = 'running', queue_state = null, epoch = epoch + 1,"
            " worker_id = :worker, started_at = :now where id in (select value from json_each(:ids))",
            zoo_taken="select id, epoch, space_id, task_id, route, cause, retries, losses, created_at,"
            " expires_at, slot_at, slot_key, depth, question_count, thread, key, payload"
            " from runs where id in (select value from json_each(:ids))",
        ),
    ):
        yield


@bug(
    "cap-counted-outside-the-claim",
    "G2-W02, GEN-W06",
    "Running work is counted before the transaction of the claim that relies on it",
)
def cap_counted_before() -> Iterator[None]:
    before = []
    count = claims.read_room

    async def remembered(session, now):
        room = await count(session, now)
        before.append(deepcopy(room))
        return deepcopy(before[-2]) if len(before) > 1 else room

    with replaced(claims, "read_room", remembered):
        yield


@bug(
    "cap-of-a-space-ignored",
    "IST-W09",
    "A busy user takes all slots: the cap of a space is not looked at",
)
def space_cap_ignored() -> Iterator[None]:
    async def unlimited(session, room, pool, spaces, found):
        return dict.fromkeys(spaces, claims.UNLIMITED)

    with replaced(claims, "_space_room", unlimited):
        yield


@bug(
    "lane-not-held",
    "IST-W08",
    "Two messages of one conversation are answered at the same time",
)
def lane_not_held() -> Iterator[None]:
    columns = "on runs (space_id, lane) where lane is not null and state = 'running'"
    with several(
        schema("drop index runs_lane_running", f"create index runs_lane_running {columns}"),
        queries(view_lanes=("exists (select 1", "0 and exists (select 1")),
    ):
        yield


@bug(
    "attempt-begun-twice",
    "ZUB-W11",
    "An error inside the work is taken for an error of the call, and the work is called again",
)
def called_again() -> Iterator[None]:
    class Stubborn:
        def __init__(self, runner):
            self._runner = runner
            self.routes, self.queue_wait = runner.routes, runner.queue_wait

        async def run(self, assignment):
            try:
                return await self._runner.run(assignment)
            except LookupError:
                return await self._runner.run(assignment)

    class Worker(worker.Worker):
        def __init__(self, store, runners, *args, **options):
            super().__init__(store, [Stubborn(one) for one in runners], *args, **options)

    with replaced(supervisor, "Worker", Worker):
        yield
