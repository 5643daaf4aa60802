"""Status and operations: what is told to whom, stopping and starting, pausing and going on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from rota.flow.settle import running
from rota.model.attempts import AttemptReport, OutgoingMessage, Succeeded
from rota.model.runs import RunState
from rota.rules.settlement import SettlementContext, settle
from rota.store import settlement as store_settlement
from rota.store.plans import get_pauses
from rota.store.workers import list_lost_runs

OPERATIONS = ("/v1/pause-all", "/v1/resume-all", "/v1/stop", "/v1/start")


async def post(door, path, **options):
    return await door.call(path, method="POST", **options)


async def send(door, task):
    """End a run of a task that sends a message."""
    message = OutgoingMessage(client_id="1", channel="chat", target="ann", body="hello")
    report = AttemptReport(outcome=Succeeded(), messages=(message,))
    context = SettlementContext(policy=task.policy, now=door.store.now())
    lease = await door.bench.claim_one()
    await door.store.write(store_settlement.settle, [settle(running(lease), report, context)])


async def test_status_counts_pools_slots_and_messages(door):
    task = await door.bench.task()
    await door.bench.worker()
    await door.bench.queue(task, 3)
    await send(door, task)
    await door.bench.claim_one()
    door.bench.clock.advance(seconds=7)
    _, status = await door.call("/v1/status")
    pools = {name: pool["ready"] for name, pool in status["pools"].items()}
    assert sum(pools.values()) == 1
    ages = [p["oldest_seconds"] for p in status["pools"].values() if p["ready"]]
    assert ages == [7.0]
    (slot,) = status["slots"].pop("running")
    assert status["slots"] == {"used": 1, "of": 10}
    assert slot["task"] == "job"
    assert status["deliveries"]["pending"] == 1
    assert status["daemon"] is None


async def test_e8_a_member_is_told_of_its_own_space_alone(door):
    _, ann = await door.member("ann")
    theirs = await door.bench.task("theirs")
    await door.bench.planned(theirs, every="1h")
    await door.bench.worker()
    await door.bench.queue(theirs, 4)
    await send(door, theirs)
    await door.bench.claim_one()
    own = await door.bench.task("own", space="ann")
    _, empty = await door.call("/v1/status", token=ann)
    numbers = [empty["queue"][name] for name in ("ready", "later", "held", "running", "waiting")]
    assert numbers == [0, 0, 0, 0, 0]
    assert empty["queue"]["oldest_seconds"] == {}
    assert empty["schedules"] == {"active": 0, "quarantined": 0}
    assert set(empty["deliveries"].values()) == {0}
    assert empty["slots"]["used"] == 0
    assert (empty["workers"], empty["daemon"], empty["next_due"]) == ([], None, None)
    assert empty["unserved_routes"] == []
    await door.bench.queue(own, 2)
    await door.bench.planned(own, every="1h")
    _, status = await door.call("/v1/status", token=ann)
    assert status["queue"]["ready"] == 2
    assert sum(pool["ready"] for pool in status["pools"].values()) == 2
    assert status["schedules"]["active"] == 1
    assert status["next_due"] is not None
    for path in ("/v1/workers", "/v1/machines"):
        assert (await door.call(path, token=ann))[0] == 403


@pytest.mark.parametrize("path", OPERATIONS)
async def test_only_main_steers_the_whole(door, path):
    _, ann = await door.member("ann")
    assert (await post(door, path, token=ann))[0] == 403


async def test_without_a_daemon_there_is_nothing_to_stop(door):
    status, answer = await post(door, "/v1/stop")
    assert (status, answer["error"]["code"]) == (409, "conflict")


async def test_pausing_is_told_and_ends(door):
    (run_id,) = await door.bench.queue(await door.bench.task())
    _, paused = await post(door, "/v1/pause-all")
    assert paused["paused"]
    assert (await post(door, "/v1/pause-all"))[1] == paused
    assert await door.bench.claim() == []
    _, status = await door.call("/v1/status")
    assert status["paused_since"] == paused["paused_since"]
    assert "paused" in {warning["code"] for warning in status["warnings"]}
    _, why = await door.call("/v1/tasks/job/why")
    assert "Everything is paused" in " ".join(why["notes"])
    assert "everything is paused" in str(why)
    assert (await post(door, "/v1/resume-all"))[1] == {"paused": False, "paused_since": None}
    assert await door.bench.claim_ids() == [run_id]
    _, requests = await door.call("/v1/requests")
    assert [r["command"] for r in requests["requests"]][:2] == ["resume_all", "pause_all"]


async def test_a_rehearsed_operation_changes_nothing(working):
    for path in OPERATIONS:
        assert (await post(working, path, Rota_Dry_Run="true"))[0] == 204
    assert working.daemon.state == "working"
    assert await working.store.read(get_pauses) == ()


async def test_a_daemon_tells_of_its_services(working):
    _, status = await working.call("/v1/status")
    assert status["daemon"]["state"] == "working"
    assert status["idle"] is None
    services = {service["name"]: service for service in status["daemon"]["services"]}
    assert {"planner", "postman", "caretaker", "claim", "settle"} <= services.keys()
    assert services["planner"]["silent_seconds"] >= 0
    assert services["planner"]["failures"] == 0


async def test_a_stopped_daemon_takes_nothing_and_a_start_brings_it_back(working):
    done = []

    async def job(run):
        done.append(run.id)

    task = await working.task_of("job", job)
    await post(working, "/v1/stop")
    await working.until_state("stopped")
    assert (await post(working, "/v1/stop"))[1] == {"state": "stopped"}
    _, status = await working.call("/v1/status")
    assert "daemon_stopped" in {warning["code"] for warning in status["warnings"]}
    assert status["workers"] == []
    assert status["idle"] == "the daemon is stopped: run `rota start`"
    (run_id,) = await working.bench.queue(task)
    _, why = await working.call("/v1/tasks/job/why")
    assert "the daemon is stopped, run `rota start`" in str(why)
    _, status = await working.call("/v1/status")
    said = {warning["code"]: warning["message"] for warning in status["warnings"]}
    assert all("`rota start`" in said[code] for code in ("daemon_stopped", "no_worker"))
    assert await working.bench.state(run_id) is RunState.QUEUED
    await post(working, "/v1/start")
    await post(working, "/v1/start")
    await working.until_run(run_id, RunState.SUCCEEDED)
    assert done == [run_id]
    _, requests = await working.call("/v1/requests")
    asked = [request["command"] for request in requests["requests"]]
    assert asked == ["start_daemon", "start_daemon", "stop_daemon", "stop_daemon"]
    assert len(working.crews) == 2


async def test_a_stop_gives_back_what_does_not_end_and_a_start_goes_on_with_it(working):
    begun = asyncio.Event()
    attempts = []

    async def job(run):
        attempts.append(run.attempt)
        begun.set()
        if run.attempt == 1:
            await asyncio.Event().wait()

    (run_id,) = await working.bench.queue(await working.task_of("job", job))
    await begun.wait()
    assert (await post(working, "/v1/stop"))[1] == {"state": "stopping"}
    await working.until_state("stopped")
    assert await working.bench.state(run_id) is RunState.QUEUED
    await post(working, "/v1/start")
    await working.until_run(run_id, RunState.SUCCEEDED)
    assert attempts == [1, 2]
    assert "run.drained" in await working.bench.events(run_id)


async def test_a_function_that_cannot_be_stopped_is_not_tried_again_beside_itself(working):
    begun, go_on = threading.Event(), threading.Event()
    at_once = []

    def job(run):
        at_once.append(run.attempt)
        begun.set()
        go_on.wait()

    (run_id,) = await working.bench.queue(await working.task_of("job", job))
    await asyncio.to_thread(begun.wait)
    await post(working, "/v1/stop")
    await post(working, "/v1/start")  # it waits until the stop has ended
    for _ in range(20):
        _, status = await working.call("/v1/status")
        assert status["daemon"]["state"] in {"stopping", "working"}
        await working.store.read(list_lost_runs, 10)
        assert await working.bench.state(run_id) is RunState.RUNNING
    assert at_once == [1]
    assert len(working.crews) == 1
    go_on.set()
    await working.until_run(run_id, RunState.SUCCEEDED)
    await working.until_state("working")
    assert len(working.crews) == 2
