"""Who may do what: one pure function."""

from __future__ import annotations

from dataclasses import dataclass

from rota.errors import NotFound
from rota.model.spaces import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, told by the door they came through and never by what they say."""

    space: str = "main"
    role: Role = Role.MAIN
    name: str = "local"


LOCAL = Caller()
"""The owner of the process or the terminal."""


def check_space(caller: Caller, space: str) -> None:
    """Refuse a caller who may not act for a space, as if the space did not exist."""
    if caller.role is not Role.MAIN and caller.space != space:
        raise NotFound("space", space)
