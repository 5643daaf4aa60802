"""What an attempt needs before its start: agent, site, workspace, limits, arguments."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any, NamedTuple, NoReturn

from rota.errors import Invalid, Unavailable
from rota.model.agents import AgentSpec, OutputFormat
from rota.model.attempts import ASKING, MAX_RESULT_BYTES, Assignment
from rota.model.executors import ExecutorRegistry, one_of
from rota.model.json import encode
from rota.model.programs import MIB, ResourceLimits, Site
from rota.model.runs import Lease
from rota.model.schedules import StoredSchedule
from rota.model.spaces import SpaceRole
from rota.model.tasks import Pool, Task, TaskKind
from rota.model.text import clean
from rota.model.threads import READER
from rota.ports.agent import AGENT_API_SERVER, Agent, AgentWorkspace, McpServer
from rota.ports.host import AgentApiAddress, AttemptTokens
from rota.ports.keeper import KeeperHome
from rota.rules.checks import can_reach_outside
from rota.rules.task_spec import ONE_OFF_NAMES, ONE_OFF_ORIGIN, read_agent_spec, site_in, site_of
from rota.store.store import Store, until_available
from rota.store.tasks import find_space, list_schedules
from rota.store.views import get_run
from rota.timing.durations import parse_duration


class PreparedAttempt(NamedTuple):
    """The requirements of an attempt."""

    agent: Agent
    wish: AgentSpec
    room: AgentWorkspace
    bounds: ResourceLimits
    site: Site
    role: SpaceRole

    def is_open_agent(self, task: Task) -> bool:
        """Whether its agent could do anything outside without Rota knowing of it."""
        return task.kind is TaskKind.AGENT and can_reach_outside(self.site)


def add_agent_api(room: AgentWorkspace, way: AgentApiAddress, *, tools: bool) -> AgentWorkspace:
    """Add the agent API to the environment of a workspace, and as an MCP server if requested.

    The token is never an argument, because every user of the machine can read arguments.
    """
    told = {**room.ids, "ROTA_MCP_URL": way.url, "ROTA_MCP_TOKEN": way.token}
    server = McpServer(
        name=AGENT_API_SERVER, url=way.url, headers={"Authorization": f"Bearer {way.token}"}
    )
    servers = (*room.servers, server) if tools else room.servers
    return replace(room, ids=told, servers=servers, desk=way.socket)


async def find_schedule_of_run(store: Store, lease: Lease) -> StoredSchedule | None:
    """Return the schedule of a run if it still exists."""
    if lease.slot_key is None:
        return None
    run = await until_available(lambda: store.read(get_run, lease.run_id))
    schedules = await until_available(lambda: store.read(list_schedules, [lease.task_id]))
    mine = (one for one in schedules if run is not None and one.id == run.schedule_id)
    return next(mine, None)


class AttemptPreparer:
    """Collects the requirements of attempts."""

    def __init__(
        self,
        store: Store,
        yard: KeeperHome,
        agents: Mapping[str, Agent],
        usual_agent: str,
        offered: Mapping[str, str],
        usual: ResourceLimits,
        executors: ExecutorRegistry,
        passes: AttemptTokens | None = None,
    ) -> None:
        self._store = store
        self._yard = yard
        self._agents = agents
        self._usual_agent = usual_agent
        self._usual = usual
        self._offered = offered
        self._executors = executors
        self._passes = passes
        self._roles: dict[str, SpaceRole] = {}

    async def ready(self, assignment: Assignment) -> PreparedAttempt:
        """Return the requirements of an attempt; raises if it is not permitted or not possible.

        An attempt that is continued keeps its site and agent, even if its task has changed.
        """
        agent, wish = self._agent(assignment), agent_spec(assignment)
        if assignment.kept is None:
            agent.check(wish)
        role = await self._role(assignment.task.space)
        site = site_of(assignment.task.spec, role, self._executors)
        if assignment.kept is not None:
            site = site_in(site, assignment.kept.executor, self._executors)
        schedule = await find_schedule_of_run(self._store, assignment.lease)
        ids = identity_variables(assignment, None if schedule is None else schedule.name)
        room = self._yard.make_workspace(assignment, site, self._offered, ids)
        way = None if self._passes is None else self._passes.address_for(assignment.lease, site)
        if way is not None:
            room = add_agent_api(room, way, tools=agent.capabilities.mcp)
        bounds = resource_limits(assignment, self._usual, room.config)
        return PreparedAttempt(agent, wish, room, bounds, site, role)

    def _agent(self, assignment: Assignment) -> Agent:
        kept = assignment.kept
        began = "" if kept is None or kept.gate_reply == ASKING else kept.agent
        name = began or agent_name(assignment, self._usual_agent)
        agent = self._agents.get(name)
        if agent is None:
            raise Unavailable(f"no agent {name!r} is known here: there are {one_of(self._agents)}")
        return agent

    async def _role(self, space: str) -> SpaceRole:
        """Return the role of a space, which never changes."""
        if space not in self._roles:
            self._roles[space] = (
                await until_available(lambda: self._store.read(find_space, space))
            ).role
        return self._roles[space]


LONGEST_VARIABLE = 100 * 1024
"""Linux limits an environment variable to 128 KiB; a longer payload is passed as a file."""
USUAL = ResourceLimits(hard_seconds=30 * 60.0)
"""Default limits of a program."""
IDLE_FIRST = 30.0
"""Seconds by which a default timeout exceeds an idle timeout."""


def agent_name(assignment: Assignment, usual: str) -> str:
    """Return the name of a task's agent."""
    if assignment.task.kind is TaskKind.SCRIPT:
        return SCRIPT
    return str(assignment.task.spec.get("agent") or usual)


def agent_spec(assignment: Assignment) -> AgentSpec:
    """Return the agent spec of a task with the input of this run.

    A script reads the payload as JSON on standard input.
    """
    spec: Mapping[str, Any] = assignment.task.spec
    if assignment.task.kind is TaskKind.SCRIPT:
        return script_spec(spec, assignment.lease.payload)
    parts = (str(spec.get("instructions", "")), payload_text(assignment))
    return read_agent_spec(spec, "\n\n".join(part for part in parts if part))


def payload_text(assignment: Assignment) -> str:
    """Return the input of an agent's run as text."""
    payload = json.loads(assignment.lease.payload)
    if payload is None or is_reader(assignment):
        return ""
    if isinstance(payload, dict) and isinstance(payload.get("input"), str):
        return str(payload["input"])
    return json.dumps(payload, ensure_ascii=False)


def is_reader(assignment: Assignment) -> bool:
    """Return whether the run of an assignment is a reader run."""
    lease = assignment.lease
    return lease.thread is not None and json.loads(lease.payload) == READER


def identity_variables(assignment: Assignment, schedule: str | None = None) -> dict[str, str]:
    """Return the environment variables that identify run and schedule."""
    lease, task = assignment.lease, assignment.task
    told = {
        "ROTA_RUN_ID": str(lease.run_id),
        "ROTA_ATTEMPT": str(lease.epoch),
        "ROTA_TASK": task.name,
        "ROTA_TASK_ID": str(task.id),
        "ROTA_SPACE": task.space,
        "ROTA_TRACE_ID": assignment.trace_id,
        "ROTA_PROFILE": profile_name(assignment, schedule),
    }
    thread = thread_key(assignment)
    if thread is not None:
        told["ROTA_THREAD_KEY"] = thread
    if lease.slot_key is not None:
        told["ROTA_SLOT"] = lease.slot_key
    if schedule is not None:
        told["ROTA_SCHEDULE"] = schedule
    answers = json.dumps(assignment.answers, ensure_ascii=False)
    if assignment.answers and len(answers.encode()) <= LONGEST_VARIABLE:
        told["ROTA_ANSWERS"] = answers
    if len(lease.payload.encode()) <= LONGEST_VARIABLE:
        told["ROTA_PAYLOAD"] = lease.payload
    return told


def resource_limits(
    assignment: Assignment, usual: ResourceLimits = USUAL, config: str | None = None
) -> ResourceLimits:
    """Return the limits of an attempt from its task, or else the defaults.

    The timeout may also come from the local config of the task.
    """
    policy, spec = assignment.task.policy, assignment.task.spec
    idle = policy.idle_timeout
    hard = usual.hard_seconds
    said = policy.timeout or local_timeout(config)
    if said is not None:
        hard = said.total_seconds()
    elif hard is not None and idle is not None:
        hard = max(hard, idle.total_seconds() + IDLE_FIRST)
    memory, processes = _whole(spec, "memory_mib"), _whole(spec, "processes")
    cpus: Any = spec.get("cpus")
    return replace(
        usual,
        hard_seconds=hard,
        idle_seconds=usual.idle_seconds if idle is None else idle.total_seconds(),
        grace_seconds=usual.grace_seconds if policy.grace is None else policy.grace.total_seconds(),
        memory_bytes=usual.memory_bytes if memory is None else memory * MIB,
        processes=usual.processes if processes is None else processes,
        cpus=usual.cpus if cpus is None else float(cpus),
    )


def _whole(spec: Mapping[str, Any], name: str) -> int | None:
    said = spec.get(name)
    return None if said is None else int(said)


SCRIPT = TaskKind.SCRIPT.value
"""The agent of scripts."""
LONGEST_METADATA = 64 * 1024
"""Linux limits an environment variable to 128 KiB."""
TOO_LONG = "its result file has more than 256 KiB: put the data into the artifacts folder"


def script_spec(spec: Mapping[str, Any], payload: str) -> AgentSpec:
    """Return the spec of a script: its arguments, or a line for a shell."""
    words = tuple(spec.get("command", ()))
    return AgentSpec(
        program=("sh", "-c", *words) if spec.get("shell") else words,
        instructions=payload,
        output=OutputFormat(spec.get("output", OutputFormat.LAST_LINE)),
    )


def thread_key(assignment: Assignment) -> str | None:
    """Return the thread of a run, or of its task."""
    return assignment.lease.thread or assignment.task.thread


def profile_name(assignment: Assignment, schedule: str | None = None) -> str:
    """Return the description of a task as JSON, with the schedule of the run."""
    task = assignment.task
    told: dict[str, object] = {
        "name": task.name,
        "title": task.title,
        "kind": task.kind.value,
        "space": task.space,
        "thread": thread_key(assignment),
        "schedule": schedule,
        "attempts": task.policy.retry.attempts,
        "timeout_seconds": _seconds(task.policy.timeout),
        "pool": (task.policy.pool or Pool.BACKGROUND).value,
        "group": task.policy.group,
    }
    metadata = task.spec.get("metadata")
    if len(json.dumps(metadata)) <= LONGEST_METADATA:
        told["metadata"] = metadata
    return json.dumps({name: value for name, value in told.items() if value is not None})


def local_timeout(config: str | None) -> timedelta | None:
    """Return the timeout in a local config: seconds, or a duration text."""
    told = None if config is None else json.loads(config).get("timeout")
    if told is None:
        return None
    if isinstance(told, str):
        return parse_duration(told, field="timeout")
    if isinstance(told, bool) or not isinstance(told, int | float) or told <= 0:
        raise Invalid(
            "timeout", told, "use seconds or a duration such as '10m' in the local config"
        )
    try:
        return timedelta(seconds=told)
    except OverflowError:
        raise Invalid("timeout", told, "use less than a thousand years") from None


def result_line(given: bytes) -> bytes | None:
    """Return the content of a result file as an agent line; None if it is empty."""
    if len(given) > MAX_RESULT_BYTES:
        return _line({"rota": "error", "class": "bad_result", "message": TOO_LONG})
    text = given.decode("utf-8", "replace").strip()
    if not text:
        return None
    try:
        found = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        found = text
    told = {"text": clean(found)} if isinstance(found, str) else {"data": found}
    try:
        return _line({"rota": "result", **told})
    except ValueError as fault:
        return _line({"rota": "error", "class": "bad_result", "message": str(fault)})


def _line(record: Mapping[str, Any]) -> bytes:
    return encode(record, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def _seconds(length: timedelta | None) -> float | None:
    return None if length is None else length.total_seconds()


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


OF_THE_RUN = frozenset({"payload", "timeout"})


def apply_one_off_spec(assignment: Assignment) -> Assignment:
    """Return an assignment with the spec that a one-off run contains."""
    task, lease = assignment.task, assignment.lease
    if task.origin != ONE_OFF_ORIGIN or task.name not in ONE_OFF_NAMES.values():
        return assignment
    told = json.loads(lease.payload)
    if not isinstance(told, dict):
        raise Invalid("payload", lease.payload, "give a command or instructions")
    policy = task.policy
    if told.get("timeout") is not None:
        policy = replace(policy, timeout=timedelta(seconds=_number(told["timeout"])))
    spec = {name: value for name, value in told.items() if name not in OF_THE_RUN}
    _check(spec)
    given = json.dumps(told.get("payload"))
    return assignment._replace(
        task=replace(task, spec={**task.spec, **spec}, policy=policy),
        lease=lease._replace(payload=given),
    )


def _check(spec: dict[str, Any]) -> None:
    words = spec.get("command", [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise Invalid("command", words, "give a list of arguments")


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid("timeout", value, "give seconds")
    return float(value)
