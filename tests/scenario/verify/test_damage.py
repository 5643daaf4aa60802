"""What was damaged behind Rota's back is found, and nothing else."""

from __future__ import annotations

import hashlib
import inspect
import re

import pytest

from rota.flow.observe.verification import Verifier, verify
from rota.model.verification import Invariant
from rota.store.verification import examine

PICKED = {
    "two": "(select id from {spaces} where name = 'two')",
    "job": "(select id from {tasks} where name = 'job')",
    "slow": "(select id from {tasks} where name = 'slow')",
    "ticking": "(select id from {tasks} where name = 'ticking')",
    "cron": "(select id from {schedules} where name = 'cron')",
    "slot": "(select min(id) from {runs} where slot_key = 'g1:341')",
    "done": "(select min(id) from {runs} where state = 'succeeded' and task_id = {job} and epoch = 2)",
    "waits": "(select min(id) from {runs} where state = 'waiting')",
}
COPIED = (
    "space_id, task_id, pool, priority, available_at, route, grp, metered, source, epoch, cause,"
    " created_at, payload, schedule_id, slot_key, slot_at"
)
NOTICE = (
    "insert into {deliveries} (space_id, run_id, channel, target, body, dedupe_key, state,"
    " available_at, created_at, kind) select space_id, id, 'test', 'ops', 'x', 'x', 'pending', 0, 0,"
    " 'notice' from {runs} where id ="
)
DAMAGE = {
    "a slot that has two runs": (
        Invariant.ONE_FATE,
        "drop index {runs_slot}",
        (
            "insert into {runs} (state, place, {copied})"
            " select 'queued', 'later', {copied} from {runs} where id = {slot}"
        ),
    ),
    "a key that has two runs": (
        Invariant.ONE_FATE,
        "drop index {runs_key}",
        "update {runs} set key = 'a' where key = 'b'",
    ),
    "a slot that ran and stands in the ledger": (
        Invariant.ONE_FATE,
        (
            "insert into {ledger} (schedule_id, reason, first_key, last_key, first_at, last_at, count,"
            " noted_at) select schedule_id, 'missed', 'k', 'k', slot_at, slot_at, 1, 0 from {runs}"
            " where id = {slot}"
        ),
    ),
    "a slot whose run was never made": (
        Invariant.EVERY_SLOT,
        "delete from {runs} where id = {slot}",
    ),
    "a ledger row that was lost": (
        Invariant.EVERY_SLOT,
        "delete from {ledger} where schedule_id = {cron} and reason = 'disabled'",
    ),
    "a ledger row that tells of too many slots": (
        Invariant.EVERY_SLOT,
        "update {ledger} set count = count + 1 where schedule_id = {cron} and reason = 'disabled'",
    ),
    "a cursor that was moved by hand": (
        Invariant.EVERY_SLOT,
        "update {schedules} set cursor = cursor + 600000000 where name = 'cron'",
    ),
    "a run of a slot that does not say which": (
        Invariant.OF_A_SLOT,
        "update {runs} set slot_at = null where id = {slot}",
    ),
    "a run of another task's schedule": (
        Invariant.OF_A_SLOT,
        "update {schedules} set task_id = {job} where name = 'cron'",
    ),
    "an attempt that is missing": (
        Invariant.EPOCHS,
        "delete from {attempts} where run_id = {done} and number = 1",
    ),
    "an end that was recorded twice": (
        Invariant.ONE_END,
        (
            "insert into {events} (at, name, space_id, task_id, run_id, data) select at, name, space_id,"
            " task_id, run_id, data from {events} where run_id = {done} and name = 'run.settled'"
        ),
    ),
    "an end that was not recorded": (
        Invariant.ONE_END,
        "delete from {events} where run_id = {done} and name = 'run.settled'",
    ),
    "a finished run that was changed": (
        Invariant.ONE_END,
        "update {runs} set finished_at = finished_at + 1 where id = {done}",
    ),
    "a result of a failure": (
        Invariant.FOLLOW_UP,
        "update {runs} set result = '1' where state = 'failed' and task_id = {job}",
    ),
    "an error of a success": (
        Invariant.FOLLOW_UP,
        "update {runs} set error_code = 'x' where id = {done}",
    ),
    "messages that are missing": (
        Invariant.FOLLOW_UP,
        "delete from {deliveries} where run_id = {done}",
    ),
    "messages of a run that has not ended": (
        Invariant.FOLLOW_UP,
        "update {deliveries} set run_id = {waits}, space_id = {two} where state = 'pending'",
    ),
    "a successor that is missing": (
        Invariant.FOLLOW_UP,
        "delete from {runs} where upstream_id = {done}",
    ),
    "a successor of a run that goes on": (
        Invariant.FOLLOW_UP,
        "update {runs} set upstream_id = {waits} where upstream_id is not null and id = (select min(id) from {runs} where source = 'after')",
    ),
    "attempts of a run that is gone": (
        Invariant.FOLLOW_UP,
        (
            "insert into {attempts} (run_id, number, cause, started_at, ended_at, outcome)"
            " values (9999, 1, 'first', 0, 0, 'succeeded')"
        ),
    ),
    "an attempt of an epoch that never was": (
        Invariant.FENCED,
        (
            "insert into {attempts} (run_id, number, cause, started_at, ended_at, outcome)"
            " values ({done}, 7, 'first', 0, 0, 'succeeded')"
        ),
    ),
    "a question of an epoch that never was": (
        Invariant.FENCED,
        "update {questions} set epoch = 7 where run_id = {waits} and answered_at is not null",
    ),
    "an operation of an epoch that never was": (
        Invariant.FENCED,
        "insert into {deferred} values ({waits}, 7, 1, 'forget', null, 'x', 0)",
    ),
    "a question of an attempt that has ended": (
        Invariant.FENCED,
        "insert into {deferred} values ({waits}, 1, 1, 'question', null, 'x', 0)",
    ),
    "an operation that outlived its run's end": (
        Invariant.FOLLOW_UP,
        "insert into {deferred} values ({done}, 1, 1, 'forget', null, 'x', 0)",
    ),
    "an effect of a success that never came": (
        Invariant.FOLLOW_UP,
        "insert into {effects} values ({job}, 'run/1', 'x', {waits}, 1, 0, '1', 0)",
    ),
    "an effect of a run that is gone": (
        Invariant.FOLLOW_UP,
        "insert into {effects} values ({job}, 'run/9999', 'x', 9999, 1, 1, '1', 0)",
    ),
    "an approval that shows another action": (
        Invariant.DECISIONS,
        (
            "update {questions} set kind = 'approval', action = 'a', digest = 'b'"
            " where run_id = {waits} and answered_at is null"
        ),
    ),
    "an approval that Rota was to carry out, and nobody knows": (
        Invariant.DECISIONS,
        (
            "update {questions} set kind = 'approval', answer = 'approve', digest = '{hash}',"
            " action = '{by_rota}' where answer = 'yes'"
        ),
    ),
    "a notice that nobody got": (
        Invariant.FOLLOW_UP,
        (
            "insert into {preferences} (space_id, channel, target, least, updated_at)"
            " values ({two}, 'test', 'ops', 0, 0)"
        ),
    ),
    "a notice that its place did not want": (
        Invariant.FOLLOW_UP,
        (
            "insert into {preferences} (space_id, channel, target, least, updated_at)"
            " values ({two}, 'test', 'ops', 1000, 0)"
        ),
        "{notice} {waits}",
    ),
    "a notice of a run that needed nobody": (
        Invariant.FOLLOW_UP,
        "{notice} {done}",
    ),
    "ready runs that no head names": (Invariant.IN_REACH, "delete from {heads}"),
    "ready runs behind a gate that is gone": (
        Invariant.IN_REACH,
        "update {heads} set gate = 'nothing' where grp = 'g'",
    ),
    "a lane that nobody moves on": (
        Invariant.IN_REACH,
        "delete from {pings}",
        "update {runs} set place = 'held' where task_id = {ticking} and place = 'ready'",
    ),
    "a run that is held without a lane": (
        Invariant.IN_REACH,
        "update {runs} set place = 'held' where place = 'later'",
    ),
    "a run that waits for nothing": (
        Invariant.IN_REACH,
        "delete from {questions} where run_id = {waits} and answered_at is null",
    ),
    "a run that waits for ever": (
        Invariant.IN_REACH,
        "update {runs} set expires_at = null where id = {waits}",
    ),
    "a schedule that nobody plans": (
        Invariant.IN_REACH,
        "update {schedules} set next_at = null where name = 'default'",
    ),
    "a schedule that is planned too late": (
        Invariant.IN_REACH,
        "update {schedules} set next_at = next_at + 3600000000 where name = 'default'",
    ),
    "a message that nobody sends": (
        Invariant.IN_REACH,
        "update {deliveries} set holder = null where state = 'sending'",
    ),
    "a message that was sent twice": (
        Invariant.SENT_ONCE,
        (
            "insert into {events} (at, name, run_id, data) select at, name, run_id, data from {events}"
            " where run_id = {done} and name = 'delivery.sent'"
        ),
    ),
    "a message that was given up and is tried on": (
        Invariant.SENT_ONCE,
        "update {deliveries} set tries = 8, error = 'no' where state = 'pending'",
    ),
    "a message that forgot it was sent": (
        Invariant.SENT_ONCE,
        "update {deliveries} set sent_at = null where run_id = {done} and state = 'sent'",
    ),
    "more runs than a limit allows": (
        Invariant.LIMITS,
        "update {limits} set cap = 2 where scope = 'total'",
    ),
    "a rate that was overdrawn": (
        Invariant.LIMITS,
        "update {limits} set tokens = -1 where scope = 'group'",
    ),
    "two running runs of a lane": (
        Invariant.LIMITS,
        "drop index {runs_lane_running}",
        "update {runs} set lane = 'L', space_id = {two}, task_id = {slow} where state = 'running'",
    ),
    "a run in another space than its task": (
        Invariant.SPACES,
        "update {runs} set space_id = {two} where state = 'expired'",
    ),
    "a message in another space than its run": (
        Invariant.SPACES,
        "update {deliveries} set space_id = {two} where run_id = {done}",
    ),
    "something that is set aside for a run that has ended": (
        Invariant.BUDGETS,
        (
            "insert into {spending} (run_id, epoch, space_id, task_id, day, open, began)"
            " select id, epoch, space_id, task_id, '2026-03-01', 1, 0 from {runs} where id = {done}"
        ),
    ),
    "something that stays set aside": (
        Invariant.BUDGETS,
        (
            "insert into {spending} (run_id, epoch, space_id, task_id, day, open, began,"
            " reserved_cost) select id, epoch, space_id, task_id, '2026-03-01', 0, 0, 5 from {runs}"
            " where id = {done}"
        ),
    ),
    "something used that counts for another space": (
        Invariant.BUDGETS,
        (
            "insert into {spending} (run_id, epoch, space_id, task_id, day, open, began)"
            " select id, epoch, {two}, task_id, '2026-03-01', 0, 0 from {runs} where id = {done}"
        ),
    ),
    "tokens that were told and not counted": (
        Invariant.BUDGETS,
        (
            "insert into {spending} (run_id, epoch, space_id, task_id, day, open, began, tokens)"
            " select id, epoch, space_id, task_id, '2026-03-01', 0, 0, 9 from {runs}"
            " where id = {done}"
        ),
        (
            "insert into {events} (at, name, run_id, data) select 0, 'run.usage', id,"
            ' \'{{"input": 7, "output": 3}}\' from {runs} where id = {done}'
        ),
    ),
    "a run that was retried too often": (
        Invariant.TRIES,
        "update {runs} set retries = 3 where id = {done}",
    ),
    "a run that forgot a retry": (
        Invariant.TRIES,
        "update {runs} set retries = 0 where id = {done}",
    ),
    "a run that was lost too often": (
        Invariant.TRIES,
        "update {runs} set losses = 4 where id = {done}",
    ),
    "a payload that is too long": (
        Invariant.QUOTA,
        "update {runs} set payload = '{long}' where state = 'expired'",
    ),
    "a state that no event led to": (
        Invariant.REPLAY,
        "update {runs} set state = 'failed', error_code = 'x', result = null where id = {done}",
    ),
    "a retry that no event tells of": (
        Invariant.REPLAY,
        "delete from {events} where run_id = {done} and name = 'run.retried'",
    ),
    "an attempt that ended otherwise": (
        Invariant.REPLAY,
        "update {attempts} set outcome = 'drained' where run_id = {done} and number = 1",
    ),
}


class Undone(Exception):
    """Takes a transaction back."""


class Names(dict):
    """The names of tables, by dialect, and of the rows that are damaged."""

    def __init__(self, prefix):
        by_rota = '{"by": "rota"}'
        digest = hashlib.sha256(by_rota.encode()).hexdigest()
        super().__init__(long="x" * 300_000, copied=COPIED, by_rota=by_rota, hash=digest)
        self._prefix = prefix
        self["notice"] = NOTICE.format_map(self)
        for name, query in PICKED.items():
            self[name] = query.format_map(self)

    def __missing__(self, name):
        return f"{self._prefix}{name}"


async def damaged(store, names, statements):
    """Damage a store inside a transaction, look at it from there, and take it back."""
    found = None

    async def operation(session):
        nonlocal found
        await session.enter_claim()  # the transaction begins
        for statement in statements:
            done = session._connection.execute(statement.format_map(names))
            if inspect.isawaitable(done):
                await done
        found = (await examine(session, Verifier)).report()
        raise Undone

    with pytest.raises(Undone):
        await store.write(operation)
    return found


async def test_what_was_damaged_is_found_and_nothing_else(busy):
    names = Names("rota." if busy.store.remote else "")
    wrong = {}
    for what, (invariant, *statements) in DAMAGE.items():
        found = await damaged(busy.store, names, statements)
        if {violation.invariant for violation in found.violations} != {invariant}:
            wrong[what] = found.violations
    assert wrong == {}
    assert (await verify(busy.store)).clean


async def test_what_is_wrong_with_a_ledger_row_names_its_schedule_and_whether_it_is_gone(busy):
    names = Names("rota." if busy.store.remote else "")
    _, miscounted = DAMAGE["a ledger row that tells of too many slots"]
    gone = "update {schedules} set deleted_at = updated_at where name = 'cron'"
    for statements, end in (((miscounted,), ")"), ((miscounted, gone), ", deleted since)")):
        (violation,) = (await damaged(busy.store, names, statements)).violations
        assert re.fullmatch(
            r"ledger row \d+ of schedule main/ticking/cron \(\d+" + re.escape(end), violation.where
        )


def test_every_invariant_is_damaged_at_least_once():
    assert {invariant for invariant, *_ in DAMAGE.values()} == set(Invariant)
