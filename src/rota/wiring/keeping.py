"""From settings to work that is kept: the agents, the home's yard, and what they are offered."""

from __future__ import annotations

from collections.abc import Callable

from rota.agents.command.script import ScriptAgent
from rota.executors.kit.executor import Executor, Interpreter
from rota.executors.kit.groups import find_hierarchy
from rota.executors.kit.mounts import Allowed, MountList
from rota.executors.kit.yard import HomeYard
from rota.executors.process.executor import ProcessExecutor
from rota.executors.sandbox.executor import SandboxExecutor
from rota.flow.execute.again import Patience
from rota.flow.execute.kept import KeptWork
from rota.ports.clock import Random
from rota.ports.store import Store
from rota.wiring.agents import agents_of
from rota.wiring.settings import Settings
from rota.wiring.surroundings import offered


def executors_of(settings: Settings) -> dict[str, Executor]:
    """Return where programs can run here; whether one really can is tried when it is asked for."""
    home = settings.home.absolute()
    mounts = MountList(
        folders=(
            Allowed(folder=str(home / "spaces")),
            Allowed(folder=str(home / "keepers" / "rooms"), write=False),
        )
    )
    python, hierarchy = Interpreter.running(), find_hierarchy()
    plain = ProcessExecutor(python, hierarchy=hierarchy, certain_kill=True)
    walled = SandboxExecutor(python, mounts, hierarchy=hierarchy)
    return {executor.name: executor for executor in (plain, walled)}


def kept_work(
    settings: Settings, store: Store, host: str, holder: Callable[[], str], chance: Random
) -> KeptWork:
    """Return what runs agents and scripts under keepers of this home."""
    return KeptWork(
        store,
        HomeYard(settings.home, host, executors_of(settings)),
        {**agents_of(settings.agent).known, ScriptAgent.name: ScriptAgent()},
        holder,
        chance,
        usual_agent=settings.agent,
        offered=offered(),
        patience=Patience(retries=settings.agent_retries, wait=settings.agent_wait),
    )
