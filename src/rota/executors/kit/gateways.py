"""What a yard needs of a gateway: a process outside that has the keys of what runs inside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from rota.rules.effects import WriteScope


class Gateway(Protocol):
    """Leads attempts, by their names, to where they may ask; it outlives the daemon as they do."""

    def offered(self, offered: Mapping[str, str], *, isolated: bool) -> Mapping[str, str]:
        """Return what programs may choose from of an environment."""

    def told(
        self,
        name: str,
        ids: tuple[int, int],
        space: str,
        offered: Mapping[str, str],
        scope: WriteScope,
        *,
        walled: bool,
    ) -> dict[str, str]:
        """Return what an attempt finds in its environment; nothing if there is nothing to reach."""

    async def admit(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> str:
        """Let an attempt in until a file says that it ended; return the path of its door."""

    def writes(self, name: str) -> bool:
        """Whether an attempt that was told of it could write to somewhere outside."""

    def wrote(self, name: str) -> bool | None:
        """Return whether an attempt has written to somewhere outside; None if nobody knows."""

    def carry_on(self, name: str, ids: tuple[int, int], ended: str, *, walled: bool) -> None:
        """Let an attempt in again that a process before this one has started."""

    def promise(self, until: float) -> None:
        """Let attempts ask until a moment of boot time."""

    def keep(self, living: Collection[str]) -> None:
        """Let nobody ask but these."""

    async def dismiss(self, name: str) -> None:
        """Let an attempt in no more."""

    def close(self) -> None:
        """Let go of it."""
