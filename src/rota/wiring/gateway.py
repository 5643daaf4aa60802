"""From settings to the gateway: how it is started, and what it is told."""

from __future__ import annotations

from collections.abc import Callable

from rota.executors.kit.executor import Interpreter
from rota.gateway.keeping import HomeGateway
from rota.gateway.upstreams import Upstream
from rota.gateway.ways import Ways
from rota.wiring.secrets import GATEWAY, LocalSecrets
from rota.wiring.settings import Settings
from rota.wiring.surroundings import trust_environment

PROGRAM = "rota.gateway.process"


def ways_of(settings: Settings, secrets: LocalSecrets) -> Ways:
    """Return how attempts of this home are led to the gateway; it hears of every new secret."""
    python = Interpreter.running()
    gateway = HomeGateway(
        settings.home / GATEWAY,
        lambda folder: python.module(PROGRAM, folder),
        trust_environment(),
        _upstreams(secrets),
    )
    inside = settings.outlet_port if settings.outlet is None else None
    ways = Ways(gateway, secrets.plan, secrets.values, secrets.redactor, inside)
    ways.on_close(secrets.subscribe(ways.changed))
    return ways


def _upstreams(secrets: LocalSecrets) -> Callable[[], list[Upstream]]:
    def known() -> list[Upstream]:
        values = secrets.values()
        ready = (each for each in secrets.plan.upstreams if each.takes(values.get(each.secret)))
        return [each.with_secret(values[each.secret]) for each in ready]

    return known
