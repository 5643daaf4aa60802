"""What callers may wish for: policies, schedules and limits, drawn from the seed."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from random import Random
from typing import TypeVar

from rota.flow.define.schedules import ScheduleSpec
from rota.model.spaces import Limit, LimitScope
from rota.model.tasks import CatchUp, CatchUpMode, OnLost, Overlap, Policy, Pool, Retry

Item = TypeVar("Item")

BERLIN = "Europe/Berlin"


class Draw:
    """Draws things from the seed."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance

    def random(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return self._chance.random()

    def one(self, items: Sequence[Item]) -> Item:
        """Return one of these."""
        return items[int(self._chance.random() * len(items))]

    def odds(self, odds: float) -> bool:
        """Return true this often."""
        return self._chance.random() < odds

    def number(self, least: int, most: int) -> int:
        """Return a whole number from least to most."""
        return least + int(self._chance.random() * (most - least + 1))

    def seconds(self, least: float, most: float) -> timedelta:
        """Return a span."""
        return timedelta(seconds=least + self._chance.random() * (most - least))

    def span(self, least: float, most: float, edges: Sequence[float]) -> float:
        """Return seconds; every other time about an instant at which somebody gives up."""
        if self.odds(0.5):
            return least + self._chance.random() * (most - least)
        near = self.one(edges) + self._chance.random() * 3 - 1
        return min(max(near, least), most)

    def policy(self) -> Policy:
        """Return a policy, everything possible."""
        return Policy(
            retry=Retry(
                attempts=self.one((1, 1, 2, 3)),
                base=self.seconds(0.5, 4),
                factor=self.one((1.0, 2.0)),
                cap=timedelta(seconds=10),
            ),
            timeout=self.one((None, timedelta(seconds=2), timedelta(seconds=20))),
            pool=self.one(tuple(Pool)),
            priority=self.number(0, 2),
            lane=self.one((None, None, "one", "two")),
            group=self.one((None, None, "blue", "red")),
            metered=self.odds(0.7),
            overlap=self.one((None, None, *Overlap)),
            catch_up=CatchUp(
                mode=self.one(tuple(CatchUpMode)),
                window=self.one((timedelta(seconds=90), timedelta(hours=24))),
                cap=self.one((1, 3, 100)),
                pace=self.seconds(0.1, 2),
            ),
            on_lost=self.one((OnLost.AUTO, OnLost.RETRY, OnLost.FAIL, OnLost.ASK)),
            deadline=self.one((None, None, timedelta(seconds=15), timedelta(seconds=60))),
            disable_after=self.one((0, 0, 0, 2)),
            deliver_to=self.one((None, None, "test:inbox", "test:desk")),
        )

    def wish(self, now: datetime) -> ScheduleSpec:
        """Return a schedule."""
        match self.number(0, 9):
            case 0:
                return ScheduleSpec(at=(now + self.seconds(1, 60)).replace(microsecond=0))
            case 1 | 2:
                return ScheduleSpec(cron=self.one(("*/1 * * * *", "*/2 * * * *", "*/5 * * * *")))
            case 3:
                return ScheduleSpec(cron=self.one(("30 2 * * *", "0 3 * * *")), timezone=BERLIN)
            case 4:
                return ScheduleSpec(
                    times=self.one((("02:15", "02:45"), ("02:59", "03:01"))), timezone=BERLIN
                )
            case _:
                return ScheduleSpec(every=timedelta(seconds=self.one((2, 5, 7, 11, 20, 45))))

    def limit(self) -> Limit:
        """Return a limit, or the end of one."""
        cap = self.one((None, 1, 2, 3))
        pool = self.one(tuple(Pool)).value
        match self.number(0, 4):
            case 0:
                return Limit(scope=LimitScope.TOTAL, cap=cap)
            case 1:
                return Limit(scope=LimitScope.POOL, key=pool, cap=cap)
            case 2:
                key = self.one((pool, f"{pool}/main", f"{pool}/guests"))
                return Limit(scope=LimitScope.SPACE, key=key, cap=cap)
            case 3:
                return Limit(scope=LimitScope.GROUP, key=self.one(("blue", "red")), cap=cap)
            case _:
                period = timedelta(seconds=self.one((2, 10)))
                return Limit(
                    scope=LimitScope.GROUP, key="red", rate=self.one((1, 3)), period=period
                )
