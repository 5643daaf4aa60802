"""Secrets: set, list names, remove."""

from __future__ import annotations

import logging
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator, Field, SecretStr

from rota.commands.catalogue import command
from rota.commands.context import RequestContext
from rota.commands.fields import TextFormat
from rota.commands.responses import EmptyRequest, RequestModel, ResponseModel
from rota.errors import NotFound, Unavailable
from rota.model.keys import KeyScope
from rota.ports.host import SecretStore
from rota.rules.permissions import check_main
from rota.rules.redaction import MAX_SECRET, MIN_SECRET
from rota.store.audit import record_request

log = logging.getLogger(__name__)


def _text_only(value: object) -> object:
    """Return a text, or an empty one: an error about a wrong type would repeat the value."""
    return value if isinstance(value, str) else ""


SecretName = Annotated[
    str,
    TextFormat(
        r"[a-z][a-z0-9_-]{0,31}",
        "use 1 to 32 lowercase letters, digits and _ -, starting with a letter, such as github",
    ),
]
Value = Annotated[
    SecretStr,
    BeforeValidator(_text_only),
    Field(
        json_schema_extra={
            "minLength": MIN_SECRET,
            "maxLength": MAX_SECRET,
            "pattern": r"^[^\x00]*\S[^\x00]*$",
        }
    ),
]


class SetSecret(RequestModel):
    """A secret to store; its value appears in no response, log or audit entry."""

    secret: SecretName
    value: Value


class SecretSelector(RequestModel):
    """A secret."""

    secret: SecretName


class SecretResponse(ResponseModel):
    """A secret without its value; `source` is `kept`, `env:NAME` or `file:/path`."""

    name: str
    source: str
    upstreams: list[str]
    set_at: datetime | None
    set_by: str | None
    used_at: datetime | None
    problem: str | None


class SecretList(ResponseModel):
    """Secrets, by name."""

    secrets: list[SecretResponse]


class SecretRemovedResponse(ResponseModel):
    """The removed secret."""

    name: str


@command("GET", "/v1/secrets", KeyScope.ADMIN)
async def list_secrets(context: RequestContext, request: EmptyRequest) -> SecretList:  # noqa: ARG001
    """List secrets with their sources and last use, without values."""
    found = await _secret_store(context).list_secrets()
    return SecretList(secrets=[SecretResponse.from_model(view) for view in found])


@command("PUT", "/v1/secrets/{secret}", KeyScope.ADMIN)
async def put_secret(context: RequestContext, request: SetSecret) -> SecretResponse:
    """Store a secret, encrypted, in the home folder of the daemon."""
    secrets, value = _secret_store(context), request.value.get_secret_value()
    secrets.check(request.secret, value)
    await context.store.write(record_request)
    kept = await secrets.put(request.secret, value, context.caller.name)
    log.info("secret.set", extra={"secret": request.secret, "by": context.caller.id})
    return SecretResponse.from_model(kept)


@command("DELETE", "/v1/secrets/{secret}", KeyScope.ADMIN)
async def remove_secret(context: RequestContext, request: SecretSelector) -> SecretRemovedResponse:
    """Remove a stored secret; those from files and the environment remain."""
    secrets = _secret_store(context)
    known = {view.name: view for view in await secrets.list_secrets()}
    if request.secret not in known or known[request.secret].set_at is None:
        raise NotFound(
            "secret", request.secret, "only secrets set by `rota secret set` can be removed"
        )
    await context.store.write(record_request)
    await secrets.remove(request.secret)
    log.info("secret.removed", extra={"secret": request.secret, "by": context.caller.id})
    return SecretRemovedResponse(name=request.secret)


def _secret_store(context: RequestContext) -> SecretStore:
    check_main(context.caller)
    if context.app.secrets is None:
        message = "secrets are not available here: start the daemon with `rota up`"
        raise Unavailable(message)
    return context.app.secrets
