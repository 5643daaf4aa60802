"""Who looks at every row of a store and judges it; the store only shows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from rota.model.records import (
    DeliveryRecord,
    History,
    NoticeRecord,
    Overview,
    RunRecord,
    ScheduleRecord,
    SlotFate,
    SlotRecord,
    TaskRecord,
)


class Examiner(Protocol):
    """Is shown one consistent view, page by page, in the order of these methods; never waits.

    It may be called on any thread, one call at a time.
    """

    def tasks(self, page: Sequence[TaskRecord]) -> None:
        """See tasks."""

    def overview(self, seen: Overview) -> None:
        """See what is looked at as a whole."""

    def runs(
        self,
        page: Sequence[RunRecord],
        histories: Mapping[int, History],
        unfollowed: Sequence[tuple[int, int]],
    ) -> None:
        """See runs with what is on record about them, and which follower has no run after which."""

    def notices(self, missing: Sequence[NoticeRecord], needless: Sequence[NoticeRecord]) -> None:
        """See what of the runs of a page was not told, and what was told to whom it was too low."""

    def deliveries(self, page: Sequence[DeliveryRecord]) -> None:
        """See deliveries."""

    def schedules(self, page: Sequence[ScheduleRecord]) -> Iterable[SlotRecord]:
        """See schedules; return the slots whose fate is to be shown next."""

    def slots(self, fates: Sequence[SlotFate]) -> None:
        """See what became of slots; those that have a run and no ledger row are left out."""
