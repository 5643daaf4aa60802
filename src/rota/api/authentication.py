"""Authentication: API keys and attempt tokens become callers."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from rota.agent_api.dispatcher import AgentApi
from rota.errors import Unknown
from rota.model.instants import from_micros
from rota.model.keys import Key
from rota.rules.permissions import Caller
from rota.rules.tokens import token_digest
from rota.store.keys import find_key, touch_keys
from rota.store.store import Store

REMEMBERED_SECONDS = 30.0
MOST_REMEMBERED = 10_000
TOPIC = "keys"
NO_KEY = "send a key: `Authorization: Bearer rota_…`"
WRONG_KEY = "invalid key: it is unknown, expired or revoked"


class KeyRevoked(Unknown):
    """The key was valid before, so this does not count as a guess."""


@dataclass(slots=True)
class _Known:
    key: Key
    caller: Caller
    until: float


class KeyAuthenticator:
    """Returns the caller of an API key."""

    def __init__(self, store: Store, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._store = store
        self._monotonic = monotonic
        self._known: dict[str, _Known] = {}
        self._used: dict[int, int] = {}
        self._unsubscribe = store.subscribe(self._heard)

    def _heard(self, topic: str) -> None:
        if topic == TOPIC:
            self._known.clear()

    async def caller_of(self, authorization: str | None) -> Caller:
        """Return the caller of a bearer token, or raise Unknown."""
        if authorization is None:
            raise Unknown(NO_KEY)
        scheme, _, token = authorization.partition(" ")
        digest = token_digest(token.strip()) if scheme.lower() == "bearer" else None
        if digest is None:
            raise Unknown(WRONG_KEY)
        known = self._known.get(digest)
        if known is None or known.until < self._monotonic():
            known = await self._look_up(digest)
        now = self._store.now()
        key = known.key
        if key.revoked_at is not None or (key.expires_at or from_micros(now + 1)) <= from_micros(
            now
        ):
            raise Unknown(WRONG_KEY)
        self._used[key.id] = now
        return known.caller

    async def _look_up(self, digest: str) -> _Known:
        key = await self._store.read(find_key, digest)
        if key is None:
            raise Unknown(WRONG_KEY)
        caller = Caller(
            space=key.space, role=key.role, name=key.name, id=f"key:{key.id}", scopes=key.scopes
        )
        if len(self._known) >= MOST_REMEMBERED:
            self._known.clear()
        known = _Known(key, caller, self._monotonic() + REMEMBERED_SECONDS)
        self._known[digest] = known
        return known

    async def note_use(self) -> None:
        """Store when keys were last used."""
        used, self._used = self._used, {}
        if used:
            await self._store.write(touch_keys, used)

    def close(self) -> None:
        """Stop following changes of keys."""
        self._unsubscribe()


ENDED = "this attempt token is no longer valid: its attempt is over"


class TokenReader(Protocol):
    """Parses and verifies attempt tokens."""

    def is_one(self, token: str) -> bool:
        """Return whether a token has the form of an attempt token."""

    def read(self, token: str) -> tuple[int, int] | None:
        """Return the run and epoch of an attempt token; None if another home issued it."""


class AgentAuthenticator:
    """Returns the caller of a bearer token; without `keys` only attempt tokens are accepted."""

    def __init__(
        self,
        desk: AgentApi,
        passes: TokenReader,
        keys: Callable[[str | None], Awaitable[Caller]] | None = None,
    ) -> None:
        self._desk = desk
        self._passes = passes
        self._keys = keys

    async def caller_of(self, authorization: str | None) -> Caller:
        """Return the caller of a bearer token, or raise Unknown.

        Every request checks whether the attempt is still current, so that its token ends with it.
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
            raise KeyRevoked(ENDED)
        return caller
