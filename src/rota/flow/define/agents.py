"""Agents of tasks: named once, when the task is made, and asked for nothing they cannot do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rota.errors import Invalid
from rota.model.tasks import TaskKind
from rota.model.wishes import SessionContext
from rota.ports.agent import Agents
from rota.rules.wishes import CHEAPER, WISHES, wish_in

OF_PROGRAMS = frozenset({"output"})
"""What scripts may want, too."""
OF_AGENTS = ("agent", *(wish for wish in WISHES if wish not in OF_PROGRAMS))


def with_agent(agents: Agents, kind: TaskKind, spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record with the name of its agent, so that no setting ever moves the task.

    What the agent cannot do is refused here, naming the field.
    """
    if kind is not TaskKind.AGENT:
        stray = next((name for name in OF_AGENTS if spec.get(name) is not None), None)
        if stray is not None:
            advice = "goes with instructions for an agent; leave it out"
            raise Invalid(stray, spec[stray], advice)
        return dict(spec)
    agent = agents.named(spec.get("agent"))
    spec = _with_model(agents, agent.name, spec)
    if spec.get("answers") and not spec.get("context"):
        spec = {**spec, "context": SessionContext.GROUP.value}  # whoever answers takes part
    agent.check(wish_in(spec))
    return {**spec, "agent": agent.name}


def _with_model(agents: Agents, agent: str, spec: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a record with the model of its tier, and a cheaper one if the settings name it.

    Only models are kept: what the settings say of tiers later moves no task.
    """
    tier = spec.get("model_tier")
    if tier is not None:
        rest = {name: value for name, value in spec.items() if name != "model_tier"}
        spec = {**rest, "model": agents.model_of(agent, tier)}
    low = agents.tiers.get(agent, {}).get("low")
    if low is None or spec.get("model") == low or spec.get(CHEAPER) == low:
        return spec
    return {**spec, CHEAPER: low}
