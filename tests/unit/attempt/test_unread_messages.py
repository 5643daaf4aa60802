"""Messages of a run whose program never began: nobody has read them."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from random import Random

import pytest

from rota.errors import Unavailable
from rota.executors.shared import exec_program, port_forward
from rota.flow.define.tasks import put_task
from rota.flow.maintain import rescue
from rota.flow.settle import settle_attempts
from rota.model.attempts import CANNOT_START, ExitReason
from rota.model.runs import RunState
from rota.model.tasks import OnLost
from rota.model.threads import MessageState
from rota.rules.permissions import LOCAL
from rota.store.threads import assign_messages, list_messages
from tests.unit.attempt.keeper_home_fake import FakeYard
from tests.unit.attempt.test_conversation import HERE, answering, claim, tell
from tests.unit.attempt.test_relaunch import DONE, OVERLOAD, House, Trial, said

NO_PROGRAM = b"cannot start think: No such file or directory\n"


class Refusing(FakeYard):
    """A yard where nothing can be started."""

    async def start(self, *given):
        raise Unavailable("there is no executor 'x' here")


async def ended(desk, yard):
    """Let the next run come to its end in a yard; return its id."""
    given = await claim(desk)
    report = await House(desk, yard).work.run(given)
    assert await settle_attempts(desk.store, [(given, report)], Random(1)) == [True]
    return given.lease.run_id


async def states(desk):
    found = await desk.store.read(list_messages, HERE, None, 1 << 62, 10)
    return [(message.body, message.state) for message in reversed(found)]


def failing(err=NO_PROGRAM, **facts):
    """Return a yard whose program writes only errors."""
    yard = Trial()

    async def begin(*given):
        yard.err = err
        yard.end(**{"code": 126, **facts})

    yard.start = begin
    return yard


@pytest.mark.parametrize(
    "yard",
    [
        failing, Refusing,
        lambda: failing(b"cannot start container: image not known", code=125),
        lambda: failing(b"", reason=ExitReason.EXEC_FAILED, code=None),
        lambda: failing(b"", reason=ExitReason.SPAWN_FAILED, code=None),
    ],
)  # fmt: skip
async def test_what_nobody_began_to_read_is_unread_and_told_to_the_next_run_once(desk, yard):
    await answering(desk)
    await tell(desk, "cancel the flight")
    assert await desk.state(await ended(desk, yard())) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.UNREAD)]
    await tell(desk, "two")
    works = Trial(said(DONE), said(DONE))
    assert await desk.state(await ended(desk, works)) is RunState.SUCCEEDED
    await tell(desk, "three")
    await ended(desk, works)
    told = [started.stdin.decode() for started in works.started]
    assert [text.count("cancel the flight") for text in told] == [1, 0]
    assert [state for _, state in await states(desk)] == [MessageState.GIVEN] * 3


@pytest.mark.parametrize(
    "yard",
    [
        lambda: failing(b"sh: 1: think: not found\n", code=127),
        lambda: failing(b"", code=1),
        lambda: Trial(said(OVERLOAD, code=1), said(b"", reason=ExitReason.EXEC_FAILED, code=None)),
        lambda: failing(b"", reason=ExitReason.TOO_MANY_PROCESSES, code=None),
    ],
)
async def test_a_program_that_began_has_read_what_it_was_given(desk, yard):
    await answering(desk)
    await tell(desk, "cancel the flight")
    assert await desk.state(await ended(desk, yard())) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.GIVEN)]


async def test_what_was_given_to_a_worker_that_died_before_it_began_is_unread(desk):
    task = await answering(desk)
    policy = replace(task.policy, on_lost=OnLost.FAIL)
    await put_task(
        desk.store, LOCAL, "talk", kind=task.kind, route="agent", thread=HERE,
        spec=dict(task.spec), policy=policy, replace=True,
    )  # fmt: skip
    await tell(desk, "cancel the flight")
    given = await claim(desk)
    await desk.store.write(assign_messages, given.lease.run_id, given.lease.epoch, "w1")
    desk.clock.advance(timedelta(days=1))
    await rescue(desk.store, Random(1), fence=True)
    assert await desk.state(given.lease.run_id) is RunState.FAILED
    assert await states(desk) == [("cancel the flight", MessageState.UNREAD)]


def test_executors_say_it_in_the_same_words():
    assert CANNOT_START.decode() == exec_program.CANNOT_START == port_forward.CANNOT_START
