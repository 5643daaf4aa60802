"""From settings to work that is kept: the agents, the home's yard, and what they are offered."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from rota.agents.command.script import ScriptAgent
from rota.executors.checks.probes import HomeProbes
from rota.executors.kit.artifacts import HomeArtifacts
from rota.executors.kit.yard import HomeYard
from rota.flow.execute.again import Patience
from rota.flow.execute.kept import KeptWork
from rota.flow.prune import prune_artifacts
from rota.model.programs import Bounds
from rota.ports.artifacts import ArtifactKeeping
from rota.ports.checking import Probes
from rota.ports.clock import Random
from rota.ports.mailboxes import Mailboxes
from rota.ports.passes import Passes
from rota.ports.store import Store
from rota.wiring.agents import agents_of
from rota.wiring.gateway import ways_of
from rota.wiring.passes import desk_socket
from rota.wiring.secrets import secrets_of
from rota.wiring.settings import Settings
from rota.wiring.sites import LocalSites
from rota.wiring.surroundings import offered


def artifacts_of(settings: Settings) -> ArtifactKeeping:
    """Return where the files are that runs of this home have left."""
    return HomeArtifacts(settings.home.absolute())


@cache
def probes_of(settings: Settings) -> Probes:
    """Return what looks and evaluates for checks: a process has one, whose seats all share."""
    return HomeProbes(settings.home, inside=settings.check_inside)


def kept_work(
    settings: Settings,
    store: Store,
    host: str,
    holder: Callable[[], str],
    chance: Random,
    passes: Passes | None = None,
    mailboxes: Mailboxes | None = None,
) -> KeptWork:
    """Return what runs agents and scripts under keepers of this home."""
    sites = LocalSites(settings)
    secrets = secrets_of(settings)
    ways = ways_of(settings, secrets)
    return KeptWork(
        store,
        HomeYard(
            settings.home,
            host,
            sites.executors,
            sites.outlet,
            desk_socket(settings.home),
            ways,
            secrets.redactor,
        ),
        {**agents_of(settings.agent).known, ScriptAgent.name: ScriptAgent()},
        holder,
        chance,
        usual_agent=settings.agent,
        offered=offered(),
        patience=Patience(retries=settings.agent_retries, wait=settings.agent_wait),
        tidy=partial(prune_artifacts, store, artifacts_of(settings), settings.retention),
        usual=usual_bounds(settings),
        passes=passes,
        mailboxes=mailboxes,
        probes=probes_of(settings),
        prices=settings.prices,
    )


def usual_bounds(settings: Settings) -> Bounds:
    """Return what programs are held to whose task says nothing."""
    idle = settings.idle_timeout
    return Bounds(
        hard_seconds=settings.timeout.total_seconds(),
        idle_seconds=None if idle is None else idle.total_seconds(),
        grace_seconds=settings.grace.total_seconds(),
    )
