"""The duty roster for agents: decides when work happens, runs it durably, and can say why."""

from __future__ import annotations

TYPE_CHECKING = False  # importing typing would cost more than the rest of `rota --help`
if TYPE_CHECKING:
    from typing import Any

    from rota.doors.library.client import Rota
    from rota.executors.inprocess.handle import RunHandle
    from rota.model.spaces import Limit, Scope
    from rota.model.tasks import After, CatchUp, Retry

__all__ = ["After", "CatchUp", "Limit", "Retry", "Rota", "RunHandle", "Scope"]

_HOMES = {
    "After": "rota.model.tasks",
    "CatchUp": "rota.model.tasks",
    "Limit": "rota.model.spaces",
    "Retry": "rota.model.tasks",
    "Rota": "rota.doors.library.client",
    "RunHandle": "rota.executors.inprocess.handle",
    "Scope": "rota.model.spaces",
}


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import a public name when it is first used, so that `import rota` costs nothing."""
    if name not in _HOMES:
        message = f"module 'rota' has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415

    return getattr(import_module(_HOMES[name]), name)
