"""Prometheus metrics: gauges from the store, counters since the first request.

No label contains the name of a task or space, so the number of series depends only on states and
routes.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from itertools import accumulate
from typing import TYPE_CHECKING

from rota.commands.context import AppContext
from rota.model.events import EventName, EventPosition
from rota.model.instants import from_micros
from rota.model.notifications import AT_REST, DeliveryState
from rota.model.runs import FINISHED
from rota.model.schedules import LedgerReason
from rota.model.tasks import Pool
from rota.model.views import QueueView, WorkerView
from rota.store.events import count_events, count_skipped_slots, last_event_position
from rota.store.views import list_workers, view_queue

if TYPE_CHECKING:
    from prometheus_client.core import Metric

KIND = "text/plain; version=0.0.4; charset=utf-8"
MOST_EVENTS = 10_000
MOST_PAGES = 10
FRESH_SECONDS = 1.0
"""Repeated requests within this time get the same values."""
BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1_800.0)
_MICROS = [int(bound * 1_000_000) for bound in BOUNDS]
_SENT = {
    EventName.DELIVERY_SENT.value: DeliveryState.SENT.value,
    EventName.DELIVERY_UNKNOWN.value: DeliveryState.UNKNOWN.value,
    EventName.DELIVERY_DEAD.value: DeliveryState.DEAD.value,
    EventName.DELIVERY_WITHDRAWN.value: DeliveryState.WITHDRAWN.value,
}


class Metrics:
    """Counters of this process and access to the values in the store."""

    def __init__(self, app: AppContext, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._monotonic = monotonic
        self._position: EventPosition | None = None
        self._runs: Counter[str] = Counter({state.value: 0 for state in FINISHED})
        self._messages: Counter[str] = Counter(dict.fromkeys(_SENT.values(), 0))
        self._late = [0] * (len(BOUNDS) + 1)
        self._late_sum = 0.0
        self._asking = asyncio.Lock()
        self._text = b""
        self._read_at = float("-inf")

    async def text(self) -> bytes:
        """Return all metrics in the Prometheus text format."""
        async with self._asking:
            if self._monotonic() - self._read_at >= FRESH_SECONDS:
                self._text = await self._read()
                self._read_at = self._monotonic()
            return self._text

    async def _read(self) -> bytes:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - slow

        await self._count()
        store = self._app.store
        families = _Families(
            queue=await store.read(view_queue),
            workers=await store.read(list_workers),
            skipped=dict(await store.read(count_skipped_slots)),
            now=store.now(),
        )
        registry = CollectorRegistry(auto_describe=False)
        registry.register(_Collector([*self._counted(), *families.gauges(), *self._own()]))
        return generate_latest(registry)

    async def _count(self) -> None:
        """Count a bounded number of events since the last call."""
        store = self._app.store
        if self._position is None:
            self._position = await store.read(last_event_position)
        for _ in range(MOST_PAGES):
            tally = await store.read(count_events, self._position, MOST_EVENTS, _MICROS)
            self._position = tally.position
            for name, state, count in tally.events:
                if name == EventName.SETTLED.value:
                    self._runs[state] += count
                elif name in _SENT:
                    self._messages[_SENT[name]] += count
            for bucket, count, micros in tally.late:
                self._late[bucket] += count
                self._late_sum += micros / 1_000_000
            if not tally.more:
                break

    def _counted(self) -> Iterator[Metric]:
        from prometheus_client.core import (  # noqa: PLC0415 - slow to load
            CounterMetricFamily,
            HistogramMetricFamily,
        )

        runs = CounterMetricFamily("rota_runs", "Finished runs, by state.", labels=["state"])
        for state, count in sorted(self._runs.items()):
            runs.add_metric([state], count)
        yield runs
        messages = CounterMetricFamily("rota_deliveries", "Messages by outcome.", labels=["state"])
        for state, count in sorted(self._messages.items()):
            messages.add_metric([state], count)
        yield messages
        buckets = list(zip([*map(str, BOUNDS), "+Inf"], accumulate(self._late), strict=True))
        late = HistogramMetricFamily(
            "rota_lateness_seconds",
            "Time from a slot's instant to the start of its work, including jitter.",
        )
        late.add_metric([], buckets, self._late_sum)
        yield late

    def _own(self) -> Iterator[Metric]:
        """Yield the metrics of this process."""
        from prometheus_client.core import (  # noqa: PLC0415 - slow to load
            CounterMetricFamily,
            GaugeMetricFamily,
        )

        build = GaugeMetricFamily(
            "rota_build_info", "The version of this daemon.", labels=["version"]
        )
        build.add_metric([version("rota")], 1)
        yield build
        requests = CounterMetricFamily(
            "rota_http_requests", "HTTP requests by route and status.", labels=["route", "status"]
        )
        for (route, status), count in sorted(self._app.answers.items()):
            requests.add_metric([route, str(status)], count)
        yield requests
        daemon = self._app.daemon
        if daemon is None:
            return
        silent = GaugeMetricFamily(
            "rota_service_silent_seconds",
            "Seconds since the last successful step of a daemon loop.",
            labels=["service"],
        )
        failures = CounterMetricFamily(
            "rota_service_failures", "Failed steps of a daemon loop.", labels=["service"]
        )
        for service in daemon.services:
            silent.add_metric([service.name], service.silent_for)
            failures.add_metric([service.name], service.failures)
        yield silent
        yield failures
        blocks = daemon.blocks
        if blocks is not None:
            yield CounterMetricFamily(
                "rota_loop_blocks",
                "Number of times that code blocked the event loop for more than a second.",
                value=blocks.count,
            )
            yield CounterMetricFamily(
                "rota_loop_blocked_seconds",
                "Total seconds of such blocks.",
                value=blocks.seconds,
            )


class _Families:
    """The metrics that are stored in the database."""

    def __init__(
        self, queue: QueueView, workers: list[WorkerView], skipped: dict[str, int], now: int
    ) -> None:
        self._queue = queue
        self._workers = workers
        self._skipped = skipped
        self._now = from_micros(now)

    def gauges(self) -> Iterator[Metric]:
        """Yield the current values."""
        from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - slow to load

        def gauge(name: str, about: str, label: str, values: dict[str, float]) -> Metric:
            family = GaugeMetricFamily(name, about, labels=[label])
            for key, value in values.items():
                family.add_metric([key], value)
            return family

        queue = self._queue
        ready = {pool.pool: pool for pool in queue.pools}
        depth = {p.value: ready[p.value].ready if p.value in ready else 0 for p in Pool}
        ages = {
            p.value: max(0.0, (self._now - ready[p.value].oldest_ready).total_seconds())
            if p.value in ready
            else 0.0
            for p in Pool
        }
        yield gauge("rota_queue_depth", "Ready runs, by pool.", "pool", {**depth})
        yield gauge("rota_queue_oldest_seconds", "Age of the oldest ready run.", "pool", ages)
        counts = {"later": queue.later, "held": queue.held, "waiting": queue.waiting}
        yield gauge(
            "rota_queue_waiting", "Queued runs that are not ready, by reason.", "place", {**counts}
        )
        alive = [w for w in self._workers if w.alive(self._now)]
        slots = {"used": queue.running, "total": sum(worker.slots for worker in alive)}
        yield gauge(
            "rota_slots", "Slots of living workers and their running runs.", "of", {**slots}
        )
        unsent = {s.value: 0 for s in DeliveryState if s not in AT_REST}
        unsent |= dict(queue.unsent)
        yield gauge("rota_deliveries_now", "Messages that are not sent yet.", "state", {**unsent})
        skipped = {reason.value: self._skipped.get(reason.value, 0) for reason in LedgerReason}
        yield gauge("rota_slots_skipped", "Slots that did not run.", "reason", {**skipped})


class _Collector:
    """Makes finished metric families available to the Prometheus client."""

    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Sequence[Metric]:
        """Return the families."""
        return self._families
