"""The agents that tasks can name."""

from __future__ import annotations

from collections.abc import Mapping

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.model.prices import NO_PRICES, Prices
from rota.ports.agent import Agent, Agents

EVERY_AGENT: tuple[Agent, ...] = (ClaudeAgent(), CodexAgent(), PiAgent(), CommandAgent())


def agents_of(
    usual: str,
    prices: Prices = NO_PRICES,
    tiers: Mapping[str, Mapping[str, str]] | None = None,
) -> Agents:
    """Return every agent, and which one tasks get that name none."""
    return Agents({agent.name: agent for agent in EVERY_AGENT}, usual, prices, tiers or {})
