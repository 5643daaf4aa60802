"""Who comes to the desk: an attempt by its pass, or anybody else by a key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol

from rota.doors.api.entrance import NO_KEY, WRONG_KEY, Over
from rota.doors.inside.desk import Desk
from rota.errors import Unknown
from rota.rules.permission import Caller

ENDED = "this pass opens nothing any more: its attempt is over"


class PassReader(Protocol):
    """Tells which attempt a pass is of."""

    def is_one(self, token: str) -> bool:
        """Tell whether a token looks like a pass."""

    def read(self, token: str) -> tuple[int, int] | None:
        """Return the run and epoch of a pass; None if it is not of this home."""


class DeskEntrance:
    """Turns a bearer token into a caller; without `keys` only attempts come in."""

    def __init__(
        self,
        desk: Desk,
        passes: PassReader,
        keys: Callable[[str | None], Awaitable[Caller]] | None = None,
    ) -> None:
        self._desk = desk
        self._passes = passes
        self._keys = keys

    async def caller_of(self, authorization: str | None) -> Caller:
        """Return who a request comes from; raise Unknown for nobody that is known.

        Whether an attempt goes on is looked at every time: its pass is dead at the same moment.
        """
        if authorization is None:
            raise Unknown(NO_KEY)
        scheme, _, token = authorization.partition(" ")
        token = token.strip()
        if scheme.lower() != "bearer" or not self._passes.is_one(token):
            if self._keys is None:
                raise Unknown(WRONG_KEY)
            return await self._keys(authorization)
        found = self._passes.read(token)
        if found is None:
            raise Unknown(WRONG_KEY)
        caller = await self._desk.caller_of(*found)
        if caller is None:
            raise Over(ENDED)
        return caller
