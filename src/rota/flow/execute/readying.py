"""Readying: what an attempt needs before it can begin, or be carried on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from rota.errors import Unavailable
from rota.flow.execute.patiently import patiently
from rota.flow.execute.preparing import agent_of, bounds_of, ids_of, wish_of
from rota.model.keeping import ASKING
from rota.model.plans import StoredSchedule
from rota.model.programs import Bounds
from rota.model.runs import Lease
from rota.model.sites import Site
from rota.model.spaces import Role
from rota.model.wishes import Wish
from rota.ports.agent import DESK, Agent, McpServer, Room
from rota.ports.passes import Passes, Way
from rota.ports.runner import Assignment
from rota.ports.store import Store
from rota.ports.yard import Yard
from rota.rules.sites import site_of


class Ready(NamedTuple):
    """What an attempt needs."""

    agent: Agent
    wish: Wish
    room: Room
    bounds: Bounds
    site: Site
    role: Role


def shown_way(room: Room, way: Way, *, tools: bool) -> Room:
    """Return a room with the way to the desk in its environment, and as a tool server if wanted.

    The pass never stands among a program's words, which everybody on the machine can read.
    """
    told = {**room.ids, "ROTA_MCP_URL": way.url, "ROTA_MCP_TOKEN": way.token}
    server = McpServer(name=DESK, url=way.url, headers={"Authorization": f"Bearer {way.token}"})
    servers = (*room.servers, server) if tools else room.servers
    return replace(room, ids=told, servers=servers, desk=way.socket)


async def schedule_of(store: Store, lease: Lease) -> StoredSchedule | None:
    """Return the schedule that a run is for, if it is for one that still stands."""
    if lease.slot_key is None:
        return None
    run = await patiently(lambda: store.get_run(lease.run_id))
    schedules = await patiently(lambda: store.list_schedules([lease.task_id]))
    mine = (one for one in schedules if run is not None and one.id == run.schedule_id)
    return next(mine, None)


class Readying:
    """Finds out what attempts need."""

    def __init__(
        self,
        store: Store,
        yard: Yard,
        agents: Mapping[str, Agent],
        usual_agent: str,
        offered: Mapping[str, str],
        usual: Bounds,
        passes: Passes | None = None,
    ) -> None:
        self._store = store
        self._yard = yard
        self._agents = agents
        self._usual_agent = usual_agent
        self._usual = usual
        self._offered = offered
        self._passes = passes
        self._roles: dict[str, Role] = {}

    async def ready(self, assignment: Assignment) -> Ready:
        """Return what an attempt needs; raises if it may not or cannot be had.

        What is carried on stays where it is and with the agent it began with, whatever its task
        says now.
        """
        agent, wish = self._agent(assignment), wish_of(assignment)
        if assignment.kept is None:
            agent.check(wish)
        role = await self._role(assignment.task.space)
        site = site_of(assignment.task.spec, role)
        if assignment.kept is not None:
            site = replace(site, executor=assignment.kept.executor)
        schedule = await schedule_of(self._store, assignment.lease)
        ids = ids_of(assignment, None if schedule is None else schedule.name)
        room = self._yard.room(assignment, site, self._offered, ids)
        way = None if self._passes is None else self._passes.way(assignment.lease, site)
        if way is not None:
            room = shown_way(room, way, tools=agent.abilities.mcp)
        bounds = bounds_of(assignment, self._usual, room.config)
        return Ready(agent, wish, room, bounds, site, role)

    def _agent(self, assignment: Assignment) -> Agent:
        kept = assignment.kept
        began = "" if kept is None or kept.gate == ASKING else kept.agent
        name = began or agent_of(assignment, self._usual_agent)
        agent = self._agents.get(name)
        if agent is None:
            known = ", ".join(sorted(self._agents))
            raise Unavailable(f"no agent {name!r} is known here: there are {known}")
        return agent

    async def _role(self, space: str) -> Role:
        """Return whether a space may do everything; that never changes."""
        if space not in self._roles:
            self._roles[space] = (await patiently(lambda: self._store.find_space(space))).role
        return self._roles[space]
