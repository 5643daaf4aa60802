"""The plug-in: settings of containers, and the executor that they make."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator

from rota.executors.container.engine import ENGINES, VARIABLES, ContainerEngine, UserMapping
from rota.executors.container.executor import ContainerExecutor
from rota.executors.shared.mounts import load_mounts
from rota.keeper.build import Interpreter
from rota.model.executors import ExecutorCapabilities, Isolation
from rota.ports.executor import SEARCH_PATH, ExecutorHost, ExecutorPlugin


def _engine(value: str) -> str:
    if value not in ENGINES and not value.startswith("/"):
        message = "write podman, docker or the full path of one of them"
        raise ValueError(message)
    return value


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerSettings:
    """What `[executors.container]` may say."""

    engine: Annotated[str, AfterValidator(_engine)] | None = field(
        default=None,
        metadata={
            "about": "the container engine: `podman`, `docker`, or the path of one of them; "
            "default: podman if it is installed, otherwise docker"
        },
    )
    users: Literal["mapped", "own"] | None = field(
        default=None,
        metadata={
            "about": "the user of programs in containers on this machine: `mapped`, a user that "
            "owns only the folders of the program, or `own`, the user that runs Rota; default: "
            "`mapped` for rootless podman, `own` otherwise"
        },
    )


def find_engine(settings: ContainerSettings, environment: Mapping[str, str]) -> ContainerEngine:
    """Return the container engine of the settings, or the first one found."""
    wanted = settings.engine
    found = [_program(name) for name in ((wanted,) if wanted else ENGINES)]
    program = next((path for path in found if path), wanted or ENGINES[0])
    kind = "podman" if "podman" in Path(program).name else "docker"
    default = UserMapping.MAPPED if kind == "podman" and os.geteuid() != 0 else UserMapping.OWN
    known = {name: environment[name] for name in VARIABLES if name in environment}
    return ContainerEngine(
        program=program,
        kind=kind,
        env={**known, "PATH": SEARCH_PATH},
        users=UserMapping(settings.users or default),
        local_images=True,
    )


def _program(name: str) -> str | None:
    return name if name.startswith("/") else shutil.which(name, path=SEARCH_PATH)


def _make(settings: ContainerSettings, host: ExecutorHost) -> ContainerExecutor:
    mounts = load_mounts(host.home, host.mounts)
    engine = find_engine(settings, host.environment)
    return ContainerExecutor(Interpreter.running(), mounts, engine)


PLUGIN = ExecutorPlugin(
    make=_make,
    capabilities=ExecutorCapabilities(isolation=Isolation.ALWAYS, image=True, own_network=True),
    settings=ContainerSettings,
)
