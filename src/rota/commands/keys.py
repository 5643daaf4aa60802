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

DEFAULT_SCOPES = frozenset({KeyScope.READ, KeyScope.RUN, KeyScope.DEFINE})


class CreateKey(RequestModel):
    """A key to create."""

    name: Word
    space: SpaceName | None = None
    role: SpaceRole | None = None
    scopes: frozenset[KeyScope] = Field(
        default=DEFAULT_SCOPES, min_length=1, json_schema_extra={"uniqueItems": False}
    )
    expires_at: Instant | None = None

    @field_serializer("scopes")
    def _in_order(self, scopes: frozenset[KeyScope]) -> list[KeyScope]:
        """Sort the scopes: requests are compared by their text."""
        return sorted(scopes)


class KeySelector(RequestModel):
    """A key."""

    key: Id


class KeysQuery(RequestModel):
    """Filter for keys."""

    space: SpaceName | None = None


class KeyResponse(ResponseModel):
    """A key, without its secret part."""

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
    """A new key with its token; the response to a repeated request has no token."""

    token: str | None

    def recorded(self) -> CreatedKeyResponse:
        """Return the response without the token, to be recorded."""
        return self.model_copy(update={"token": None})


class KeyList(ResponseModel):
    """Keys, oldest first."""

    keys: list[KeyResponse]


@command("GET", "/v1/keys", KeyScope.ADMIN)
async def list_keys(context: RequestContext, request: KeysQuery) -> KeyList:
    """List keys, oldest first, without tokens."""
    found = await keys.list_keys(context.store, context.caller, request.space)
    return KeyList(keys=[KeyResponse.from_model(key) for key in found])


@command("POST", "/v1/keys", KeyScope.ADMIN, status=201)
async def create_key(context: RequestContext, request: CreateKey) -> CreatedKeyResponse:
    """Create a key for a space; only this response contains its token."""
    context.record(lambda made: _made(made, None), add_key)
    key, token = await keys.create_key(
        context.store,
        context.caller,
        request.name,
        secrets.token_bytes(SECRET_BYTES),
        space=request.space or context.caller.space,
        role=request.role,
        scopes=request.scopes,
        expires_at=request.expires_at,
    )
    return _made(key, token)


def _made(key: Key, token: str | None) -> CreatedKeyResponse:
    return CreatedKeyResponse.from_model(key, token=token)


@command("DELETE", "/v1/keys/{key}", KeyScope.ADMIN)
async def revoke_key(context: RequestContext, request: KeySelector) -> KeyResponse:
    """Revoke a key."""

    async def revoked(within: RequestContext, _: object) -> KeyResponse:
        return KeyResponse.from_model(
            await keys.find_key(within.store, context.caller, request.key)
        )

    context.record_with(revoked, store_keys.revoke_key)
    return KeyResponse.from_model(await keys.revoke_key(context.store, context.caller, request.key))
