"""API keys: create, list, revoke."""

from __future__ import annotations

import secrets
from datetime import datetime
from typing import Annotated

from pydantic import Field, field_serializer

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import Id, Instant, SpaceName, Word
from rota.commands.responses import From, RequestModel, ResponseModel
from rota.flow.define import keys
from rota.model.keys import Key, KeyScope
from rota.model.spaces import SpaceRole
from rota.rules.tokens import SECRET_BYTES
from rota.store import keys as store_keys
from rota.store.keys import add_key

USUAL = frozenset({KeyScope.READ, KeyScope.RUN, KeyScope.DEFINE})


class CreateKey(RequestModel):
    """A key to be made."""

    name: Word
    space: SpaceName | None = None
    role: SpaceRole | None = None
    scopes: frozenset[KeyScope] = Field(
        default=USUAL, min_length=1, json_schema_extra={"uniqueItems": False}
    )
    expires_at: Instant | None = None

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[KeyScope]) -> list[KeyScope]:
        """A set has another order in each process, and a request is known by its text."""
        return sorted(scopes)


class KeySelector(RequestModel):
    """One key."""

    key: Id


class KeysQuery(RequestModel):
    """Which keys to list."""

    space: SpaceName | None = None


class KeyResponse(ResponseModel):
    """A key; its secret is shown once, when it is made."""

    id: int
    name: str
    prefix: str
    space: str
    role: SpaceRole
    scopes: Annotated[list[KeyScope], From(read=sorted)]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


class CreatedKeyResponse(KeyResponse):
    """A new key, with the token that nobody can show again; a repeated answer has none."""

    token: str | None

    def kept(self) -> CreatedKeyResponse:
        """Return what may be written down of it, for when the same request comes again."""
        return self.model_copy(update={"token": None})


class KeyList(ResponseModel):
    """The keys the caller may see, oldest first."""

    keys: list[KeyResponse]


@command("GET", "/v1/keys", KeyScope.ADMIN)
async def list_keys(office: RequestContext, asked: KeysQuery) -> KeyList:
    """List keys, oldest first; secrets are nowhere."""
    found = await keys.list_keys(office.store, office.caller, asked.space)
    return KeyList(keys=[KeyResponse.from_model(key) for key in found])


@command("POST", "/v1/keys", KeyScope.ADMIN, status=201)
async def create_key(office: RequestContext, asked: CreateKey) -> CreatedKeyResponse:
    """Make a key for a space; the token in the answer is shown this once."""
    office.keep(lambda made: _made(made, None), add_key)
    key, token = await keys.create_key(
        office.store,
        office.caller,
        asked.name,
        secrets.token_bytes(SECRET_BYTES),
        space=asked.space or office.caller.space,
        role=asked.role,
        scopes=asked.scopes,
        expires_at=asked.expires_at,
    )
    return _made(key, token)


def _made(key: Key, token: str | None) -> CreatedKeyResponse:
    return CreatedKeyResponse.from_model(key, token=token)


@command("DELETE", "/v1/keys/{key}", KeyScope.ADMIN)
async def revoke_key(office: RequestContext, asked: KeySelector) -> KeyResponse:
    """Let a key open nothing any more, at once and everywhere."""

    async def revoked(within: RequestContext, _: object) -> KeyResponse:
        return KeyResponse.from_model(await keys.find_key(within.store, office.caller, asked.key))

    office.keep_seen(revoked, store_keys.revoke_key)
    return KeyResponse.from_model(await keys.revoke_key(office.store, office.caller, asked.key))
