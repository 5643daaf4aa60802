"""Artifacts: list the files a run has left behind, and open one of them."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import Annotated

from pydantic import StringConstraints

from rota.doors.commands.shapes import Given, OneRun
from rota.doors.kit.catalogue import command
from rota.doors.kit.office import Office
from rota.errors import NotFound
from rota.flow.define.runs import find_run
from rota.model.artifacts import Artifacts
from rota.model.keys import KeyScope
from rota.ports.artifacts import Opened
from rota.rules.permission import check_scope

LONGEST_NAME = 4_096


class OneArtifact(OneRun):
    """One file of a run; its name may have folders in it."""

    name: Annotated[str, StringConstraints(min_length=1, max_length=LONGEST_NAME)]


class ArtifactGiven(Given):
    """A file that a run has left behind."""

    name: str
    size: int
    modified_at: datetime


class ArtifactsGiven(Given):
    """Files, by name.

    `left_out` counts what is no plain file with a name of its own, such as links and pipes; `more`
    says that there is more than is told.
    """

    artifacts: list[ArtifactGiven]
    left_out: int
    more: bool


@command("GET", "/v1/runs/{run}/artifacts", KeyScope.READ)
async def list_artifacts(office: Office, asked: OneRun) -> ArtifactsGiven:
    """List the files that a run has left on the machine that answers."""
    run = await find_run(office.store, office.caller, asked.run)
    found = Artifacts()
    if office.artifacts is not None:
        found = await asyncio.to_thread(office.artifacts.of, run.space, run.id)
    given = [ArtifactGiven(**artifact._asdict()) for artifact in found.files]
    return ArtifactsGiven(artifacts=given, left_out=found.left_out, more=found.more)


async def open_artifact(office: Office, asked: OneArtifact) -> Opened:
    """Give the bytes of one file that a run has left.

    The answer is `application/octet-stream` and an attachment, at most 1 GiB.
    """
    check_scope(office.caller, KeyScope.READ)
    run = await find_run(office.store, office.caller, asked.run)
    if office.artifacts is None:
        raise NotFound("artifact", asked.name)
    return await asyncio.to_thread(office.artifacts.open, run.space, run.id, asked.name)
