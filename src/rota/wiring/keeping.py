"""From settings to work that is kept: the agents, the home's yard, and what they are offered."""

from __future__ import annotations

from collections.abc import Callable

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.executors.kit.yard import HomeYard
from rota.flow.execute.kept import KeptWork
from rota.ports.agent import Agent
from rota.ports.clock import Random
from rota.ports.store import Store
from rota.wiring.settings import Settings
from rota.wiring.surroundings import offered

AGENTS: tuple[Agent, ...] = (ClaudeAgent(), CodexAgent(), PiAgent(), CommandAgent())


def kept_work(
    settings: Settings, store: Store, host: str, holder: Callable[[], str], chance: Random
) -> KeptWork:
    """Return what runs agents and scripts under keepers of this home."""
    return KeptWork(
        store,
        HomeYard(settings.home, host),
        {agent.name: agent for agent in AGENTS},
        holder,
        chance,
        usual_agent=settings.agent,
        offered=offered(),
    )
