"""The plug-ins that come with Rota, as its entry points declare them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rota.app.plugins import LocalPlugins
from rota.app.settings import Settings
from rota.commands.context import PluginSet

NOWHERE = Settings(home=Path("/nonexistent"), store="memory:")
EXECUTORS = LocalPlugins(NOWHERE).executors


def plugins(agent: str = "claude", channels: Sequence[str] = ()) -> PluginSet:
    """Return them with the agent of tasks that name none, and the names of channels."""
    agents = LocalPlugins(Settings(home=NOWHERE.home, store=NOWHERE.store, agent=agent)).agents
    return PluginSet(executors=EXECUTORS, agents=agents, channel_names=channels)
