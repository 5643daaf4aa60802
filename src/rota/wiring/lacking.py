"""What tasks name and cannot be found on this machine; nothing is started to find out."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rota.agents.kit.environment import PATH
from rota.errors import RotaError
from rota.model.spaces import Role
from rota.model.tasks import Task, TaskKind
from rota.ports.store import Store
from rota.rules.checks import FIELD as CHECKS
from rota.rules.gates import GATE
from rota.rules.programs import is_call
from rota.rules.sites import site_of
from rota.wiring.settings import Settings
from rota.wiring.surroundings import offered

PROGRAM = "command"
"""The agent that is any program."""
NOT_ON_PATH = "is not on the PATH"
OF_SCRIPTS = frozenset({".py", ".sh", ".js", ".rb", ".pl"})
"""How names of programs end that people write into the folder themselves."""


class Lack(NamedTuple):
    """Something that is missing, what is wrong with it, and what to do."""

    what: str
    trouble: str
    advice: str

    def __str__(self) -> str:
        """Return it in one sentence."""
        return f"{self.what} {self.trouble}: {self.advice}"


def search_path() -> str:
    """Return where programs of this process are looked for."""
    return offered().get("PATH") or PATH


async def lacks_of_all(store: Store, settings: Settings) -> dict[Lack, list[Task]]:
    """Return what is missing, each with the enabled tasks that name it."""
    roles = {space.name: space.role for space in await store.list_spaces()}
    found: dict[Lack, list[Task]] = {}
    for task in await store.list_tasks(None):
        if task.enabled:
            for lack in lacks_of(task, roles.get(task.space, Role.MEMBER), settings):
                found.setdefault(lack, []).append(task)
    return found


def lacks_of(task: Task, role: Role, settings: Settings) -> list[Lack]:
    """Return what a task names and would not be found here.

    What runs behind walls, or in an image, has another view of the machine, and is left out.
    """
    if task.kind is TaskKind.PYTHON or _walled(task, role):
        return []
    work = settings.home.absolute() / "spaces" / task.space / "work"
    named = task.spec.get("folder")
    folder = work / str(named or ".")
    found: list[Lack | None] = []
    if named is not None and not folder.is_dir():
        found.append(Lack(f"the folder {named}", "is not there", f"make it in {work}"))
    programs = dict.fromkeys(_programs(task, settings.agent))
    found += (_look(program, folder) for program in programs)
    return [lack for lack in found if lack is not None]


def _look(program: str, folder: Path) -> Lack | None:
    """Return what is wrong with a program; one in the working folder comes first."""
    what, own = f"the program {program}", folder / program
    if own.is_file():
        if own.suffix == ".py" or os.access(own, os.X_OK):
            return None
        return Lack(what, "may not be executed", f"chmod +x {own}")
    if "/" in program:
        if own.is_dir():
            return Lack(what, "is a folder", f"name the program in {own}")
        return Lack(what, "is not there", f"put it at {own}, or correct its path")
    if shutil.which(program, path=search_path()) is not None:
        return None
    if own.suffix in OF_SCRIPTS:
        return Lack(what, "is not there", f"put it at {own}, or on the PATH")
    return Lack(what, NOT_ON_PATH, "install it, or see that the daemon's PATH has it")


def _programs(task: Task, usual: str) -> Iterator[str]:
    """Yield the programs that a task names: its own, its gate's, its checks'."""
    spec: Mapping[str, Any] = task.spec
    agent = str(spec.get("agent") or usual) if task.kind is TaskKind.AGENT else PROGRAM
    own = [agent] if agent != PROGRAM else [] if spec.get("shell") else spec.get("command")
    others = [spec.get(GATE), *(spec.get(CHECKS) or ())]
    for words in (own, *(one.get("command") for one in others if isinstance(one, dict))):
        if isinstance(words, list | tuple) and words and not is_call(str(words[0])):
            yield str(words[0])


def _walled(task: Task, role: Role) -> bool:
    try:
        return site_of(task.spec, role).isolated
    except RotaError:  # its runs are refused with the reason
        return True
