"""Secrets by name: from the sealed file, from files and from the environment."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from urllib.parse import unquote, urlsplit

from rota.app.environment import offered_variables
from rota.app.plugins import load_plugins
from rota.app.settings import Settings
from rota.app.tokens import ADMIN_KEY
from rota.errors import Invalid, Unavailable
from rota.gateway.client import SECRET_NAME
from rota.gateway.config import GatewayConfig, check_name, read_config
from rota.gateway.grants import USED
from rota.gateway.secrets import SealedSecret, SealedSecrets
from rota.ports.host import SecretInfo
from rota.rules.redaction import MAX_SECRET, MIN_SECRET, Redactor, check_value
from rota.runtime.clock import SystemClock

log = logging.getLogger(__name__)

GATEWAY = "gateway"
PLAN = "gateway.toml"
KEPT = "kept"
SECRETS = "secrets"


class LocalSecretStore:
    """The secrets of a home; a stored one overrides a file or variable of the same name.

    Values are always current. The redactor knows them and those that programs without isolation
    find in the environment. `trouble` says why stored secrets cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._sealed = SealedSecrets(settings.home.absolute() / SECRETS)
        self._used = settings.home.absolute() / GATEWAY / USED
        self._clock = SystemClock()
        self._environment = offered_variables()
        self._redactor = Redactor()
        self._mark: object = ()
        self._values: dict[str, str] = {}
        self._problems: dict[str, str] = {}
        self.trouble: str | None = None
        self._kept: dict[str, SealedSecret] = {}
        self._told: list[Callable[[], None]] = []

    @cached_property
    def plan(self) -> GatewayConfig:
        """The configuration of the gateway."""
        path = self._settings.gateway or self._settings.home / PLAN
        named = self._settings.gateway is not None
        return read_config(path, self._environment, must_exist=named)

    @property
    def redactor(self) -> Redactor:
        """The redactor for all known secrets."""
        self.values()
        return self._redactor

    def opens(self) -> bool:
        """Return whether the gateway has any upstream."""
        known = self.values()
        return any(each.accepts_secret(known.get(each.secret)) for each in self.plan.upstreams)

    def values(self) -> Mapping[str, str]:
        """Return the current values."""
        mark = (self._sealed.version, *map(_mark, self._files()))
        if mark != self._mark:
            self._mark = mark
            self._look()
            for tell in tuple(self._told):
                tell()
        return self._values

    def subscribe(self, tell: Callable[[], None]) -> Callable[[], None]:
        """Register a callback for changed values; return the function that removes it."""
        self._told.append(tell)
        return lambda: self._told.remove(tell) if tell in self._told else None

    def check(self, name: str, value: str) -> None:
        """Refuse an invalid name or value, without repeating the value."""
        check_name("secret", name)
        check_value(value)

    async def list_secrets(self) -> Sequence[SecretInfo]:
        """Return all secrets by name."""
        self.values()
        return [self._view(name) for name in sorted({*self._kept, *self.plan.sources})]

    async def put(self, name: str, value: str, by: str) -> SecretInfo:
        """Store a secret, effective at once."""
        self.check(name, value)
        at = self._clock.now().isoformat()
        await asyncio.to_thread(self._sealed.put, name, value, at=at, by=by)
        self.values()
        return self._view(name)

    async def remove(self, name: str) -> None:
        """Delete a secret."""
        await asyncio.to_thread(self._sealed.remove, name)
        self.values()

    def _files(self) -> list[Path]:
        sources = self.plan.sources.values()
        own = [self._settings.home.absolute() / ADMIN_KEY]
        return own + [Path(each[5:]) for each in sources if each.startswith("file:")]

    def _look(self) -> None:
        values, problems = {}, {}
        for name, source in self.plan.sources.items():
            try:
                values[name] = self._read(source)
                check_value(values[name])
            except (Invalid, OSError, UnicodeDecodeError) as fault:
                values.pop(name, None)
                problems[name] = fault.advice if isinstance(fault, Invalid) else _why(fault)
        try:
            self._kept, self.trouble = {each.name: each for each in self._sealed.read_all()}, None
        except Unavailable as fault:
            self._kept, self.trouble = {}, str(fault)
            log.warning("secrets.unreadable", extra={"error": str(fault)})
        values |= {name: sealed.value for name, sealed in self._kept.items()}
        for name, problem in problems.items():
            if name not in values:
                log.warning("secrets.unusable", extra={"secret": name, "error": problem})
        self._values, self._problems = values, problems
        self._redactor.set_secrets({**self._seen(), **values})

    def _read(self, source: str) -> str:
        kind, _, where = source.partition(":")
        if kind == "env":
            return self._environment.get(where, "")
        with Path(where).open("rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o077:
                raise Invalid("secret", where, "set its mode to 0600")
            return file.read(MAX_SECRET).decode().strip()

    def _seen(self) -> dict[str, str]:
        """Return further secrets that programs without isolation could read and print."""
        agents = load_plugins(self._settings).every_agent.values()
        names = {name for agent in agents for name in agent.capabilities.variables}
        found = {
            name: value
            for name, value in self._environment.items()
            if name in names and SECRET_NAME.search(name)
        }
        for setting in ("store", "sql_url"):
            address = getattr(self._settings, setting) or ""
            found[f"{setting}_password"] = _password(address)
        path = self._settings.home / ADMIN_KEY
        if path.exists():
            found[ADMIN_KEY] = path.read_text(errors="replace").strip()
        return {name: value for name, value in found.items() if len(value) >= MIN_SECRET}

    def _view(self, name: str) -> SecretInfo:
        sealed = self._kept.get(name)
        used = _mark(self._used / name)
        return SecretInfo(
            name=name,
            source=KEPT if sealed is not None else self.plan.sources[name],
            upstreams=tuple(each.name for each in self.plan.upstreams if each.secret == name),
            set_at=_instant(sealed.set_at) if sealed is not None else None,
            set_by=sealed.set_by if sealed is not None else None,
            used_at=None if used is None else datetime.fromtimestamp(used[0] / 1e9, UTC),
            problem=self._problems.get(name) if sealed is None else None,
        )


@cache
def load_secrets(settings: Settings) -> LocalSecretStore:
    """Return the secrets of an installation, one object for each process."""
    return LocalSecretStore(settings)


def _mark(path: Path) -> tuple[int, int, int] | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_ino, facts.st_size


def _why(fault: OSError | UnicodeDecodeError) -> str:
    return (
        (fault.strerror or "it cannot be read") if isinstance(fault, OSError) else "it is not text"
    )


def _instant(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return None


def _password(address: str) -> str:
    try:
        return unquote(urlsplit(address).password or "")
    except ValueError:
        return ""
