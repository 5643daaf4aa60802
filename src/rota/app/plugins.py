"""The agents and channels that there are."""

from __future__ import annotations

from collections.abc import Mapping

from rota.agents.claude.agent import ClaudeAgent
from rota.agents.codex.agent import CodexAgent
from rota.agents.command.agent import CommandAgent
from rota.agents.pi.agent import PiAgent
from rota.channels.log.channel import LogChannel
from rota.model.budgets import NO_PRICES, Prices
from rota.ports.agent import Agent, AgentRegistry
from rota.ports.channel import Channel

EVERY_AGENT: tuple[Agent, ...] = (ClaudeAgent(), CodexAgent(), PiAgent(), CommandAgent())


def load_agents(
    usual: str,
    prices: Prices = NO_PRICES,
    tiers: Mapping[str, Mapping[str, str]] | None = None,
) -> AgentRegistry:
    """Return every agent, and which one tasks get that name none."""
    return AgentRegistry({agent.name: agent for agent in EVERY_AGENT}, usual, prices, tiers or {})


def load_channels() -> dict[str, Channel]:
    """Return each channel by its name."""
    channels: tuple[Channel, ...] = (LogChannel(),)
    return {channel.name: channel for channel in channels}
