"""Figures for Prometheus: right, bounded, and shown to whom they may be shown."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rota.api import metrics
from rota.app.endpoints import open_http_api
from rota.app.settings import Settings

WRONG = "wrong"


@pytest.fixture(autouse=True)
def always_fresh(monkeypatch):
    monkeypatch.setattr(metrics, "FRESH_SECONDS", 0.0)


async def figures(door, **options):
    """Return every sample by its name and labels."""
    answer = await door.ask("/metrics", **options)
    assert answer.status == 200
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    text = (await answer.read()).decode()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


async def test_runs_that_end_are_counted_by_state(door):
    before = await figures(door)
    assert before["rota_runs_total{state=succeeded}"] == 0
    task = await door.bench.task()
    for _ in range(3):
        await door.settled(task)
    assert (await figures(door))["rota_runs_total{state=succeeded}"] == 3


async def test_lateness_is_a_histogram(door):
    await figures(door)
    task = await door.bench.task()
    await door.bench.planned(task, every="1m")
    door.bench.clock.advance(seconds=62)
    await door.bench.plan()
    await door.bench.end(await door.bench.claim_one())
    found = await figures(door)
    assert found["rota_lateness_seconds_bucket{le=1.0}"] == 0
    assert found["rota_lateness_seconds_bucket{le=2.5}"] == 1
    assert found["rota_lateness_seconds_bucket{le=+Inf}"] == 1
    assert found["rota_lateness_seconds_sum{}"] == 2.0


async def test_the_queue_is_measured_by_pool(door):
    task = await door.bench.task()
    await door.bench.worker()
    await door.bench.queue(task, 2)
    await door.bench.claim_one()
    door.bench.clock.advance(seconds=7)
    found = await figures(door)
    assert (
        found["rota_queue_depth{pool=background}"] + found["rota_queue_depth{pool=foreground}"] == 1
    )
    assert max(v for k, v in found.items() if k.startswith("rota_queue_oldest_seconds")) == 7
    assert found["rota_slots{of=used}"] == 1
    assert found["rota_slots{of=total}"] == 10
    assert found["rota_deliveries_now{state=dead}"] == 0
    assert found["rota_slots_skipped{reason=paused}"] == 0


async def test_no_name_of_a_task_or_a_space_is_a_label(door):
    await door.settled(await door.bench.task("secretname", space="secretspace"))
    assert "secret" not in str(await figures(door))


async def test_requests_are_counted_by_route_and_status(door):
    await door.call("/v1/tasks/7")
    await door.call("/v1/tasks/8")
    await door.call("/nothing/here/at/all")
    await door.call("/v1/status", token=WRONG)
    found = await figures(door)
    assert found["rota_http_requests_total{route=GET /v1/tasks/{task},status=404}"] == 2
    assert found["rota_http_requests_total{route=-,status=404}"] == 1
    assert found["rota_http_requests_total{route=-,status=401}"] == 1


async def test_a_daemon_tells_how_old_its_last_plan_is(working):
    found = await figures(working)
    assert found["rota_service_silent_seconds{service=planner}"] >= 0
    assert found["rota_service_failures_total{service=planner}"] == 0
    assert any(name.startswith("rota_build_info{version=") for name in found)


async def test_figures_are_for_keys_of_main_alone(door):
    _, ann = await door.member("ann")
    assert (await door.ask("/metrics", token=ann)).status == 403
    assert (await door.ask("/metrics", token=WRONG)).status == 401
    assert (await door.ask("/metrics", token="")).status == 401
    assert (await door.ask("/metrics", method="POST")).status == 405


async def test_figures_may_be_open_on_this_machine(door, tmp_path):
    settings = Settings(home=tmp_path, store="memory:", port=0, metrics_open=True)
    async with open_http_api(settings, door.store) as url:
        door.url = url
        assert (await door.ask("/metrics", token="")).status == 200
        assert (await door.ask("/metrics", token="", X_Forwarded_For="9.9.9.9")).status == 401
        assert (await door.ask("/metrics", token=WRONG)).status == 401
        assert (await door.ask("/v1/status", token="")).status == 401
