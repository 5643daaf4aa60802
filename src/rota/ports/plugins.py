"""What plug-ins of every kind have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugin:
    """What an entry point names; the name of the entry point is that of the plug-in.

    `settings` is a dataclass of what its table in rota.toml may say; `about` in the metadata of a
    field says what the setting means. `make` is called with one, or with None.
    """

    make: Callable[..., Any]
    settings: type | None = None

    def conflict(self, others: Iterable[Self]) -> str | None:  # noqa: ARG002 - for kinds that can
        """Return why the plug-in cannot be used beside others of its kind, if so."""
        return None


class PluginProblem(Exception):
    """A plug-in that is installed and cannot be used, and why."""

    def __init__(self, kind: str, name: str, reason: str) -> None:
        super().__init__(f"the {kind} {name} cannot be used: {reason}")
        self.kind = kind
        self.name = name
        self.reason = reason
