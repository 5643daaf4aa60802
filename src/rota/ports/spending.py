"""What budgets need of a store: caps, what is set aside, and what was used."""

from __future__ import annotations

from typing import Protocol

from rota.model.budgets import Amounts, BudgetScope, Caps, Refusal, Spender, Spent, Used
from rota.ports.timed import Timed


class Spending(Timed, Protocol):
    """Records of budgets. What is set aside for open attempts is never more than a day's cap."""

    async def set_budget(self, scope: BudgetScope, key: int, caps: Caps, who: str) -> None:
        """Replace the budget of a task or space; without caps it is taken away.

        Runs that were held back by it may begin again.
        """

    async def budgets_of(self, task_id: int, space_id: int) -> dict[BudgetScope, Caps]:
        """Return the caps that hold for the runs of a task."""

    async def reserve(
        self, spender: Spender, worker: str, least: Amounts, most: Amounts
    ) -> Amounts | Refusal | None:
        """Set aside up to `most` for an attempt, in the place of what was; one at a time.

        Only the units that the spender can use are looked at. Refused, with nothing changed, if a
        budget of the day has less than `least` left. None if the run is another's.
        """

    async def spent_by(self, run_id: int) -> list[Spent]:
        """Return what the attempts of a run have used, oldest first."""

    async def history_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return what the newest finished runs of a task have used, each with all its attempts.

        Only runs that have told what they used are among them.
        """

    async def times_of(self, task_id: int, most: int) -> list[Amounts]:
        """Return how long the newest finished runs of a task have worked, and nothing else."""

    async def used_on(self, scope: BudgetScope, key: int, day: str) -> Used:
        """Return what a task or a space has used on a day, and what is set aside beside that."""

    async def held_back(self, space_id: int | None) -> tuple[int, str | None]:
        """Return how many runs budgets hold back, and why one of them."""
