"""API keys and their scopes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import SpaceId
from rota.model.spaces import SpaceRole


class KeyScope(StrEnum):
    """What a key may do within its space."""

    READ = "read"
    """Read everything."""
    RUN = "run"
    """Queue, cancel, retry and answer runs."""
    DEFINE = "define"
    """Create, change and delete tasks, schedules and the state of tasks."""
    ADMIN = "admin"
    """Spaces, keys, limits, and the daemon itself."""
    SQL = "sql"
    """Query the database with SQL, read-only."""


EVERY_SCOPE = frozenset(KeyScope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """An API key as stored, without its secret."""

    id: int
    space_id: SpaceId
    space: str
    name: str
    prefix: str
    role: SpaceRole
    scopes: frozenset[KeyScope]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    used_at: datetime | None
    revoked_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """An API key to be stored; already validated."""

    space_id: SpaceId
    name: str
    prefix: str
    digest: str
    role: SpaceRole
    scopes: frozenset[KeyScope]
    created_by: str
    expires_at: int | None = None
