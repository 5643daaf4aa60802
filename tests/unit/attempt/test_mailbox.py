"""A try's mailbox: open before its program starts, served to its end, done before its verdict."""

from __future__ import annotations

import asyncio

import pytest

from rota.model.attempts import Cancelled, Failed, Succeeded
from tests.unit.attempt.keeper_home_fake import FakeYard, assignment, work_on


class FakeMailboxes:
    """Mailboxes that write down what is done to them."""

    def __init__(self, yard):
        self.yard = yard
        self.done = []
        self.broken = None
        self.stop = None

    def set_callback(self, acknowledged):
        self.acknowledged = acknowledged

    async def open(self, assignment, kept, folder, stop):
        if ("open", folder) not in self.done:
            self.done.append(("open", folder))
        self.started = len(self.yard.started)
        self.stop = stop

    async def close(self, kept, *, drain):
        self.done.append(("close", drain))
        return self.broken

    def release(self, run_id):
        self.done.append(("leave", run_id))


async def test_a_mailbox_is_opened_told_drained_and_left(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    yard.end(b"done\n")
    report = await work_on(desk.store, yard, chance, mailboxes=boxes).run(given)
    assert report.outcome == Succeeded(result='"done"')
    (command,) = yard.started
    folder = command.env["ROTA_MAILBOX"]
    lease, task = given.lease, given.task
    told = {"ROTA_RUN_ID": lease.run_id, "ROTA_ATTEMPT": 1, "ROTA_TASK_ID": task.id,
            "ROTA_SPACE": "main", "ROTA_TRACE_ID": given.trace_id}  # fmt: skip
    assert {name: command.env[name] for name in told} == {n: str(v) for n, v in told.items()}
    assert boxes.done == [("open", folder), ("close", True), ("leave", lease.run_id)]


async def test_a_program_that_misuses_it_is_stopped_and_fails(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance, mailboxes=boxes).run(given))
    while not yard.started:
        await asyncio.sleep(0)
    boxes.broken = "it wrote too much"
    boxes.stop("it wrote too much")
    outcome = (await running).outcome
    assert outcome == Failed(code="mailbox_misused", message="it wrote too much", retryable=False)
    assert yard.cancelled == ["it wrote too much"]


async def test_what_somebody_stopped_is_not_drained(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    running = asyncio.ensure_future(work_on(desk.store, yard, chance, mailboxes=boxes).run(given))
    while not yard.started:
        await asyncio.sleep(0)
    running.cancel()
    assert isinstance((await running).outcome, Cancelled)
    assert ("close", False) in boxes.done


async def test_who_lets_go_leaves_the_mailbox_to_the_next(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    boxes = FakeMailboxes(yard)
    work = work_on(desk.store, yard, chance, mailboxes=boxes)
    running = asyncio.ensure_future(work.run(given))
    while not yard.started:
        await asyncio.sleep(0)
    work.detach(given.lease.run_id)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [what for what, _ in boxes.done] == ["open", "leave"]


async def test_without_mailboxes_nobody_is_told_of_one(desk, chance):
    given, yard = await assignment(desk), FakeYard()
    yard.end(b"done\n")
    await work_on(desk.store, yard, chance).run(given)
    assert "ROTA_MAILBOX" not in yard.started[0].env
