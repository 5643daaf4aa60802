"""Code that blocks the event loop is counted, and named to whoever looks."""

from __future__ import annotations

import logging
import threading

import pytest

from rota.api import metrics
from rota.model.runs import RunState
from tests.api.events.test_metrics import figures


@pytest.fixture
def named():
    """An event that is set once a block was named in the log."""
    found = threading.Event()

    class Heard(logging.Handler):
        def emit(self, record):
            if record.getMessage() == "loop.blocked":
                found.set()

    logger, heard = logging.getLogger("rota.runtime.event_loop"), Heard()
    logger.addHandler(heard)
    yield found
    logger.removeHandler(heard)


async def test_a_block_is_a_figure_and_a_warning_that_names_what_ran(working, named, monkeypatch):
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)
    before = await figures(working)
    assert before["rota_loop_blocks_total{}"] == 0
    assert before["rota_loop_blocked_seconds_total{}"] == 0

    async def blocks(run):
        assert named.wait(20)

    (run_id,) = await working.bench.queue(await working.task_of("blocker", blocks))
    await working.until_run(run_id, RunState.SUCCEEDED)

    async def counted():
        return (await figures(working))["rota_loop_blocks_total{}"] == 1

    await working.until(counted)
    assert (await figures(working))["rota_loop_blocked_seconds_total{}"] > 1
    _, status = await working.call("/v1/status")
    (told,) = [one["message"] for one in status["warnings"] if one["code"] == "loop_blocked"]
    assert "blocked the event loop 1 time in the last hour" in told
    assert "the task blocker" in told
    _, ann = await working.member("ann")
    _, status = await working.call("/v1/status", token=ann)
    assert "loop_blocked" not in {one["code"] for one in status["warnings"]}
