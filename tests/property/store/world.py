"""Who and what there is around a store: tasks, schedules, workers, time, and what must hold."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
)

from rota.errors import NotFound
from rota.flow.define.schedules import ScheduleSpec, drop_schedule, put_schedule
from rota.flow.define.tasks import delete_task, disable_task, enable_task
from rota.flow.maintain import expire, rescue
from rota.flow.observe.verification import verify
from rota.flow.plan import plan
from rota.model.attempts import Lost
from rota.model.instants import maybe_micros, to_micros
from rota.model.runs import FINISHED, RunState
from rota.model.tasks import After, OnLost, Overlap, Retry
from rota.model.views import RunFilter
from rota.rules.permissions import LOCAL
from rota.store.plans import promote_delayed
from rota.store.views import list_deliveries, list_runs
from rota.store.workers import prune_runs
from rota.testing.fakes import FixedChance, VirtualClock
from tests.property.store.dicts import Model, Row
from tests.tools.store_bench import Bench, micros

CHANCE = FixedChance()
TTL = timedelta(seconds=30)
WAIT = timedelta(seconds=20)
EVERYTHING = RunFilter(limit=100_000)
QUEUED, RUNNING, WAITING = RunState.QUEUED, RunState.RUNNING, RunState.WAITING
CANCELLED = RunState.CANCELLED
PLANNED = {"slot", "catch_up"}

POLICIES = {
    "plain": {"retry": Retry(attempts=2, base=WAIT, jitter=0)},
    "laned": {"lane": "L", "on_lost": OnLost.ASK},
    "hasty": {"on_lost": OnLost.FAIL, "deadline": timedelta(minutes=2), "deliver_to": "test:ann"},
    "ticking": {"overlap": Overlap.SKIP},
}
EDITS = (
    *(None, *Overlap),
    *(ScheduleSpec(every=every) for every in ("10s", "30s", "1m")),
    ScheduleSpec(every="10s", options={"jitter": timedelta(seconds=3)}),
    *("drop", "enable", "delete", "disable", "pause"),
)


class World(RuleBasedStateMachine):
    """A store, its model, and everybody who defines, plans and repairs."""

    tokens, questions, letters = Bundle("tokens"), Bundle("questions"), Bundle("letters")
    runs, workers = Bundle("runs"), Bundle("workers")

    def __init__(self, place):
        super().__init__()
        self.clock = VirtualClock()
        self.runner = asyncio.Runner()
        self.place = place
        self.model = Model()
        self.policies = {}
        self.comers = 0

    def do(self, coroutine):
        return self.runner.run(coroutine)

    @property
    def now(self):
        return self.store.now()

    # who and what there is

    @initialize(target=workers)
    def begin(self):
        """Open a store with tasks, a schedule and a worker."""
        self.store = self.do(self.place.open(self.clock))
        self.bench = Bench(self.store, self.clock)
        for name, policy in POLICIES.items():
            self.put(name, policy)
        self.policies["then"] = self.do(self.bench.task("then", after=After(task="plain"))).policy
        self.planning(put_schedule(self.store, LOCAL, "ticking", ScheduleSpec(every="10s")))
        return self.register()

    def put(self, name, policy):
        self.policies[name] = self.do(self.bench.task(name, **policy)).policy

    def register(self):
        self.comers += 1
        worker = f"w{self.comers}"
        self.do(self.bench.worker(worker, TTL))
        self.model.workers[worker] = self.now + micros(TTL)
        return worker

    @rule(how=st.sampled_from(EDITS))
    def edit(self, how):
        """Change the task that has a schedule, or its schedule."""
        match how:
            case Overlap() | None:
                self.put("ticking", {"overlap": how})
            case ScheduleSpec():
                self.planning(put_schedule(self.store, LOCAL, "ticking", how))
            case "drop":
                self.planning(drop_schedule(self.store, LOCAL, "ticking"))
            case "enable":
                self.planning(enable_task(self.store, LOCAL, "ticking"))
            case "delete":
                self.planning(delete_task(self.store, LOCAL, "ticking"))
                self.cancelled(lambda row: True)
                self.put("ticking", POLICIES["ticking"])
            case "disable" | "pause":
                until = self.clock.now() + timedelta(seconds=25) if how == "pause" else None
                self.planning(disable_task(self.store, LOCAL, "ticking", until=until))
                self.cancelled(lambda row: row.source in PLANNED and row.epoch == 0)

    def cancelled(self, chosen):
        """Check that runs of the task that has changed have ended, or are told to."""
        for row in self.model.runs.values():
            if row.task == "ticking" and chosen(row):
                assert row.state in FINISHED or (row.state is RUNNING and row.cancel)

    def planning(self, coroutine):
        """Do something that may plan slots, and take over what that did to others of the task."""
        try:
            done = self.do(coroutine)
        except NotFound:
            done = None
        self.discover(PLANNED, {QUEUED, CANCELLED})
        for run in self.do(self.store.read(list_runs, EVERYTHING)):
            row = self.model.runs[run.id]
            if row.task != "ticking":
                continue
            if run.state is not row.state:
                assert (row.state, run.state) in {(QUEUED, CANCELLED), (WAITING, CANCELLED)}
                self.model.move(row, (CANCELLED, 0, 0), self.now)
            row.cancel = row.cancel or run.cancel_requested_at is not None
        return done

    def discover(self, sources, states):
        """Take in runs that came into being by themselves; return how many."""
        new = [
            r
            for r in self.do(self.store.read(list_runs, EVERYTHING))
            if r.id not in self.model.runs
        ]
        for run in new:
            assert run.source in sources
            assert run.state in states
            self.take_in(run)
        return len(new)

    def take_in(self, run):
        self.model.runs[run.id] = Row(
            run.task,
            run.source,
            run.lane,
            state=run.state,
            due=to_micros(run.available_at),
            later=run.state is QUEUED and to_micros(run.available_at) > self.now,
            expires=maybe_micros(run.expires_at),
            ended=self.now,
        )

    # time and planning

    @rule(span=st.sampled_from([1, 9, 10, 21, 31, 121, 400]))
    def time_passes(self, span):
        self.clock.advance(seconds=span)

    @rule(
        how=st.sampled_from(
            ["plan", "plan", "promote", "rescue", "expire", "prune", "start_again", "restore"]
        )
    )
    def care(self, how):
        """Do what the planner and the maintenance loop do, or start again."""
        getattr(self, how)()

    def plan(self):
        self.promoted()
        self.planning(plan(self.store))

    def promote(self):
        self.do(self.store.write(promote_delayed, 1_000))
        self.promoted()

    def promoted(self):
        for row in self.model.runs.values():
            row.later = row.later and row.due > self.now

    # repair

    def rescue(self):
        self.do(rescue(self.store, CHANCE, fence=True))
        model = self.model
        model.fenced |= {w for w, until in model.workers.items() if until < self.now}
        for row in model.runs.values():
            if row.state is RUNNING and not model.holds(row.holder):
                target = model.target(self.policies[row.task], row, Lost(reason=""))
                target = (CANCELLED, 0, 0) if row.cancel else target
                expires = self.now + micros(timedelta(hours=24))
                model.move(row, target, self.now, expires=expires, question="lost")
        self.orphaned()
        self.letters_of_the_ended()

    def orphaned(self):
        for key, (state, tries, holder) in self.model.deliveries.items():
            if state == "sending" and not self.model.holds(holder):
                self.model.deliveries[key] = ("unknown", tries, None)

    def letters_of_the_ended(self):
        known = self.model.deliveries
        found = self.do(self.store.read(list_deliveries, None, 10_000))
        known.update((d.id, ("pending", 0, None)) for d in found if d.id not in known)

    def expire(self):
        self.do(expire(self.store, CHANCE))
        for row in self.model.runs.values():
            if row.state in {QUEUED, WAITING} and row.expires and row.expires <= self.now:
                failed = row.state is WAITING and row.question == "lost"
                state = RunState.FAILED if failed else RunState.EXPIRED
                self.model.move(row, (state, 0, 0), self.now)
        self.letters_of_the_ended()

    def prune(self):
        self.clock.advance(seconds=201)
        before = self.now - 200_000_000
        self.do(self.store.write(prune_runs, before, 10_000))
        gone = {i for i, r in self.model.runs.items() if r.state in FINISHED and r.ended < before}
        for run_id in gone:
            del self.model.runs[run_id]
        self.model.forget(before + micros(TTL))
        kept = {letter.id for letter in self.do(self.store.read(list_deliveries, None, 10_000))}
        final = {
            i for i, (state, *_) in self.model.deliveries.items() if state in {"pending", "sending"}
        }
        assert final <= kept
        self.model.deliveries = {i: d for i, d in self.model.deliveries.items() if i in kept}

    def start_again(self):
        self.store = self.bench.store = self.do(self.place.again(self.store, self.clock))

    def restore(self):
        if not hasattr(self.place, "restored"):
            return
        self.clock.advance(TTL + timedelta(seconds=1))  # nobody works on it any more
        self.store = self.bench.store = self.do(self.place.restored(self.store, self.clock))
        self.model.workers.clear()
        self.model.fenced.clear()
        for key, (state, tries, _) in self.model.deliveries.items():
            if state in {"pending", "sending"}:
                self.model.deliveries[key] = ("unknown", max(tries, 1), None)
        self.rescue()

    # what must hold

    @invariant()
    def the_store_says_what_the_model_says(self):
        if not hasattr(self, "store"):
            return
        found = {run.id: run for run in self.do(self.store.read(list_runs, EVERYTHING))}
        assert found.keys() == self.model.runs.keys()
        for run_id, row in self.model.runs.items():
            run = found[run_id]
            facts = (run.state, run.epoch, run.retries, run.losses, run.worker_id)
            wanted = run.cancel_requested_at is not None
            assert (*facts, wanted) == row.facts(), (run_id, row.task)
        states = {d.id: d.state for d in self.do(self.store.read(list_deliveries, None, 10_000))}
        assert states == {i: state for i, (state, *_) in self.model.deliveries.items()}

    @invariant()
    def everything_on_record_holds(self):
        if hasattr(self, "store"):
            assert self.do(verify(self.store)).violations == ()

    def teardown(self):
        if hasattr(self, "store"):
            self.do(self.place.close(self.store))
        self.runner.close()
