"""What attempts under keepers need of a store: a place on record, and what was heard of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rota.model.ids import RunId
from rota.model.keeping import Heard, Kept, KeptSession, Pause
from rota.model.settlements import NewDelivery
from rota.model.views import Claimed
from rota.ports.timed import Timed


class Keeping(Timed, Protocol):
    """Records of kept attempts. What concerns a run is fenced by its epoch and its holder."""

    async def renew_home(self, home: str, host: str, until: int) -> None:
        """Promise that the keepers of a home end by themselves at an instant, and not before."""

    async def fence_home(self, home: str, worker: str) -> int:
        """Fence who else holds attempts of a home; only for whoever holds the home's lock."""

    async def begin_kept(self, kept: Kept, worker: str, aloud: NewDelivery | None = None) -> bool:
        """Note that a keeper is about to start; false if the run is no longer the worker's.

        What people are told of that is sent once.
        """

    async def pause_kept(self, pause: Pause, worker: str) -> bool:
        """Note that a try was in vain, once; false if the run is another's."""

    async def hear(
        self,
        run_id: RunId,
        epoch: int,
        worker: str,
        heard: Sequence[Heard],
        session: KeptSession | None = None,
    ) -> bool:
        """Record what was read, once; false if it was read already or the run is another's.

        With a session, a later run may go on in it. What is for people is sent on the way.
        """

    async def kept_of(self, home: str) -> list[Kept]:
        """Return the kept attempts of a home, oldest first."""

    async def count_output(self, run_id: int, since: int) -> int:
        """Return how many events hold what the programs of a run wrote since an instant."""

    async def adopt(self, run_id: RunId, epoch: int, worker: str) -> Claimed:
        """Take over a run whose holder is gone, amid its attempt; empty if it is not."""

    async def begin_checks(self, run_id: RunId, epoch: int) -> int:
        """Count a look at the checks of an attempt; return the number of looks, 0 if it is over."""

    async def drop_kept(self, run_id: RunId, epoch: int) -> None:
        """Forget a kept attempt; if its run still goes on, it is lost."""
