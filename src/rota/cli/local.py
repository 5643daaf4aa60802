"""A client in this process, used where no daemon answers."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import Any, NamedTuple, cast

from rota.app.addresses import hidden_password
from rota.app.composition import (
    command_limits,
    database_exists,
    make_artifact_store,
    make_sql_console,
    open_store,
    probes_of,
)
from rota.app.environment import PREFIX, home_was_named
from rota.app.plugins import load_agents, load_channels
from rota.app.secrets import load_secrets
from rota.app.settings import Settings
from rota.app.sites import LocalSiteChecker
from rota.commands.catalogue import execute, find_command, read_request
from rota.commands.context import RequestContext
from rota.commands.runs import ArtifactSelector, open_artifact
from rota.errors import Unavailable
from rota.ports.host import OpenArtifact
from rota.rules.permissions import LOCAL
from rota.store.store import Store

CHUNK = 64 * 1024


class LocalClient:
    """The database that settings name, opened when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._store: Store | None = None
        self._inquirer = make_sql_console(settings)
        self._sites = LocalSiteChecker(settings)

    def call(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Carry out one command; the answer is empty for a rehearsal that went well."""
        return self._runner.run(self._perform(method, path, said, dry_run=dry_run))

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
        return await open_artifact(await self._office(), asked)

    async def _perform(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        command, named = find_command(method, path)
        asked = read_request(command.takes, {**said, **named})
        answer = await execute(command, await self._office(), asked, rehearsal=dry_run)
        record: dict[str, Any] = json.loads(answer.text) if answer.text else {}
        return record

    async def _office(self) -> RequestContext:
        if self._store is None:
            self._store = await self._open.enter_async_context(open_store(self._settings))
            self._open.push_async_callback(self._inquirer.close)
        return RequestContext(
            store=self._store,
            caller=LOCAL,
            chance=random.SystemRandom(),
            bounds=command_limits(self._settings),
            agents=load_agents(self._settings.agent, self._settings.prices, self._settings.tiers),
            channels=tuple(load_channels()),
            inquirer=self._inquirer,
            sites=self._sites,
            artifacts=make_artifact_store(self._settings),
            probes=probes_of(self._settings),
            secrets=load_secrets(self._settings),
            local=True,
        )


READS = "GET"


class MissingHome(NamedTuple):
    """What is not there, and whether somebody has named it."""

    sentence: str
    named: bool


def find_absence(settings: Settings, *, home: str | None, store: str | None) -> MissingHome | None:
    """Return what is not there of what was typed or set; None if there is a database."""
    if database_exists(settings):
        return None
    if "store" in settings.given:
        what = f"no database at {hidden_password(settings.store)}"
        name = "--store" if store else f"{PREFIX}STORE, or `store` in {settings.file}"
        return MissingHome(f"there is {what}: `rota up` makes one, or correct {name}", named=True)
    sentence = f"there is no Rota in {settings.home}: `rota up` makes one"
    if not home_was_named(home):
        return MissingHome(sentence, named=False)
    return MissingHome(
        f"{sentence}, or correct {'--home' if home else f'{PREFIX}HOME'}", named=True
    )


class EmptyHome(LocalClient):
    """The usual home before there is one: nothing is in it, and nothing can be changed."""

    def __init__(self, settings: Settings, sentence: str) -> None:
        super().__init__(replace(settings, store="memory:"))
        self._sentence = sentence

    def call(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool = False
    ) -> dict[str, Any]:
        """Carry out a command that reads; refuse any other."""
        if method != READS:
            raise Unavailable(self._sentence)
        return super().call(method, path, said, dry_run=dry_run)
