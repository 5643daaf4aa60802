"""Limits as the judge counts them: whenever a run starts, every limit still holds."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping, Sequence

from tests.tools.simulation.coverage import Sometimes
from tests.tools.simulation.database import Change, Row
from tests.tools.simulation.history import Violation


class Limits:
    """Counts what runs, and knows the caps that stand."""

    def __init__(self, sometimes: Sometimes, *, clocks_agree: bool) -> None:
        self._sometimes = sometimes
        self._clocks_agree = clocks_agree
        self._caps: dict[tuple[str, str], int] = {}
        self._rates: dict[str, tuple[int, int]] = {}
        self._running: Counter[tuple[object, ...]] = Counter()
        self._starts: dict[str, deque[int]] = {}

    def judge(self, changes: Mapping[str, Sequence[Change]], now: int) -> None:
        """Count one transaction, then look at what it started."""
        for change in changes.get("limits", ()):
            self._set(change)
        started = []
        for change in changes.get("runs", ()):
            was = change.old is not None and change.old.state == "running"
            runs = change.new is not None and change.new.state == "running"
            if was and not runs:
                self._count(change.old, -1)
            elif runs and not was:
                self._count(change.new, 1)
                started.append(change.new)
        for run in started:
            self._within_caps(run)
            self._within_rate(run, now)

    def _set(self, change: Change) -> None:
        row = change.old if change.new is None else change.new
        name = (row.scope, row.key)
        self._caps.pop(name, None)
        if change.new is not None and row.cap is not None:
            self._caps[name] = row.cap
        if row.scope == "group":
            rate = None if change.new is None else row.rate
            if rate is None or self._rates.get(row.key) != (rate, row.period):
                self._rates.pop(row.key, None)
                self._starts.pop(row.key, None)
            if rate is not None:
                self._rates[row.key] = (rate, row.period)

    def _count(self, run: Row, step: int) -> None:
        for name in self._scopes(run):
            self._running[name] += step

    @staticmethod
    def _scopes(run: Row) -> list[tuple[object, ...]]:
        scopes: list[tuple[object, ...]] = []
        if run.metered:
            scopes += [("total",), ("pool", run.pool), ("space", run.pool, run.space_id)]
        if run.grp:
            scopes.append(("group", run.grp))
        if run.lane is not None:
            scopes.append(("lane", run.space_id, run.lane))
        return scopes

    def _cap(self, scope: tuple[object, ...]) -> int | None:
        match scope:
            case ("total",):
                return self._caps.get(("total", ""))
            case ("pool", pool) | ("group", pool):
                return self._caps.get((str(scope[0]), str(pool)))
            case ("space", pool, space):
                own = self._caps.get(("space", f"{pool}/{space}"))
                return self._caps.get(("space", str(pool))) if own is None else own
            case _:
                return 1

    def _within_caps(self, run: Row) -> None:
        for scope in self._scopes(run):
            cap = self._cap(scope)
            if cap is None:
                continue
            if self._running[scope] > cap:
                detail = f"run {run.id} is number {self._running[scope]} of {cap} in {scope}"
                raise Violation("limits hold at every instant", detail)
            if self._running[scope] == cap:
                self._sometimes.hit(f"the {scope[0]} limit is full")

    def _within_rate(self, run: Row, now: int) -> None:
        if run.grp not in self._rates or not self._clocks_agree:
            return
        rate, period = self._rates[run.grp]
        starts = self._starts.setdefault(run.grp, deque())
        starts.append(now)
        while starts[0] <= now - period:
            starts.popleft()
        if len(starts) > 2 * rate:  # a full bucket, and what a period refills
            detail = f"{len(starts)} runs of {run.grp} started in one period of {rate}"
            raise Violation("rates hold", detail)
        if len(starts) == rate:
            self._sometimes.hit("a rate is spent")
