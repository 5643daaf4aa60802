"""Who comes in: a key is looked up once, remembered shortly, and forgotten when keys change."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rota.errors import Unknown
from rota.model.instants import from_micros
from rota.model.keys import Key
from rota.ports.store import Store
from rota.rules.permission import Caller
from rota.rules.tokens import digest_of_token

REMEMBERED_SECONDS = 30.0
MOST_REMEMBERED = 10_000
TOPIC = "keys"
NO_KEY = "give a key: `Authorization: Bearer rota_…`"
WRONG_KEY = "this key opens nothing: it is unknown, expired or revoked"


class Over(Unknown):
    """Whoever shows this was known, and may no longer; it is no guess."""


@dataclass(slots=True)
class _Known:
    key: Key
    caller: Caller
    until: float


class Entrance:
    """Turns a bearer token into a caller."""

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
        """Return who a request comes from; raise Unknown for nobody that is known."""
        if authorization is None:
            raise Unknown(NO_KEY)
        scheme, _, token = authorization.partition(" ")
        digest = digest_of_token(token.strip()) if scheme.lower() == "bearer" else None
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
        key = await self._store.find_key(digest)
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
        """Write down when keys were last used."""
        used, self._used = self._used, {}
        if used:
            await self._store.touch_keys(used)

    def close(self) -> None:
        """Listen no longer."""
        self._unsubscribe()
