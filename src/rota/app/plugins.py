"""Plug-ins: found by entry points, once in a process, and made with their settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from difflib import get_close_matches
from functools import cache, cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from pydantic import TypeAdapter, ValidationError

from rota.app.environment import PREFIX, offered_variables
from rota.app.settings import Settings
from rota.errors import Invalid, Refused, RotaError, advice_on
from rota.model.executors import ExecutorRegistry, not_installed
from rota.model.spaces import SpaceRole
from rota.model.tasks import TaskKind
from rota.ports.agent import Agent, AgentPlugin, AgentRegistry, AgentSettings
from rota.ports.channel import Channel, ChannelPlugin
from rota.ports.executor import Executor, ExecutorHost, ExecutorPlugin, Terminal
from rota.ports.plugins import Plugin, PluginProblem

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

log = logging.getLogger(__name__)

OWN = "rota"
"""The distribution whose plug-ins keep their names, whatever else is installed."""
KINDS: Mapping[str, type[Plugin]] = {
    "executor": ExecutorPlugin,
    "agent": AgentPlugin,
    "channel": ChannelPlugin,
}
Id: TypeAlias = tuple[str, str]
"""The kind and the name of a plug-in."""


@dataclass(frozen=True, slots=True)
class InstalledPlugins:
    """What the entry points of this environment name, by kind and name."""

    executors: Mapping[str, ExecutorPlugin]
    agents: Mapping[str, AgentPlugin]
    channels: Mapping[str, ChannelPlugin]
    problems: Sequence[PluginProblem] = ()

    def all(self) -> dict[Id, Plugin]:
        """Return every plug-in."""
        groups: Iterator[tuple[str, Mapping[str, Plugin]]] = zip(
            KINDS, (self.executors, self.agents, self.channels), strict=True
        )
        return {(kind, name): one for kind, group in groups for name, one in group.items()}

    def named_agents(self) -> dict[str, AgentPlugin]:
        """Return the agents that tasks may name."""
        return {n: one for n, one in self.agents.items() if one.kind is TaskKind.AGENT}


@cache
def find_plugins() -> InstalledPlugins:
    """Scan the entry points and load what they name; a scan looks at every distribution."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow to load

    scanned = entry_points()
    problems: list[PluginProblem] = []
    found: list[dict[str, Any]] = []
    for kind, wanted in KINDS.items():
        known: dict[str, Any] = {}
        points = sorted(scanned.select(group=f"rota.{kind}s"), key=_own_first)
        for point in points:
            try:
                known[point.name] = _load(point, kind, wanted, known)
            except PluginProblem as problem:
                problems.append(problem)
        if all(_distribution(point) != OWN for point in points):
            reason = "the installation has no entry points: install Rota again"
            problems.append(PluginProblem(kind, f"of {OWN}", reason))
        found.append(known)
    executors, agents, channels = found
    return InstalledPlugins(executors, agents, channels, problems)


def _own_first(point: EntryPoint) -> tuple[bool, str, str]:
    return _distribution(point) != OWN, _distribution(point), point.name


def _distribution(point: EntryPoint) -> str:
    return "" if point.dist is None else point.dist.name


def _load(
    point: EntryPoint, kind: str, wanted: type[Plugin], known: Mapping[str, Plugin]
) -> Plugin:
    """Return what an entry point names; PluginProblem if it cannot be used beside the others."""
    if point.name in known:
        reason = "another distribution has a plug-in of this name"
        raise PluginProblem(kind, point.name, f"{_distribution(point)}: {reason}")
    try:
        plugin = point.load()
    except Exception as fault:
        reason = f"{point.value} cannot be loaded ({_shown(fault)})"
        raise PluginProblem(kind, point.name, reason) from fault
    if not isinstance(plugin, wanted):
        raise PluginProblem(kind, point.name, f"{point.value} is no {wanted.__name__}")
    conflict = plugin.conflict(known.values())
    if conflict is not None:
        raise PluginProblem(kind, point.name, conflict)
    return plugin


def _shown(fault: Exception) -> str:
    return f"{type(fault).__name__}: {fault}".partition("\n")[0][:200]


@dataclass(frozen=True, slots=True)
class PluginSettings:
    """The settings of every plug-in that has any, and what is wrong with them."""

    values: Mapping[Id, object]
    faults: Sequence[str]


def read_plugin_settings(settings: Settings, installed: InstalledPlugins) -> PluginSettings:
    """Return the settings of every plug-in, and a sentence for each thing wrong with them."""
    every = installed.all()
    failed = {(each.kind, each.name) for each in installed.problems}
    unused = set(settings.plugin_variables)
    values: dict[Id, object] = {}
    faults = [*_no_such_plugins(settings, installed, failed)]
    for (kind, name), plugin in every.items():
        told = dict(settings.plugins.get(f"{kind}s", {}).get(name, {}))
        for field in _fields(plugin):
            variable = f"{_prefix(kind, name)}{field}"
            if variable in unused:
                told[field] = settings.plugin_variables[variable]
                unused.remove(variable)
        try:
            values[kind, name] = _validated(f"{kind}s.{name}", plugin, told)
        except Refused as fault:
            faults.append(str(fault))
    of_failed = tuple(_prefix(*one) for one in failed)
    faults += [
        _no_such_variable(name, every) for name in sorted(unused) if not name.startswith(of_failed)
    ]
    return PluginSettings(values, faults)


def _no_such_plugins(
    settings: Settings, installed: InstalledPlugins, failed: set[Id]
) -> Iterator[str]:
    """Yield a sentence for each name of a plug-in that is not installed."""
    every = installed.all()
    for kind in KINDS:
        known = [name for one, name in every if one == kind]
        for name in settings.plugins.get(f"{kind}s", {}):
            if name not in known and (kind, name) not in failed:
                yield str(Invalid(f"{kind}s", name, not_installed(name, known, {})))
    agent, known = settings.agent, [*installed.named_agents()]
    if agent is not None and agent not in known and ("agent", agent) not in failed:
        yield str(Invalid("agent", agent, not_installed(agent, known, {})))


def _prefix(kind: str, name: str) -> str:
    return f"{kind}s_{name}_".replace("-", "_").lower()


def variable_of(kind: str, name: str, field: str) -> str:
    """Return the variable of a setting of a plug-in."""
    return f"{PREFIX}{_prefix(kind, name)}{field}".upper()


def _fields(plugin: Plugin) -> list[str]:
    return [] if plugin.settings is None else [each.name for each in fields(plugin.settings)]


def _validated(table: str, plugin: Plugin, told: Mapping[str, object]) -> object:
    """Return the settings of a plug-in, None if it has none; Refused with all that is wrong."""
    known = _fields(plugin)
    stray = [name for name in told if name not in known]
    if stray:
        faults = [
            Invalid(f"{table}.{name}", told[name], _no_setting(name, known)) for name in stray
        ]
        raise Refused("; ".join(map(str, faults)))
    if plugin.settings is None:
        return None
    if not told and all(_has_default(field) for field in fields(plugin.settings)):
        return plugin.settings()  # most installations set nothing: a validator is large
    try:
        return TypeAdapter(plugin.settings).validate_python(dict(told))
    except ValidationError as fault:
        faults = [
            Invalid(".".join([table, *map(str, e["loc"][:1])]), e["input"], advice_on(e))
            for e in fault.errors()
        ]
        raise Refused("; ".join(map(str, faults))) from None


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _no_setting(name: str, known: Sequence[str]) -> str:
    if not known:
        return "it has no settings: leave it out"
    near = get_close_matches(name, known, 1)
    meant = f": did you mean {near[0]}? There" if near else "; there"
    return f"no such setting{meant} are {', '.join(known)}"


def _no_such_variable(name: str, every: Mapping[Id, Plugin]) -> str:
    known = [
        f"{_prefix(*one)}{field}" for one, plugin in every.items() for field in _fields(plugin)
    ]
    near = [f"{PREFIX}{each.upper()}" for each in get_close_matches(name, known, 1)]
    advice = f"no such setting: did you mean {near[0]}?" if near else "no such setting: unset it"
    return str(Invalid("variable", f"{PREFIX}{name.upper()}", advice))


class LocalPlugins:
    """The plug-ins of this environment; nothing is scanned or made before it is asked for."""

    def __init__(
        self, settings: Settings, find: Callable[[], InstalledPlugins] = find_plugins
    ) -> None:
        self._settings = settings
        self._find = find
        self._broken: dict[Id, PluginProblem] = {}

    @cached_property
    def installed(self) -> InstalledPlugins:
        """What the entry points name."""
        return self._find()

    @cached_property
    def settings(self) -> Mapping[Id, object]:
        """The settings of each; Refused with everything that is wrong."""
        found = read_plugin_settings(self._settings, self.installed)
        if found.faults:
            raise Refused("; ".join(found.faults))
        return found.values

    @property
    def problems(self) -> Sequence[PluginProblem]:
        """What is installed and cannot be used, as far as is known by now."""
        return [*self.installed.problems, *self._broken.values()]

    def log_problems(self) -> None:
        """Write a line to the log for each plug-in that cannot be used."""
        for each in self.problems:
            told = {"kind": each.kind, "plugin": each.name, "error": each.reason}
            log.warning("plugin.failed", extra=told)

    @cached_property
    def every_agent(self) -> Mapping[str, Agent]:
        """The agents by name, with those that no task names."""
        return dict(self._made("agent", self.installed.agents))

    @cached_property
    def agents(self) -> AgentRegistry:
        """The agents that tasks may name, and the one of those that name none."""
        named = self.installed.named_agents()
        known = {name: agent for name, agent in self.every_agent.items() if name in named}
        default = next((name for name, plugin in named.items() if plugin.default), "")
        told = {name: self.settings["agent", name] for name in known}
        return AgentRegistry(
            known,
            self._settings.agent or default,
            self._settings.prices,
            {n: dict(each.tiers) for n, each in told.items() if isinstance(each, AgentSettings)},
            self._failed("agent"),
        )

    @cached_property
    def executors(self) -> ExecutorRegistry:
        """What each executor offers."""
        offered = {n: plugin.capabilities for n, plugin in self.installed.executors.items()}
        return ExecutorRegistry(offered, self._failed("executor"))

    @cached_property
    def channels(self) -> Mapping[str, Channel]:
        """The channels by name."""
        return dict(self._made("channel", self.installed.channels))

    @property
    def channel_names(self) -> Sequence[str]:
        """The names of the channels."""
        return tuple(self.installed.channels)

    def make_executors(self) -> dict[str, Executor]:
        """Return a new executor for each plug-in; it takes a moment."""
        plugins = self.installed.executors
        made: dict[str, Executor] = {}

        def default(role: SpaceRole) -> Executor:
            try:
                name = self.executors.default(role)
            except Invalid as fault:
                raise LookupError(fault.advice) from fault
            if name not in made:
                made[name] = plugins[name].make(self.settings["executor", name], host)
            return made[name]

        host = ExecutorHost(
            home=self._settings.home.absolute(),
            mounts=self._settings.mounts,
            environment=offered_variables(),
            default=default,
        )
        made.update(self._made("executor", plugins, host))
        return made

    def terminals(self) -> Sequence[Callable[[str], Terminal]]:
        """Return what finds the terminal of an attempt by its state folder."""
        found = (plugin.terminal for plugin in self.installed.executors.values())
        return [terminal for terminal in found if terminal is not None]

    def _failed(self, kind: str) -> dict[str, str]:
        return {each.name: each.reason for each in self.problems if each.kind == kind}

    def _made(
        self, kind: str, group: Mapping[str, Plugin], *more: object
    ) -> Iterator[tuple[str, Any]]:
        """Yield each plug-in of a kind, made; one that cannot be made becomes a problem.

        Errors of Rota's own pass: they say what the operator must correct.
        """
        for name, plugin in group.items():
            settings = self.settings[kind, name]
            try:
                made = plugin.make(settings, *more)
            except RotaError:
                raise
            except Exception as fault:  # noqa: BLE001 - a stranger's code may raise anything
                reason = f"it cannot be made ({_shown(fault)})"
            else:
                if made.name == name:
                    yield name, made
                    continue
                reason = f"it is named {made.name}, and its entry point {name}"
            self._broken[kind, name] = PluginProblem(kind, name, reason)


@cache
def load_plugins(settings: Settings) -> LocalPlugins:
    """Return the plug-ins of an installation: in one process they are the same everywhere."""
    return LocalPlugins(settings)
