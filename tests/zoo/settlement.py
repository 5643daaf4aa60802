"""Bugs of settling and of sending: what is recorded about a run, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rota.flow import deliver
from rota.model import settlement
from rota.model.attempts import Succeeded
from rota.model.notifications import DeliveryState
from rota.model.runs import RunState
from rota.model.settlement import SettlementExtras
from rota.ports import runner
from rota.runtime import worker
from rota.runtime.poller import Poller
from rota.store import outbox
from rota.store import settlement as store_settlement
from rota.store.settlement import enqueue, settle
from rota.store.transactions import QueryRows
from tests.tools.interception import intercepted, replaced_operation
from tests.zoo.bugs import bug, queries, replaced, schema, several


def forced(wanted):
    """Return a settle that makes settlements fit, where `wanted` says so of one and its row."""
    careful = settle

    async def overwrite(tx, settlements):
        ids = sorted({s.run_id for s in settlements})
        rows = {row[0]: row for row in await tx.rows("lock_runs", ids=ids)}
        made = [
            s._replace(epoch=rows[s.run_id][1], was=RunState(rows[s.run_id][2]))
            if s.run_id in rows and wanted(s, rows[s.run_id])
            else s
            for s in settlements
        ]
        return await careful(tx, made)

    return replaced_operation(store_settlement, "settle", overwrite)


@bug(
    "sweeper-without-a-check",
    "river#1302, solid_queue#589",
    "The last writer of a run's end wins: nothing checks whether it has ended already",
)
def sweeper_without_a_check() -> Iterator[None]:
    with forced(lambda s, row: s.was is RunState.RUNNING):
        yield


@bug(
    "no-fencing",
    "IST-W04, dbos#742",
    "The result of an abandoned attempt is taken for the result of the next one",
    rare=True,
)
def no_fencing() -> Iterator[None]:
    with forced(lambda s, row: s.was is RunState.RUNNING and row[2] == RunState.RUNNING):
        yield


@bug(
    "answered-twice",
    "IST-W18, ZUB-W07",
    "An answered question accepts another answer while its run continues",
)
def answered_twice() -> Iterator[None]:
    with forced(lambda s, row: s.extras.answered is not None and row[2] == RunState.QUEUED):
        yield


@bug(
    "cancel-overwrites",
    "ZUB-W07, IST-W19",
    "Cancelling records the end of a run that a worker is still executing",
)
def cancel_overwrites() -> Iterator[None]:
    async def at_once(tx, run_ids, why):
        rows = await tx.rows("lock_runs", ids=sorted(run_ids))
        tasks = dict(await tx.rows("zoo_tasks", ids=sorted(run_ids)))
        ends = [
            settlement.Settlement(
                row[0],
                row[1],
                tasks[row[0]],
                RunState.RUNNING,
                RunState.CANCELLED,
                RunState.CANCELLED.value,
                SettlementExtras(error_code="cancelled", error=why),
            )
            for row in rows
            if row[2] == RunState.RUNNING
        ]
        await settle(tx, ends)

    with several(
        replaced_operation(store_settlement, "request_cancel", at_once),
        queries(
            zoo_tasks="select id, task_id from runs where id in (select value from json_each(:ids))"
        ),
    ):
        yield


@bug(
    "cancel-forgotten",
    "Rota, before it was simulated",
    "A run that was cancelled while it failed is retried",
)
def cancel_forgotten() -> Iterator[None]:
    with queries(lock_runs=("(cancel_requested_at is not null) as cancelling", "0 as cancelling")):
        yield


@bug(
    "attempts-not-counted",
    "dbos#759",
    "Attempts are not counted, and work that always fails is retried for ever",
)
def attempts_not_counted() -> Iterator[None]:
    with queries(requeue_runs=("retries = r.retries + w.retries", "retries = r.retries")):
        yield


def after_the_commit(taken, write):
    """Return a settle that writes a part of what a settlement carries in a second transaction."""

    async def in_two_steps(database, proceed, settlements):
        bare = [s._replace(extras=replace(s.extras, **{taken: ()})) for s in settlements]
        verdicts = await proceed(bare)
        rest = [
            (s, part)
            for s, accepted in zip(settlements, verdicts, strict=True)
            if accepted
            for part in getattr(s.extras, taken)
        ]
        if rest:
            await write(database, rest)
        return verdicts

    return intercepted(store_settlement.settle, in_two_steps)


@bug(
    "successor-after-the-commit",
    "IST-W06",
    "Successors of a run are queued after its end is committed, and a crash in between loses them",
)
def successor_after_the_commit() -> Iterator[None]:
    async def start(database, rest):
        await database.write(enqueue, [batch for _, batch in rest])

    with after_the_commit("successors", start):
        yield


@bug(
    "message-after-the-commit",
    "IST-W05",
    "The message of a run is queued after its end is committed, and a crash in between loses it",
)
def message_after_the_commit() -> Iterator[None]:
    async def keep(tx, rows):
        await tx.run("insert_deliveries", rows=rows, now=tx.now())

    async def send(database, rest):
        rows = QueryRows(
            {
                "run_id": s.run_id,
                "space_id": d.space_id,
                "channel": d.channel,
                "target": d.target,
                "body": d.body,
                "dedupe_key": d.dedupe_key,
            }
            for s, d in rest
        )
        await database.write(keep, rows)

    with after_the_commit("deliveries", send):
        yield


@bug(
    "exit-taken-for-success",
    "G2-W14",
    "Work that exits without a result is recorded as done",
    rare=True,
)
def exit_taken_for_success() -> Iterator[None]:
    failure = runner.failure

    def lenient(fault):
        return Succeeded() if isinstance(fault, SystemExit) else failure(fault)

    with replaced(worker, "failure", lenient):
        yield


@bug(
    "key-looked-up-first",
    "dbos#759, GEN-W05",
    "A key is looked up before the transaction, and two callers queue the same work",
)
def key_looked_up_first() -> Iterator[None]:
    columns = "on runs (task_id, key) where key is not null"
    with several(
        schema("drop index runs_key", f"create index runs_key {columns}"),
        queries(existing_runs=("where r.key is not null", "where r.key is null")),
    ):
        yield


@bug(
    "retention-by-age",
    "GEN-W14, IST-W27",
    "Old runs are deleted whether they have ended or not",
)
def retention_by_age() -> Iterator[None]:
    old = "created_at < (select max(at) from events) - 20000000"
    with queries(prune_runs=("where id in", f"where {old} or id in")):
        yield


@bug(
    "messages-leave-before-their-run",
    "Rota, found by 1,000 fresh seeds",
    "The newest messages of a run are deleted with the old event of an earlier one",
)
def messages_leave_early() -> Iterator[None]:
    with queries(prune_deliveries=("and not exists (", "and exists (select 1 union all ")):
        yield


@bug(
    "timeout-is-a-failure",
    "Lobster#630",
    "A message is sent again to a channel that did not answer, and arrives twice",
)
def timeout_is_a_failure() -> Iterator[None]:
    record = deliver._Hand.record

    async def hopeful(self, delivery, state, error, available_at):
        if state is DeliveryState.UNKNOWN:
            state = DeliveryState.PENDING
        await record(self, delivery, state, error, available_at)

    with replaced(deliver._Hand, "record", hopeful):
        yield


@bug(
    "messages-taken-twice",
    "ZUB-W06, G2-W12",
    "Two senders select the same messages, and each claims them in its own transaction",
)
def messages_taken_twice() -> Iterator[None]:
    async def pick(tx, most):
        return await tx.rows("pick_deliveries", now=tx.now(), most=most)

    async def take(tx, ids, worker):
        until = tx.now() + outbox.LONGEST_SENDING
        await tx.run("take_deliveries", ids=ids, worker=worker, until=until)
        return [outbox.as_delivery(r) for r in await tx.rows("get_deliveries", ids=ids)]

    take.__name__ = outbox.claim_deliveries.__name__

    async def in_two_steps(database, _proceed, sender, most):
        ids = [row[0] for row in await database.read(pick, most)]
        return await database.write(take, ids, sender) if ids else []

    with several(
        intercepted(outbox.claim_deliveries, in_two_steps),
        queries(take_deliveries=("and coalesce(state, '') = 'pending'", "")),
    ):
        yield


@bug(
    "sending-for-ever",
    "Rota, before it was simulated",
    "A message whose outcome could not be written stays in sending for ever",
)
def sending_for_ever() -> Iterator[None]:
    async def forget(store, worker, mine):
        mine.marks.clear()

    with several(
        replaced(deliver, "_catch_up", forget),
        queries(orphaned_deliveries=("available_at <= :now\n  or", "available_at < 0\n  or")),
    ):
        yield


@bug(
    "loop-dies-of-an-outage",
    "dbos#139, procrastinate#1408",
    "A background loop ends with the first database error",
)
def loop_dies() -> Iterator[None]:
    step = Poller._one_step

    async def mortal(self):
        rest = await step(self)
        if rest is None and self.name in {"planner", "maintenance", "sender"}:
            self.stop()
        return rest

    with replaced(Poller, "_one_step", mortal):
        yield
