"""A store against a model of dicts: whatever is asked of it, in whatever order, by whomever.

Leases, questions and deliveries stay in bundles after they have lost their meaning and are used
again, by workers that were fenced, for epochs that have passed and by stores that were closed. After
every step the store says what the model says, and everything on record holds.

`ROTA_EXAMPLES=20` runs twenty times as many histories, and other ones.
"""

from __future__ import annotations

import os
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    multiple,
    rule,
    run_state_machine_as_test,
)

from rota.errors import IllegalMove, NotFound
from rota.flow.define.runs import answer_question, cancel_run
from rota.flow.settle import settle_attempts
from rota.model.attempts import (
    Assignment,
    AttemptReport,
    Cancelled,
    Drained,
    Expired,
    Failed,
    Lost,
    Succeeded,
    WaitingForAnswer,
)
from rota.model.notifications import DeliveryState
from rota.model.runs import FINISHED, RunState
from rota.rules.permissions import LOCAL
from rota.store.outbox import claim_deliveries, record_delivery
from rota.store.tasks import find_task
from rota.store.views import get_run, list_deliveries, list_questions
from rota.store.workers import renew_worker
from rota.testing.fakes import FixedChance
from tests.property.store import world
from tests.tools.store_bench import micros

QUEUED, RUNNING, WAITING = RunState.QUEUED, RunState.RUNNING, RunState.WAITING
CHANCE = FixedChance()
OUTCOMES = (
    Succeeded(),
    Succeeded(result="1"),
    Failed(code="x", message="no"),
    Failed(code="x", message="no", retryable=False),
    WaitingForAnswer(question="?", expires_in=timedelta(minutes=5)),
    Cancelled(reason="no"),
    Expired(reason="late"),
    Lost(reason="gone"),
    Drained(),
)
ENDS_OF_LETTERS = ("pending", "sent", "unknown", "dead")
GIVEN_BACK = st.sampled_from([Drained(), Lost(reason="gone"), None])
MORE = int(os.environ.get("ROTA_EXAMPLES", "1"))
EXAMPLES = {"memory": 80, "sqlite": 12, "postgres": 5}
STEPS = 40


class StoreMachine(world.World):
    """Callers, workers and postmen, some of them long out of date."""

    # queue, claim, settle

    @rule(
        target=world.World.runs,
        task=st.sampled_from(["plain", "laned", "hasty"]),
        count=st.integers(1, 4),
        wait=st.sampled_from([0, 0, 15]),
    )
    def enqueue(self, task, count, wait):
        found = self.do(self.store.read(find_task, self.do(self.bench.space()).id, task))
        at = self.clock.now() + timedelta(seconds=wait) if wait else None
        ids = self.do(self.bench.queue(found, count, at=at))
        for run_id in ids:
            self.take_in(self.do(self.store.read(get_run, run_id)))
        return multiple(*ids)

    @rule(
        task=st.sampled_from(["plain", "laned"]),
        key=st.sampled_from("ab"),
        payload=st.integers(0, 1),
    )
    def enqueue_by_key(self, task, key, payload):
        found = self.do(self.store.read(find_task, self.do(self.bench.space()).id, task))
        batch = self.bench.batch(found, [payload], [key])
        ((outcome,),) = self.do(self.bench.enqueue(batch))
        run = self.do(self.store.read(get_run, outcome.run_id))
        assert outcome.created == (run.id not in self.model.runs)
        assert outcome.conflict == (run.payload != str(payload))
        if outcome.created:
            self.take_in(run)

    @rule(target=world.World.workers)
    def comes(self):
        return self.register()

    @rule(worker=world.World.workers)
    def renew(self, worker):
        until = self.now + micros(world.TTL)
        renewal = self.do(self.store.write(renew_worker, worker, until))
        assert renewal.alive == self.model.holds(worker)
        if renewal.alive:
            self.model.workers[worker] = until
            held = {i for i, row in self.model.runs.items() if row.holder == worker}
            assert set(renewal.held) == held
            assert set(renewal.cancels) == {i for i in held if self.model.runs[i].cancel}

    @rule(target=world.World.tokens, worker=world.World.workers, want=st.integers(1, 4))
    def claim(self, worker, want):
        return multiple(*self.claimed(worker, want))

    @rule(
        target=world.World.tokens,
        outcomes=st.lists(st.sampled_from(OUTCOMES), min_size=1),
        stop=st.booleans(),
    )
    def work(self, outcomes, stop):
        """Claim with a worker that holds its lease, and end the runs but the last."""
        tokens = self.claimed(self.alive(), len(outcomes) + 1)
        if stop and tokens:
            self.cancelled_by_hand(tokens[0].lease.run_id)
        for token, outcome in zip(tokens[:-1] or tokens, outcomes, strict=False):
            self.ends(token, outcome)
        return multiple(*tokens)

    @rule(target=world.World.tokens, given=GIVEN_BACK, outcome=st.sampled_from(OUTCOMES))
    def oversleep(self, given, outcome):
        """Let runs be given back and begun again, and their former holders come with an end."""
        sleeper = self.alive()
        old = self.claimed(sleeper, 2)
        if given is None:
            self.clock.advance(world.TTL + timedelta(seconds=1))
            self.rescue()
        for token in old if given else ():
            self.ends(token, given)
        new = [*self.claimed(sleeper, 1), *self.claimed(self.register(), 10)]
        for token in old:
            self.ends(token, outcome)
        return multiple(*old, *new)

    def alive(self):
        """Return a worker that holds its lease."""
        known = [worker for worker in self.model.workers if self.model.holds(worker)]
        return known[-1] if known else self.register()

    def claimed(self, worker, want):
        expected = min(want, self.model.claimable()) if worker not in self.model.fenced else 0
        claimed = self.do(self.bench.claimed(want, worker))
        assert len(claimed.leases) == expected
        for lease in claimed.leases:
            row = self.model.runs[lease.run_id]
            assert (row.state, row.later, lease.epoch) == (QUEUED, False, row.epoch + 1)
            row.state, row.epoch, row.holder = RUNNING, row.epoch + 1, worker
        return [Assignment(x, claimed.tasks[x.task_id], ()) for x in claimed.leases]

    @rule(token=world.World.tokens, outcome=st.sampled_from(OUTCOMES))
    def settle(self, token, outcome):
        """End a run with any lease there ever was."""
        self.ends(token, outcome, times=2)

    def ends(self, token, outcome, times=1):
        """Settle a lease, once or several times in one step; only the first can be in time."""
        row = self.model.runs.get(token.lease.run_id)
        current = row is not None and (row.state, row.epoch) == (RUNNING, token.lease.epoch)
        target = self.model.target(token.task.policy, token.lease, outcome)
        stands = row is not None and (row.epoch, row.state) == (token.lease.epoch, target[0])
        batch = [(token, AttemptReport(outcome=outcome))] * times
        first, *others = self.do(settle_attempts(self.store, batch, CHANCE))
        assert first == (current or stands)
        assert set(others) <= {first and not current}
        if not current:
            return
        asked = isinstance(outcome, WaitingForAnswer)
        life = timedelta(minutes=5) if asked else timedelta(hours=24)
        kind = "ask" if asked else "lost"
        self.model.move(row, target, self.now, expires=self.now + micros(life), question=kind)
        followed = row.task == "plain" and row.state is RunState.SUCCEEDED
        assert self.discover({"after"}, {QUEUED}) == followed
        self.letters_came(row, token.task.policy)

    def letters_came(self, row, policy):
        known = self.model.deliveries
        new = [
            d for d in self.do(self.store.read(list_deliveries, None, 10_000)) if d.id not in known
        ]
        speaks = row.state in FINISHED and row.state is not RunState.CANCELLED
        assert len(new) == (policy.deliver_to is not None and speaks)
        known.update((d.id, ("pending", 0, None)) for d in new)

    @rule(run_id=world.World.runs)
    def cancel(self, run_id):
        """Cancel any run there ever was."""
        self.cancelled_by_hand(run_id)

    def cancelled_by_hand(self, run_id):
        row = self.model.runs.get(run_id)
        try:
            self.do(cancel_run(self.store, LOCAL, run_id, CHANCE))
        except (IllegalMove, NotFound):
            assert row is None or row.state in FINISHED
            return
        assert row.state not in FINISHED
        if row.state is RUNNING:
            row.cancel = True
        else:
            self.model.move(row, (RunState.CANCELLED, 0, 0), self.now)

    @rule(target=world.World.questions, text=st.sampled_from(["retry", "fail", None]))
    def answer_what_is_open(self, text):
        waiting = [run_id for run_id, row in self.model.runs.items() if row.state is WAITING]
        found = self.do(self.store.read(list_questions, waiting))
        open_ones = [question for question in found if question.answered_at is None]
        assert {question.run_id for question in open_ones} == set(waiting)
        for question in open_ones if text else ():
            self.answered(question, text)
        return multiple(*open_ones)

    @rule(question=world.World.questions, text=st.sampled_from(["retry", "fail"]))
    def answer(self, question, text):
        """Answer any question there ever was."""
        self.answered(question, text)

    def answered(self, question, text):
        row = self.model.runs.get(question.run_id)
        valid = row is not None and (row.state, row.epoch) == (WAITING, question.epoch)
        try:
            self.do(answer_question(self.store, LOCAL, question.id, text))
        except (IllegalMove, NotFound):
            assert not valid
            return
        assert valid
        lost = question.kind == "lost"
        if lost and text == "fail":
            self.model.move(row, (RunState.FAILED, 0, 0), self.now)
            self.letters_came(row, self.policies[row.task])
        else:
            self.model.move(row, (QUEUED, 0, int(lost)), self.now)
            row.expires = None

    @rule(target=world.World.letters, worker=world.World.workers)
    def take_letters(self, worker):
        return multiple(*self.taken(worker))

    def taken(self, worker):
        letters = self.do(self.store.write(claim_deliveries, worker, 2))
        for letter in letters:
            state, tries, _ = self.model.deliveries[letter.id]
            assert (state, letter.tries) == ("pending", tries + 1)
            self.model.deliveries[letter.id] = ("sending", tries + 1, worker)
        return letters

    @rule(target=world.World.letters, state=st.sampled_from(ENDS_OF_LETTERS))
    def deliver_late(self, state):
        """Let letters be taken again after they were given back, and their former takers come."""
        old = self.taken(self.alive())
        for letter in old:
            self.marked(letter, "pending")
        new = self.taken(self.register())
        for letter in old:
            self.marked(letter, state)
        return multiple(*old, *new)

    @rule(letter=world.World.letters, state=st.sampled_from(ENDS_OF_LETTERS))
    def mark_letter(self, letter, state):
        """Mark any letter that was ever taken."""
        self.marked(letter, state)

    def marked(self, letter, state):
        expected = self.model.deliveries.get(letter.id, ("", 0, None))[:2]
        marked = self.store.write(record_delivery, letter, DeliveryState(state), None, self.now)
        taken = self.do(marked)
        assert taken == (expected == ("sending", letter.tries))
        if taken:
            self.model.deliveries[letter.id] = (state, letter.tries, None)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", EXAMPLES)
def test_a_store_does_what_the_model_does(kind, places):
    run_state_machine_as_test(
        lambda: StoreMachine(places(kind)),
        settings=settings(
            max_examples=EXAMPLES[kind] * MORE,
            stateful_step_count=STEPS,
            derandomize=MORE == 1,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
