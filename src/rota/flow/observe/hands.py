"""Hands: who takes work, and what to do where nobody does."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple, Protocol

from rota.model.views import WorkerView

AGAIN = "`rota start` lets it work again"


class Idle(NamedTuple):
    """Why nobody takes work, and the step that helps."""

    what: str
    step: str

    def sentence(self) -> str:
        """Return both as one sentence."""
        return f"{self.what}: {self.step}"


NOBODY = Idle("nobody works", "start `rota up`")
RESTING = Idle("the daemon is up and does not work", AGAIN)
STOPPED = "stopped"
IDLE = {
    STOPPED: Idle("the daemon is stopped", AGAIN),
    "stopping": Idle("the daemon is stopping and takes nothing new", AGAIN),
    "ending": Idle("the daemon is ending and takes nothing new", "then start `rota up` again"),
    "starting": Idle("the daemon is only starting", "wait a moment"),
}
"""By what a daemon says of itself."""


class Own(NamedTuple):
    """What the daemon that answers says of itself: its state, and its worker, or what was it."""

    state: str
    worker: str | None


class Hands(NamedTuple):
    """The workers, and what is to be told where none of them takes anything."""

    workers: list[WorkerView]
    idle: Idle


class Roll(Protocol):
    """As much of a store as tells who works."""

    async def list_workers(self) -> list[WorkerView]:
        """Return every known worker."""

    def roles_taken(self) -> bool | None:
        """Return whether some process has the roles; None where only leases can tell."""


async def hands_of(store: Roll, own: Own | None) -> Hands:
    """Return who works; `own` is the daemon that answers, if one does."""
    workers = await store.list_workers()
    if own is not None and own.state in IDLE:
        return Hands([_leaving(worker, own) for worker in workers], IDLE[own.state])
    return Hands(workers, RESTING if own is None and store.roles_taken() else NOBODY)


def _leaving(worker: WorkerView, own: Own) -> WorkerView:
    """Return a worker; that of a stopped daemon has a lease for as long as programs of it go on."""
    if worker.id != own.worker:
        return worker
    return replace(worker, leaving=True, gone=worker.gone or own.state == STOPPED)
