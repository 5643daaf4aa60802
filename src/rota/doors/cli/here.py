"""The commands carried out in this process, on the database itself, for who sits before it."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, cast

from rota.doors.commands.artifacts import OneArtifact, open_artifact
from rota.doors.kit.catalogue import find_command
from rota.doors.kit.office import Office, bounds_of
from rota.doors.kit.perform import perform, read_request
from rota.ports.artifacts import Opened
from rota.ports.store import Store
from rota.rules.permission import LOCAL
from rota.wiring.agents import agents_of
from rota.wiring.channels import every_channel
from rota.wiring.compose import opened
from rota.wiring.inquiring import inquirer_of
from rota.wiring.keeping import artifacts_of, probes_of
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings
from rota.wiring.sites import LocalSites

CHUNK = 64 * 1024


class Here:
    """The database that settings name, opened when it is first needed."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._store: Store | None = None
        self._inquirer = inquirer_of(settings)
        self._sites = LocalSites(settings)

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
        asked = read_request(OneArtifact, {"run": run, "name": name})
        opened = self._runner.run(self._open_artifact(cast("OneArtifact", asked)))
        with opened.file as file:
            while part := file.read(CHUNK):
                yield part

    async def _open_artifact(self, asked: OneArtifact) -> Opened:
        return await open_artifact(await self._office(), asked)

    async def _perform(
        self, method: str, path: str, said: dict[str, Any], *, dry_run: bool
    ) -> dict[str, Any]:
        command, named = find_command(method, path)
        asked = read_request(command.takes, {**said, **named})
        answer = await perform(command, await self._office(), asked, rehearsal=dry_run)
        record: dict[str, Any] = json.loads(answer.text) if answer.text else {}
        return record

    async def _office(self) -> Office:
        if self._store is None:
            self._store = await self._open.enter_async_context(opened(self._settings))
            self._open.push_async_callback(self._inquirer.close)
        return Office(
            store=self._store,
            caller=LOCAL,
            chance=random.SystemRandom(),
            bounds=bounds_of(self._settings),
            agents=agents_of(self._settings.agent, self._settings.prices, self._settings.tiers),
            channels=tuple(every_channel()),
            inquirer=self._inquirer,
            sites=self._sites,
            artifacts=artifacts_of(self._settings),
            probes=probes_of(self._settings),
            secrets=secrets_of(self._settings),
            local=True,
        )
