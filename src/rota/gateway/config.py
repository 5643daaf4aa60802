"""The configuration file of the gateway: upstreams, secrets, and what an attempt may use.

It is read from `gateway.toml`; the providers of the known agents need no word there.
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
    address_in,
    address_of,
    allowed_in,
    is_public,
)

MIB = 1 << 20
REQUESTS = 10_000
MEBIBYTES = 1024
MOST = 1 << 40
VARIABLE = re.compile(r"[A-Z_][A-Z0-9_]*", re.ASCII)
SOURCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:/.+", re.ASCII)
LOCAL_NAME = "localhost"

KNOWN: dict[str, dict[str, Any]] = {
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
"""The providers of the agents: their secret has the same name, or is where their clients look.

`source` is the variable of the daemon's environment with the key, `address` the one by which it may
name another place that speaks the same.
"""
FIELDS = {
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
    """An upstream before its secret is known.

    `variables` is what programs are told: `{url}` and `{token}` stand for where it is found and
    what to show there. Without `spaces` it is for all of them. What is written there cannot be
    taken back, unless it is without `effects`, as a model is.
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

    def is_for(self, space: str) -> bool:
        """Whether a space may use it."""
        return self.spaces is None or space in self.spaces

    @property
    def writes(self) -> bool:
        """Whether a program could do something there that cannot be taken back."""
        return self.effects and any(method not in READS for method, _ in self.allow)

    def takes(self, value: str | None) -> bool:
        """Whether a secret is there that can stand in a header."""
        return value is not None and value.isprintable() and value.isascii()

    def with_secret(self, value: str) -> Upstream:
        """Return what the gateway is told of it."""
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
    """What a gateway is for."""

    upstreams: tuple[UpstreamConfig, ...] = ()
    sources: Mapping[str, str] = field(default_factory=dict)
    """Where secrets come from: `env:NAME` or `file:/path`."""
    requests: int = REQUESTS
    bytes: int = MEBIBYTES * MIB


def read_plan(
    path: Path, environment: Mapping[str, str], *, must_exist: bool = False
) -> GatewayConfig:
    """Return the plan in a file, with the known providers in it; raise Invalid at what is wrong."""
    said = _tables(path) if must_exist or path.exists() else {}
    sources = {
        name: f"env:{known['source']}"
        for name, known in KNOWN.items()
        if environment.get(known["source"])
    }
    for name, source in _table(said, "secrets").items():
        check_name("secrets", name)
        if not isinstance(source, str) or not SOURCE.fullmatch(source):
            raise Invalid(f"secrets.{name}", "…", "write env:VARIABLE or file:/path")
        sources[name] = source
    wanted = _table(said, "upstreams")
    names = dict.fromkeys((*KNOWN, *wanted))
    upstreams = tuple(_planned(name, wanted.get(name, {}), environment) for name in names)
    requests = _whole(said, "requests", REQUESTS)
    mebibytes = _whole(said, "mebibytes", MEBIBYTES)
    if said:
        advice = "there are [secrets], [upstreams.NAME], requests and mebibytes"
        raise Invalid("gateway", ", ".join(said), advice)
    return GatewayConfig(
        upstreams=upstreams, sources=sources, requests=requests, bytes=mebibytes * MIB
    )


def check_name(where: str, name: str) -> None:
    """Refuse what is no name of a secret or an upstream."""
    if not NAME.fullmatch(name):
        raise Invalid(where, name, "use a-z, 0-9, - and _, a letter first, at most 32")


def _tables(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_uid not in {0, os.geteuid()}:
                raise Invalid("gateway", str(path), "make it a file of your own")
            if facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
                raise Invalid("gateway", str(path), "take away what others may write: chmod go-w")
            return tomllib.load(file)
    except OSError as error:
        raise Invalid("gateway", str(path), f"it cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Invalid("gateway", str(path), str(error)) from error


def _table(said: dict[str, Any], name: str) -> dict[str, Any]:
    found = said.pop(name, {})
    if not isinstance(found, dict):
        raise Invalid("gateway", name, f"write a table: [{name}]")
    return found


def _whole(said: dict[str, Any], name: str, usual: int) -> int:
    found = said.pop(name, usual)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= MOST:
        raise Invalid(name, found, "write a whole number from 1 on")
    return found


def _planned(name: str, said: object, environment: Mapping[str, str]) -> UpstreamConfig:
    where = f"upstreams.{name}"
    check_name("upstreams", name)
    if not isinstance(said, dict):
        raise Invalid("gateway", where, f"write a table: [{where}]")
    for key, value in said.items():
        if key not in FIELDS:
            raise Invalid(f"{where}.{key}", "…", f"there are {', '.join(FIELDS)}")
        if not isinstance(value, FIELDS[key]) or (
            isinstance(value, list) and not all(isinstance(each, str) for each in value)
        ):
            raise Invalid(f"{where}.{key}", value, f"write a {FIELDS[key].__name__}, of texts")
    told = {**KNOWN.get(name, {}), **said}
    elsewhere = environment.get(told.get("address", ""), "")
    local = bool(told.get("local", False))
    if elsewhere and "url" not in said:
        told["url"], local = elsewhere.removesuffix("/").removesuffix("/v1"), _is_own(elsewhere)
    for key in ("url", "allow"):
        if key not in told:
            raise Invalid(f"{where}.{key}", "", "is missing")
    scheme, host, port, base = address_of(name, told["url"], local=local)
    return UpstreamConfig(
        name=name,
        scheme=scheme,
        host=host,
        port=port,
        base=base,
        secret=_secret(where, told.get("secret", name)),
        header=_header(where, told.get("header", "authorization: Bearer {secret}")),
        allow=allowed_in(name, told["allow"]),
        passed=tuple(_passed(where, each) for each in told.get("headers", ())),
        local=local,
        effects=bool(told.get("effects", True)),
        spaces=frozenset(told["spaces"]) if "spaces" in told else None,
        variables=_variables(where, told.get("variables", {})),
    )


def _is_own(url: str) -> bool:
    """Whether an address that the environment names is one of this house, beyond doubt."""
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    address = address_in(host)
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
        raise Invalid(f"{where}.header", text, "use characters that can be printed")
    return name.lower(), value


def _passed(where: str, name: str) -> str:
    if not HEADER.fullmatch(name) or "auth" in name.lower() or name.lower() in {"host", "cookie"}:
        raise Invalid(f"{where}.headers", name, "name headers that carry no key")
    return name.lower()


def _variables(where: str, said: Mapping[str, Any]) -> dict[str, str]:
    for name, value in said.items():
        if not VARIABLE.fullmatch(name) or not isinstance(value, str):
            raise Invalid(f"{where}.variables", name, "use capitals, and {url} and {token}")
        if name.startswith(("ROTA_", "LD_")) or name in {"PATH", "HOME"}:
            raise Invalid(f"{where}.variables", name, "this one is Rota's own")
    return dict(said)
