"""The configuration of the gateway, `gateway.toml`: upstreams, secrets, budgets of attempts.

The providers of the known agents need no entry.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rota.errors import Invalid
from rota.gateway.upstreams import (
    HEADER,
    NAME,
    READS,
    Upstream,
    is_public,
    literal_address,
    parse_allow,
    parse_url,
)

MIB = 1 << 20
REQUESTS = 10_000
MEBIBYTES = 1024
MAX_VALUE = 1 << 40
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+", re.ASCII)
LOCAL_NAME = "localhost"

KNOWN_UPSTREAMS: dict[str, dict[str, Any]] = {
    "anthropic": {
        "url": "https://api.anthropic.com",
        "header": "x-api-key: {secret}",
        "allow": [
            "POST /v1/messages",
            "POST /v1/messages/count_tokens",
            "GET /v1/models",
            "GET /v1/models/*",
        ],
        "variables": {"ANTHROPIC_BASE_URL": "{url}", "ANTHROPIC_API_KEY": "{token}"},
        "effects": False,
        "source": "ANTHROPIC_API_KEY",
        "address": "ANTHROPIC_BASE_URL",
    },
    "openai": {
        "url": "https://api.openai.com",
        "header": "authorization: Bearer {secret}",
        "allow": [
            "POST /v1/responses",
            "POST /v1/responses/compact",
            "POST /v1/chat/completions",
            "POST /v1/embeddings",
            "GET /v1/models",
            "GET /v1/models/*",
        ],
        "variables": {
            "OPENAI_BASE_URL": "{url}/v1",
            "OPENAI_API_KEY": "{token}",
            "CODEX_API_KEY": "{token}",
        },
        "effects": False,
        "source": "OPENAI_API_KEY",
        "address": "OPENAI_BASE_URL",
    },
}
"""Providers of the known agents; each secret has the provider's name.

`source` is the variable with the key in the daemon's environment, `address` the variable that may
name another base URL with the same API.
"""
UPSTREAM_FIELDS = {
    "url": str,
    "secret": str,
    "header": str,
    "allow": list,
    "headers": list,
    "local": bool,
    "effects": bool,
    "spaces": list,
    "variables": dict,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamConfig:
    """The configuration of an upstream, without its secret.

    `variables` are set for programs; `{url}` and `{token}` stand for the address of the upstream at
    the gateway and the attempt's token. Without `spaces` all spaces may use it. Writes count as
    effects that cannot be undone unless `effects` is false, as for a model.
    """

    name: str
    scheme: str
    host: str
    port: int
    base: str
    secret: str
    header: tuple[str, str]
    allow: tuple[tuple[str, str], ...]
    passed: tuple[str, ...] = ()
    local: bool = False
    effects: bool = True
    spaces: frozenset[str] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)

    def is_open_to(self, space: str) -> bool:
        """Whether a space may use it."""
        return self.spaces is None or space in self.spaces

    @property
    def can_write(self) -> bool:
        """Whether a program could cause effects there that cannot be undone."""
        return self.effects and any(method not in READS for method, _ in self.allow)

    def accepts_secret(self, value: str | None) -> bool:
        """Whether there is a secret and it is valid in a header."""
        return value is not None and value.isprintable() and value.isascii()

    def with_secret(self, value: str) -> Upstream:
        """Return the upstream for the gateway."""
        name, template = self.header
        return Upstream(
            name=self.name,
            scheme=self.scheme,
            host=self.host,
            port=self.port,
            base=self.base,
            allow=self.allow,
            headers=((name, template.replace("{secret}", value)),),
            passed=self.passed,
            secret=self.secret,
            local=self.local,
            effects=self.effects,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayConfig:
    """The configuration of a gateway."""

    upstreams: tuple[UpstreamConfig, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Sources of secrets: `env:NAME` or `file:/path`."""
    requests: int = REQUESTS
    bytes: int = MEBIBYTES * MIB


def read_config(
    path: Path, environment: Mapping[str, str], *, must_exist: bool = False
) -> GatewayConfig:
    """Read the configuration, known providers included; raise Invalid for what is wrong."""
    tables = _load(path) if must_exist or path.exists() else {}
    sources = {
        name: f"env:{known['source']}"
        for name, known in KNOWN_UPSTREAMS.items()
        if environment.get(known["source"])
    }
    for name, source in _table(tables, "secrets").items():
        check_name("secrets", name)
        if not isinstance(source, str) or not SOURCE.fullmatch(source):
            raise Invalid(f"secrets.{name}", "…", "write env:VARIABLE or file:/path")
        sources[name] = source
    configured = _table(tables, "upstreams")
    names = dict.fromkeys((*KNOWN_UPSTREAMS, *configured))
    upstreams = tuple(_read_upstream(name, configured.get(name, {}), environment) for name in names)
    requests = _whole_number(tables, "requests", REQUESTS)
    mebibytes = _whole_number(tables, "mebibytes", MEBIBYTES)
    if tables:
        advice = "there are [secrets], [upstreams.NAME], requests and mebibytes"
        raise Invalid("gateway", ", ".join(tables), advice)
    return GatewayConfig(
        upstreams=upstreams, sources=sources, requests=requests, bytes=mebibytes * MIB
    )


def check_name(where: str, name: str) -> None:
    """Raise Invalid unless it is a valid name of a secret or an upstream."""
    if not NAME.fullmatch(name):
        raise Invalid(where, name, "use a-z, 0-9, - and _, a letter first, at most 32")


def _load(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
                raise Invalid("gateway", str(path), "it must be a regular file of this user")
            if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Invalid("gateway", str(path), "others may write it: use chmod go-w")
            return tomllib.load(file)
    except OSError as error:
        raise Invalid("gateway", str(path), f"it cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid("gateway", str(path), str(error)) from error


def _table(tables: dict[str, Any], name: str) -> dict[str, Any]:
    found = tables.pop(name, {})
    if not isinstance(found, dict):
        raise Invalid("gateway", name, f"write a table: [{name}]")
    return found


def _whole_number(tables: dict[str, Any], name: str, default: int) -> int:
    found = tables.pop(name, default)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= MAX_VALUE:
        raise Invalid(name, found, "give a whole number from 1")
    return found


def _read_upstream(name: str, given: object, environment: Mapping[str, str]) -> UpstreamConfig:
    where = f"upstreams.{name}"
    check_name("upstreams", name)
    if not isinstance(given, dict):
        raise Invalid("gateway", where, f"write a table: [{where}]")
    for key, value in given.items():
        if key not in UPSTREAM_FIELDS:
            raise Invalid(f"{where}.{key}", "…", f"there are {', '.join(UPSTREAM_FIELDS)}")
        if not isinstance(value, UPSTREAM_FIELDS[key]) or (
            isinstance(value, list) and not all(isinstance(each, str) for each in value)
        ):
            raise Invalid(
                f"{where}.{key}", value, f"write a {UPSTREAM_FIELDS[key].__name__}, of texts"
            )
    fields = {**KNOWN_UPSTREAMS.get(name, {}), **given}
    override = environment.get(fields.get("address", ""), "")
    local = bool(fields.get("local", False))
    if override and "url" not in given:
        fields["url"], local = override.removesuffix("/").removesuffix("/v1"), _is_local(override)
    for key in ("url", "allow"):
        if key not in fields:
            raise Invalid(f"{where}.{key}", "", "is missing")
    scheme, host, port, base = parse_url(name, fields["url"], local=local)
    return UpstreamConfig(
        name=name,
        scheme=scheme,
        host=host,
        port=port,
        base=base,
        secret=_secret(where, fields.get("secret", name)),
        header=_header(where, fields.get("header", "authorization: Bearer {secret}")),
        allow=parse_allow(name, fields["allow"]),
        passed=tuple(_extra_header(where, each) for each in fields.get("headers", ())),
        local=local,
        effects=bool(fields.get("effects", True)),
        spaces=frozenset(fields["spaces"]) if "spaces" in fields else None,
        variables=_variables(where, fields.get("variables", {})),
    )


def _is_local(url: str) -> bool:
    """Whether a base URL from the environment is certainly a local one."""
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    address = literal_address(host)
    return host == LOCAL_NAME or (address is not None and not is_public(address))


def _secret(where: str, name: str) -> str:
    check_name(f"{where}.secret", name)
    return name


def _header(where: str, text: str) -> tuple[str, str]:
    name, colon, value = text.partition(":")
    value = value.strip()
    if not colon or not HEADER.fullmatch(name) or "{secret}" not in value:
        raise Invalid(f"{where}.header", text, "write name: value, with {secret} in the value")
    if not value.isascii() or not value.isprintable():
        raise Invalid(f"{where}.header", text, "use printable characters")
    return name.lower(), value


def _extra_header(where: str, name: str) -> str:
    if not HEADER.fullmatch(name) or "auth" in name.lower() or name.lower() in {"host", "cookie"}:
        raise Invalid(f"{where}.headers", name, "only name headers that carry no credentials")
    return name.lower()


def _variables(where: str, variables: Mapping[str, Any]) -> dict[str, str]:
    for name, value in variables.items():
        if not VARIABLE.fullmatch(name) or not isinstance(value, str):
            raise Invalid(f"{where}.variables", name, "use capitals, and {url} and {token}")
        if name.startswith(("ROTA_", "LD_")) or name in {"PATH", "HOME"}:
            raise Invalid(f"{where}.variables", name, "this variable is reserved")
    return dict(variables)
