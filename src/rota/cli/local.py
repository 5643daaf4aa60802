"""A client in this process, used if no daemon is running."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, NamedTuple, cast

from rota.app.addresses import hidden_password
from rota.app.composition import (
    database_exists,
    make_app_context,
    make_sql_console,
    open_store,
)
from rota.app.environment import PREFIX, home_was_named
from rota.app.settings import Settings
from rota.commands.catalogue import execute, find_command, read_request
from rota.commands.context import AppContext, RequestContext
from rota.commands.runs import ArtifactSelector, open_artifact
from rota.errors import Unavailable
from rota.ports.host import OpenArtifact
from rota.rules.permissions import LOCAL

CHUNK = 64 * 1024


class LocalClient:
    """A client of the database of the settings, which it opens when first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._app: AppContext | None = None

    def call(
        self, method: str, path: str, fields: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Execute a command; the response is empty after a dry run."""
        return self._runner.run(self._perform(method, path, fields, dry_run=dry_run))

    def close(self) -> None:
        """Close the database."""
        try:
            self._runner.run(self._open.aclose())
        finally:
            self._runner.close()

    def fetch(self, run: int, name: str) -> Iterator[bytes]:
        """Yield the bytes of an artifact."""
        asked = read_request(ArtifactSelector, {"run": run, "name": name})
        opened = self._runner.run(self._open_artifact(cast("ArtifactSelector", asked)))
        with opened.file as file:
            while part := file.read(CHUNK):
                yield part

    async def _open_artifact(self, asked: ArtifactSelector) -> OpenArtifact:
        return await open_artifact(await self._request_context(), asked)

    async def _perform(
        self, method: str, path: str, fields: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        command, named = find_command(method, path)
        asked = read_request(command.takes, {**fields, **named})
        response = await execute(command, await self._request_context(), asked, dry_run=dry_run)
        record: dict[str, Any] = json.loads(response.text) if response.text else {}
        return record

    async def _request_context(self) -> RequestContext:
        if self._app is None:
            store = await self._open.enter_async_context(open_store(self._settings))
            sql_console = make_sql_console(self._settings)
            self._open.push_async_callback(sql_console.close)
            self._app = make_app_context(self._settings, store, sql_console=sql_console)
        return RequestContext(app=self._app, caller=LOCAL, local=True)


READS = "GET"


class MissingHome(NamedTuple):
    """What is missing, and whether the user named it."""

    sentence: str
    named: bool


def find_absence(settings: Settings, *, home: str | None, store: str | None) -> MissingHome | None:
    """Return which home or database is missing; None if there is a database."""
    if database_exists(settings):
        return None
    if "store" in settings.given:
        what = f"no database at {hidden_password(settings.store)}"
        name = "--store" if store else f"{PREFIX}STORE, or `store` in {settings.file}"
        return MissingHome(
            f"there is {what}: create it with `rota up`, or correct {name}", named=True
        )
    sentence = f"there is no Rota home in {settings.home}: create it with `rota up`"
    if not home_was_named(home):
        return MissingHome(sentence, named=False)
    return MissingHome(
        f"{sentence}, or correct {'--home' if home else f'{PREFIX}HOME'}", named=True
    )


class EmptyHome(LocalClient):
    """A client of the default home before it exists: empty and read-only."""

    def __init__(self, settings: Settings, sentence: str) -> None:
        super().__init__(replace(settings, store="memory:"))
        self._sentence = sentence

    def call(
        self, method: str, path: str, fields: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Execute a command that reads; refuse any other."""
        if method != READS:
            raise Unavailable(self._sentence)
        return super().call(method, path, fields, dry_run=dry_run)
