"""What every command has at hand: the options that stand anywhere, settings, the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import typer

from rota.doors.cli.show import Output

if TYPE_CHECKING:
    from rota.ports.store import Store
    from rota.wiring.settings import Settings

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True, kw_only=True)
class Invocation:
    """The options that may stand anywhere on the line."""

    home: str | None = None
    store: str | None = None
    as_json: bool = False
    debug: bool = False


class Desk:
    """Serves one command."""

    def __init__(self, context: typer.Context) -> None:
        given = context.obj
        self.invocation = given if isinstance(given, Invocation) else Invocation()
        self.out = Output(as_json=self.invocation.as_json)

    def settings(self, **typed: object) -> Settings:
        """Read the settings; what was typed wins."""
        from rota.wiring.settings import load_settings  # noqa: PLC0415 - slow to load

        return load_settings(self.invocation.home, self.invocation.store, **typed)

    def look(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """Do one piece of work that reads, on a store that nothing can be written to."""
        from rota.wiring.compose import looked_at  # noqa: PLC0415 - slow to load

        settings = self.settings()

        async def session() -> Answer:
            async with looked_at(settings) as store:
                return await work(store)

        return asyncio.run(session())

    def ask(self, work: Callable[[Store], Awaitable[Answer]]) -> Answer:
        """Open the store, do one piece of work with it, and close it again."""
        from rota.wiring.compose import opened  # noqa: PLC0415 - slow to load

        settings = self.settings()

        async def session() -> Answer:
            async with opened(settings) as store:
                return await work(store)

        return asyncio.run(session())
