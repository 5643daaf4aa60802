"""What becomes of work that was lost, where its task does not say."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rota.errors import Exhausted
from rota.flow.claim import make_assignments
from rota.flow.maintain import rescue
from rota.flow.settle import settle_attempts
from rota.model.attempts import AttemptReport, ExitReason, Lost, WaitingForAnswer
from rota.model.runs import RunState
from rota.model.tasks import NewTask, OnLost, Policy, TaskKind
from rota.rules.prompts import INTERRUPTED
from rota.rules.settlement import AGENT_LOSS_DELAY
from rota.store.attempt_requests import record_effect
from rota.store.attempts import record_launch, renew_home_lease
from rota.store.tasks import put_task
from tests.contract.store.test_attempts import kept_for
from tests.tools.attempt_bench import talking
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, leave, work_on
from tests.unit.attempt.test_relaunch import DONE, House, Trial, agent_run, line, said
from tests.unit.flow.test_rescue import lose


async def agent(desk, space="main", **spec):
    desk.routes.append("agent")
    owner = await desk.space(space)
    return await desk.store.write(
        put_task,
        NewTask(space_id=owner.id, name="look", route="agent", kind=TaskKind.AGENT, spec=spec),
        None,
    )


async def begin_and_lose(desk, chance, given, *, instead=None):
    """Let a worker begin an attempt and vanish with its home, then rescue."""
    yard = FakeYard()
    work = work_on(desk.store, yard, chance)
    await desk.store.write(renew_home_lease, yard.home, yard.host, desk.store.now() + 1)
    running = asyncio.ensure_future(work.run(given))
    while not yard.started:
        await asyncio.sleep(0)
    await leave(work, given, running)
    if instead is not None:
        task = given.task
        changed = NewTask(
            space_id=task.space_id, name=task.name, kind=task.kind, route=task.route, spec=instead,
            origin=task.origin,
        )  # fmt: skip
        await desk.store.write(put_task, changed, None)
    desk.clock.advance(timedelta(days=1))
    await rescue(desk.store, chance, fence=True)
    return await desk.state(given.lease.run_id)


@pytest.mark.parametrize(
    ("spec", "state"),
    [
        ({}, RunState.WAITING),
        ({"executor": "tmux"}, RunState.WAITING),
        ({"executor": "sandbox", "network": "open"}, RunState.WAITING),
        ({"executor": "sandbox"}, RunState.QUEUED),
        ({"executor": "sandbox", "network": "egress"}, RunState.QUEUED),
        ({"space": "ann"}, RunState.QUEUED),
    ],
)
async def test_a_person_is_asked_about_an_agent_with_an_open_network(desk, chance, spec, state):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="look", **spec)
    assert await begin_and_lose(desk, chance, given) is state


@pytest.mark.parametrize(
    ("began", "now", "state"),
    [
        ({}, {"executor": "sandbox"}, RunState.WAITING),
        ({"executor": "sandbox"}, {}, RunState.QUEUED),
        ({}, {"executor": "gone"}, RunState.WAITING),
        ({"executor": "sandbox"}, {"executor": "gone"}, RunState.QUEUED),
    ],
)
async def test_what_an_attempt_began_as_counts_whatever_its_task_says_later(
    desk, chance, began, now, state
):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="look", **began)
    assert await begin_and_lose(desk, chance, given, instead=now) is state


@pytest.mark.parametrize(
    ("seen", "told"),
    [
        (True, "it had written through the gateway"),
        (False, "whether it had an effect outside is not known"),
        (None, "whether it had an effect outside is not known"),
    ],
)
async def test_the_gateway_does_not_see_all_that_an_agent_with_an_open_network_does(
    desk, chance, seen, told
):
    given = await assignment(desk, kind=TaskKind.AGENT, instructions="look")
    yard = FakeYard()
    yard.writes, yard.seen_writing = True, seen
    yard.end(reason=ExitReason.LOST_KEEPER_DIED, code=None)
    report = await work_on(desk.store, yard, chance).run(given)
    assert told in report.outcome.reason
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert await desk.state(given.lease.run_id) is RunState.WAITING


async def test_an_agent_that_was_lost_before_it_was_begun_is_tried_again(desk, chance):
    (run_id,) = await desk.queue(await agent(desk))
    await lose(desk, chance)
    assert await desk.state(run_id) is RunState.QUEUED


async def test_what_sent_nothing_is_tried_again_and_what_sent_something_is_asked_about(
    desk, chance
):
    talk = await talking(desk)
    await lose(desk, chance)
    lease, speaker = await talk.begin()
    assert lease.losses == 1
    await desk.store.write(record_effect, speaker, "hi", "{}", talk.delivery(speaker, "hi"))
    desk.clock.advance(timedelta(days=1))
    await rescue(desk.store, chance, fence=True)
    assert await desk.state(lease.run_id) is RunState.WAITING


async def test_a_lost_attempt_that_had_an_approval_is_asked_about(desk):
    talk = await talking(desk)
    lease, _ = await talk.begin()
    await talk.end(
        lease, WaitingForAnswer(question="Send it?", action="send", options=("approve", "deny"))
    )
    await talk.answer(lease, "approve")
    claimed = await desk.claimed(1)
    (given,) = make_assignments(claimed, desk.store.database.incarnation)
    report = AttemptReport(outcome=Lost(reason="gone"))
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert await desk.state(lease.run_id) is RunState.WAITING


async def test_an_agent_that_is_lost_again_rests_before_it_is_tried_once_more(desk, chance):
    task = await agent(desk)
    task = await desk.store.write(
        put_task, NewTask(
            space_id=task.space_id, name="look", route="agent", kind=TaskKind.AGENT,
            policy=Policy(on_lost=OnLost.RETRY),
        ),
        None,
    )  # fmt: skip
    (run_id,) = await desk.queue(task)
    await lose(desk, chance)
    await lose(desk, chance)
    run = await desk.run(run_id)
    assert (run.losses, run.available_at) == (2, desk.clock.now() + AGENT_LOSS_DELAY)


@pytest.mark.parametrize(
    ("could", "wrote", "state", "said"),
    [
        (True, True, RunState.WAITING, "its keeper was killed; it had written through"),
        (True, None, RunState.WAITING, "whether it had an effect outside is not known"),
        (True, False, RunState.QUEUED, "its keeper was killed"),
        (False, None, RunState.QUEUED, "its keeper was killed"),
        (False, True, RunState.WAITING, "it had written through the gateway"),
    ],
)
async def test_a_lost_attempt_is_asked_about_if_it_has_or_may_have_written(
    desk, chance, could, wrote, state, said
):
    given = await assignment(desk)
    yard = FakeYard()
    yard.writes, yard.seen_writing = could, wrote
    yard.end(reason=ExitReason.LOST_KEEPER_DIED, code=None)
    report = await work_on(desk.store, yard, chance).run(given)
    assert said in report.outcome.reason
    assert report.outcome.reason.endswith("killed") is (state is RunState.QUEUED)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert await desk.state(given.lease.run_id) is state


class ExhaustedYard(FakeYard):
    """A machine that has no room left for a keeper."""

    async def start(self, *_):
        raise Exhausted("this machine has run out: No space left on device")


@pytest.mark.parametrize("kind", [TaskKind.SCRIPT, TaskKind.AGENT])
async def test_what_could_not_be_started_for_want_of_room_is_tried_again_without_a_question(
    desk, chance, kind
):
    given = await assignment(desk, kind=kind, instructions="look")
    report = await work_on(desk.store, ExhaustedYard(), chance).run(given)
    said = "it was never started: this machine has run out: No space left on device"
    assert report.outcome == Lost(reason=said, wrote=False)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    assert await desk.state(given.lease.run_id) is RunState.QUEUED


@pytest.mark.parametrize(("could", "state"), [(True, "waiting"), (False, "queued")])
async def test_where_the_home_of_a_lost_attempt_is_gone_what_it_could_do_counts(
    desk, chance, could, state
):
    given = await assignment(desk)
    await desk.store.write(renew_home_lease, "elsewhere", "there", desk.store.now() + 1)
    kept = replace(kept_for(given.lease), home="elsewhere", can_write_outside=could)
    assert await desk.store.write(record_launch, kept, "w1")
    desk.clock.advance(timedelta(days=1))
    await rescue(desk.store, chance, fence=True)
    assert await desk.state(given.lease.run_id) == state


@pytest.mark.parametrize("session", ["shared", "isolated"])
async def test_gen_35_a_lost_agent_goes_on_in_its_session_and_is_told(desk, session):
    given = await agent_run(desk, session=session, policy=Policy(on_lost=OnLost.RETRY))
    yard = Trial(said(line("session", id="s-1"), reason=ExitReason.INIT_KILLED), said(DONE))
    work = House(desk, yard).work
    report = await work.run(given)
    assert isinstance(report.outcome, Lost)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    claimed = await desk.claimed(1, routes=["agent"])
    (again,) = make_assignments(claimed, desk.store.database.incarnation)
    await work.run(again)
    assert [room.session for room in yard.rooms] == [None, "s-1"]
    first, second = (started.stdin.decode() for started in yard.started)
    assert INTERRUPTED not in first
    assert INTERRUPTED in second
