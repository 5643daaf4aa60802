"""What notices need of a store: where each space wants them."""

from __future__ import annotations

from typing import Protocol

from rota.model.ids import SpaceId
from rota.model.notices import Preference
from rota.ports.timed import Timed


class Noticing(Timed, Protocol):
    """Preferences of spaces; what they lead to is written by settling, in its transaction."""

    async def set_preference(
        self, space_id: int, channel: str, target: str, least: int, *, usual: bool
    ) -> None:
        """Replace the preference of a space for a place; only one of a space is the usual one."""

    async def drop_preference(self, space_id: int, channel: str, target: str) -> bool:
        """Take a preference away; false if there was none."""

    async def list_preferences(self, space_id: int | None) -> list[Preference]:
        """Return the preferences of a space, or of all."""

    async def thread_owner(self, key: str) -> SpaceId | None:
        """Return whose a thread is; None if there is none of that key."""
