"""The plug-ins that come with Rota, as its entry points declare them."""

from pathlib import Path

from rota.app.plugins import LocalPlugins, find_plugins
from rota.app.settings import Settings
from rota.commands.context import PluginSet

INSTALLED = find_plugins()
LOCAL = LocalPlugins(Settings(home=Path("/nonexistent"), store="memory:"))
EXECUTORS = LOCAL.executors
assert not INSTALLED.problems, INSTALLED.problems


def plugins(agent="claude", channels=()):
    """Return them with the agent of tasks that name none, and the names of channels."""
    made = LocalPlugins(Settings(home=Path("/nonexistent"), store="memory:", agent=agent))
    return PluginSet(executors=EXECUTORS, agents=made.agents, channel_names=channels)
