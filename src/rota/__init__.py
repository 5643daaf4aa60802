"""A self-hosted scheduler and durable queue for scripts and agents."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than the rest of `rota --help`
if TYPE_CHECKING:
    from typing import Any

    from rota.executors.inprocess.run_context import RunContext
    from rota.library.rota import Rota
    from rota.model.spaces import Limit, LimitScope
    from rota.model.tasks import After, CatchUp, Retry


__all__ = ["After", "CatchUp", "Limit", "LimitScope", "Retry", "Rota", "RunContext"]

_HOMES = {
    "After": "rota.model.tasks",
    "CatchUp": "rota.model.tasks",
    "Limit": "rota.model.spaces",
    "Retry": "rota.model.tasks",
    "Rota": "rota.library.rota",
    "RunContext": "rota.executors.inprocess.run_context",
    "LimitScope": "rota.model.spaces",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that `import rota` costs nothing."""
    if name not in _HOMES:
        message = f"module 'rota' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
