"""An attempt as a caller: what the place it was found in says of it, never what it says itself."""

from __future__ import annotations

from dataclasses import dataclass

from rota.model.ids import Epoch, RunId, TaskId


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A run that is going on, by the epoch that holds it: in whose name its program asks."""

    run_id: RunId
    epoch: Epoch
    task_id: TaskId
    task: str
    thread: str | None
    space: str

    @property
    def name(self) -> str:
        """What the attempt is called wherever callers are told apart."""
        return f"attempt:{self.run_id}.{self.epoch}"
