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
from rota.ports.host import SecretStore as Keeping
from rota.rules.permissions import check_main
from rota.rules.redaction import MAX_SECRET, MIN_SECRET
from rota.store.audit import record_request

log = logging.getLogger(__name__)


def _unrepeated(value: object) -> object:
    """Return a text, or none at all: what refuses a wrong kind of value would repeat it."""
    return value if isinstance(value, str) else ""


SecretName = Annotated[
    str,
    TextFormat(
        r"[a-z][a-z0-9_-]{0,31}",
        "write 1 to 32 small letters, digits and _ -, a letter first, such as github",
    ),
]
Value = Annotated[
    SecretStr,
    BeforeValidator(_unrepeated),
    Field(
        json_schema_extra={
            "minLength": MIN_SECRET,
            "maxLength": MAX_SECRET,
            "pattern": r"^[^\x00]*\S[^\x00]*$",
        }
    ),
]


class SetSecret(RequestModel):
    """A secret to be kept; its value is in no answer, no log and no record."""

    secret: SecretName
    value: Value


class SecretSelector(RequestModel):
    """One secret."""

    secret: SecretName


class SecretResponse(ResponseModel):
    """A secret, by its name; `source` is `kept`, `env:NAME` or `file:/path`."""

    name: str
    source: str
    upstreams: list[str]
    set_at: datetime | None
    set_by: str | None
    used_at: datetime | None
    problem: str | None


class SecretList(ResponseModel):
    """The secrets that are known here, by name."""

    secrets: list[SecretResponse]


class SecretRemovedResponse(ResponseModel):
    """A secret that was forgotten."""

    name: str


@command("GET", "/v1/secrets", KeyScope.ADMIN)
async def list_secrets(office: RequestContext, asked: EmptyRequest) -> SecretList:  # noqa: ARG001
    """List the names of secrets, where they come from and when they were used; never values."""
    found = await _keeping(office).list_secrets()
    return SecretList(secrets=[SecretResponse.from_model(view) for view in found])


@command("PUT", "/v1/secrets/{secret}", KeyScope.ADMIN)
async def put_secret(office: RequestContext, asked: SetSecret) -> SecretResponse:
    """Keep a secret, encrypted, in the home folder of this daemon; it counts at once."""
    keeping, value = _keeping(office), asked.value.get_secret_value()
    keeping.check(asked.secret, value)
    await office.store.write(record_request)
    kept = await keeping.put(asked.secret, value, office.caller.name)
    log.info("secret.set", extra={"secret": asked.secret, "by": office.caller.id})
    return SecretResponse.from_model(kept)


@command("DELETE", "/v1/secrets/{secret}", KeyScope.ADMIN)
async def remove_secret(office: RequestContext, asked: SecretSelector) -> SecretRemovedResponse:
    """Forget a secret that was kept; one of a file or the environment stays."""
    keeping = _keeping(office)
    known = {view.name: view for view in await keeping.list_secrets()}
    if asked.secret not in known or known[asked.secret].set_at is None:
        raise NotFound("secret", asked.secret, "only those set by `rota secret set` are removed")
    await office.store.write(record_request)
    await keeping.remove(asked.secret)
    log.info("secret.removed", extra={"secret": asked.secret, "by": office.caller.id})
    return SecretRemovedResponse(name=asked.secret)


def _keeping(office: RequestContext) -> Keeping:
    check_main(office.caller)
    if office.app.secrets is None:
        message = "no secrets are kept behind this door: ask `rota up`"
        raise Unavailable(message)
    return office.app.secrets
