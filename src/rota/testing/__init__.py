"""For tests of programs and plug-ins: an in-memory Rota, fakes, and contract suites.

The contract suites need pytest and are imported from modules of their own: `AgentContract` from
`rota.testing.agent_contract`, `ExecutorContract` from `rota.testing.executor_contract` and
`ChannelContract` from `rota.testing.channel_contract`. See docs/how-to/testing.md.
"""

from __future__ import annotations

from rota.testing.fakes import FixedChance, RecordingChannel, ScriptedRunner, VirtualClock
from rota.testing.memory import MemoryRota

__all__ = ["FixedChance", "MemoryRota", "RecordingChannel", "ScriptedRunner", "VirtualClock"]
