"""Bugs of planning: slots that fire twice, never, or without leaving a word."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from rota.flow.define import schedules as define_schedules
from rota.flow.define import tasks as define_tasks
from rota.model.runs import RunState
from rota.rules import plans as flow
from rota.rules import plans as rule_plans
from rota.rules.plans import OverlapDecision
from rota.store import plans as store_plans
from rota.store import settlement
from rota.store.tasks import list_schedules
from tests.tools.interception import intercepted, replaced_operation
from tests.zoo.bugs import bug, queries, replaced, schema, several


@bug(
    "slot-and-run-in-two-transactions",
    "procrastinate#1495",
    "A slot is marked as taken before its run is queued, and a crash in between loses it",
)
def two_transactions() -> Iterator[None]:
    async def in_two_steps(database, proceed, plans):
        verdicts = await proceed([replace(one, runs=()) for one in plans])
        runs = [r for one, fits in zip(plans, verdicts, strict=True) if fits for r in one.runs]
        if runs:
            await database.write(settlement.enqueue, runs)
        return verdicts

    with intercepted(store_plans.apply_plans, in_two_steps):
        yield


@bug(
    "changed-rule-begins-in-the-past",
    "Rota, found by 5,000 fresh seeds",
    "A changed rule starts at the time of the request although later slots are planned",
)
def begins_in_the_past() -> Iterator[None]:
    with replaced(define_schedules, "_begin", lambda _, now: now):
        yield


@bug(
    "once-because-of-the-leader",
    "oban#1488, open-ace PR 2862, leoflow#1199",
    "A slot runs once only because a leader plans, and there are two leaders",
)
def two_leaders() -> Iterator[None]:
    careful = store_plans.apply_plans

    async def apply_plans(tx, plans):
        rows = await tx.rows("lock_schedules", ids=sorted({p.schedule_id for p in plans}))
        standing = {row[0]: row for row in rows}
        trusted = [
            replace(p, was=standing[p.schedule_id][1], version=standing[p.schedule_id][2])
            for p in plans
            if p.schedule_id in standing
        ]
        verdicts = await careful(tx, trusted) if trusted else []
        return [*verdicts, *[False] * (len(plans) - len(trusted))]

    columns = "on runs (schedule_id, slot_key) where schedule_id is not null"
    with several(
        replaced_operation(store_plans, "apply_plans", apply_plans),
        schema("drop index runs_slot", f"create index runs_slot {columns}"),
        queries(existing_runs=("where r.schedule_id is not null", "where r.schedule_id < 0")),
    ):
        yield


@bug(
    "next-slot-after-success",
    "GEN-W03",
    "The next slot is planned when the run before it has succeeded, so one failure ends them all",
)
def next_slot_after_success() -> Iterator[None]:
    plan_schedule = flow.plan_schedule
    settle_all = settlement.settle

    def one_at_a_time(schedule, now):
        made = plan_schedule(schedule, now)
        return replace(made, next_at=None, note=str(made.next_at)) if made.runs else made

    async def settled(tx, settlements):
        verdicts = await settle_all(tx, settlements)
        ends = [s.run_id for s in settlements if s.state is RunState.SUCCEEDED]
        await tx.run("zoo_go_on", ids=ends)
        return verdicts

    with several(
        replaced(flow, "plan_schedule", one_at_a_time),
        replaced_operation(settlement, "settle", settled),
        queries(
            zoo_go_on="update schedules set next_at = cast(note as integer), note = null"
            " where note is not null and id in (select schedule_id from runs"
            " where id in (select value from json_each(:ids)))"
        ),
    ):
        yield


@bug("paused-still-fires", "GEN-W10, ZUB-W12", "Slots of a disabled task run")
def paused_still_fires() -> Iterator[None]:
    with replaced(rule_plans, "_ledger_reason", lambda schedule, slot: None):
        yield


@bug(
    "overlap-of-another-lane",
    "Rota, before it was simulated",
    "Runs of a task with a custom lane pile up: overlap is checked in another lane",
    rare=True,
)
def overlap_of_another_lane() -> Iterator[None]:
    with queries(active_in_lanes=("r.lane is not null", "r.lane like 'task:%'")):
        yield


@bug(
    "plan-older-than-the-change",
    "Rota, before it was simulated",
    "A plan made before its task was changed or disabled is applied afterwards",
    rare=True,
)
def plan_older_than_the_change() -> Iterator[None]:
    careful = store_plans.apply_plans

    async def apply_plans(tx, plans):
        rows = await tx.rows("lock_schedules", ids=sorted({p.schedule_id for p in plans}))
        versions = {row[0]: row[2] for row in rows}
        plans = [replace(p, version=versions.get(p.schedule_id, p.version)) for p in plans]
        return await careful(tx, plans)

    with replaced_operation(store_plans, "apply_plans", apply_plans):
        yield


@bug(
    "change-swallows-slots",
    "Rota, before it was simulated",
    "Changing a schedule forgets the slots that were due and not planned yet",
)
def change_swallows_slots() -> Iterator[None]:
    async def as_they_stand(store, task_id, now):
        return await store.read(list_schedules, [task_id])

    with several(
        replaced(define_schedules, "plan_due_then_list", as_they_stand),
        replaced(define_tasks, "plan_due_then_list", as_they_stand),
    ):
        yield


@bug(
    "skip-that-never-runs",
    "ZUB-W02",
    "The policy that skips missed slots skips those on time as well",
)
def skip_that_never_runs() -> Iterator[None]:
    with replaced(rule_plans, "_GRACE_MICROS", 0):
        yield


@bug(
    "skip-without-reason",
    "IST-W21",
    "A slot is skipped for overlap although no run of its task is active",
)
def skip_without_reason() -> Iterator[None]:
    decide = rule_plans.decide

    def never(policy, active):
        return OverlapDecision(runs=False) if policy == "skip" else decide(policy, active)

    with replaced(rule_plans, "decide", never):
        yield


@bug(
    "catch-up-takes-the-oldest",
    "ZUB-W03",
    "After a pause the oldest of the missed slots runs instead of the newest",
)
def catch_up_takes_the_oldest() -> Iterator[None]:
    newest = rule_plans._catch_up

    def oldest(policy, missed, cap, *, more, now):
        chosen, dropped = newest(policy, missed, cap, more=more, now=now)
        passed = [d for d in dropped if d.reason.value in {"coalesced", "catch_up_cap"}]
        if not chosen or not passed:
            return chosen, dropped
        first, last = passed[0], chosen[-1]
        swapped = replace(first, index=last[0], slot=last[1])
        kept = [d for d in dropped if d is not first]
        return [(first.index, first.slot), *chosen[:-1]], [*kept, swapped]

    with replaced(rule_plans, "_catch_up", oldest):
        yield


@bug(
    "too-many-missed",
    "Kubernetes CronJob",
    "With too many missed slots none of them is started and nothing is reported",
)
def too_many_missed() -> Iterator[None]:
    choose = rule_plans.choose

    def give_up(schedule, slots, *, more, now):
        if len(slots) > 5:
            return rule_plans.SlotDecision(decided=len(slots))
        return choose(schedule, slots, more=more, now=now)

    with replaced(rule_plans, "choose", give_up):
        yield


@bug(
    "silently-skipped",
    "openclaw#33092, openclaw#10596",
    "A slot that does not run leaves no row that says so",
)
def silently_skipped() -> Iterator[None]:
    with replaced(rule_plans, "ledger_entries", lambda dropped: ()):
        yield


@bug(
    "ledger-row-grows-over-a-run",
    "Rota, before it was simulated",
    "A ledger row about slots that did not run grows to include one that did",
)
def ledger_grows() -> Iterator[None]:
    with replaced(store_plans, "_goes_on", lambda last_at, made, entry: last_at == made.was):
        yield


@bug(
    "read-moves-the-schedule",
    "openclaw#12440",
    "Looking at the list of schedules moves those that are due",
)
def read_moves_the_schedule() -> Iterator[None]:
    from rota.store import views

    look = views.view_queue

    async def view_queue(tx, *args):
        await tx.run("zoo_move")
        return await look(tx, *args)

    with several(
        replaced_operation(views, "view_queue", view_queue),
        queries(zoo_move="update schedules set next_at = next_at + 1 where next_at is not null"),
    ):
        yield
