"""Limits that are lifted at a known time: the run waits until then, and counts no attempt."""

from __future__ import annotations

from datetime import timedelta

import pytest

from rota.flow.attempt.attempt import requeue_until_lifted
from rota.model.agents import AgentErrorKind, AgentResult
from rota.model.attempts import AttemptReport, Drained, Failed, Succeeded
from tests.unit.attempt.test_relaunch import DONE, House, Trial, agent_run, line, said


def limit(seconds, desk):
    lifted = desk.clock.now().timestamp() + seconds
    return line("error", **{"class": "rate_limit", "message": "limit reached", "until": lifted})


async def test_a_limit_that_is_lifted_later_gives_the_run_back_until_then(desk):
    given = await agent_run(desk)
    house = House(desk, Trial(said(limit(3600, desk), code=1)))
    outcome = await house.run(given)
    assert isinstance(outcome, Drained)
    assert outcome.until == desk.store.now() + 3600 * 1_000_000
    assert "accepts no requests until 2026-" in outcome.reason
    assert house.waited == []


@pytest.mark.parametrize(
    ("seconds", "changes"),
    [(3600, {"thread": "cli:default"}), (3600, {"epoch": 20}), (9 * 86_400, {})],
)
async def test_nobody_waits_in_vain_for_a_limit_to_be_lifted(desk, seconds, changes):
    given = await agent_run(desk)
    work = given._replace(lease=given.lease._replace(**changes))
    report = requeue_until_lifted(
        AttemptReport(outcome=Failed(code="rate_limit", message="")),
        AgentResult(
            outcome=Failed(code="rate_limit", message=""),
            fault=AgentErrorKind.RATE_LIMIT,
            until=desk.clock.now() + timedelta(seconds=seconds),
        ),
        work,
        desk.store.now(),
    )
    assert isinstance(report.outcome, Failed)


async def test_a_limit_that_is_lifted_in_a_moment_is_waited_for_inside_the_attempt(desk):
    given = await agent_run(desk)
    house = House(desk, Trial(said(limit(8, desk)), said(DONE)))
    assert await house.run(given) == Succeeded(result='"done"')
    assert house.waited == [8.0]
