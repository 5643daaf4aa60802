"""API keys and their scopes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from rota.model.ids import SpaceId
from rota.model.spaces import SpaceRole


class KeyScope(StrEnum):
    """What a key opens, within its space."""

    READ = "read"
    """Look at everything."""
    RUN = "run"
    """Queue, cancel, retry and answer runs."""
    DEFINE = "define"
    """Create, change and delete tasks, schedules and what tasks remember."""
    ADMIN = "admin"
    """Spaces, keys, limits, and the daemon itself."""
    SQL = "sql"
    """Ask the database in SQL, read-only."""


EVERY_SCOPE = frozenset(KeyScope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as it stands in the store; the secret itself is nowhere."""

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
    """A key to be kept; everything is validated already."""

    space_id: SpaceId
    name: str
    prefix: str
    digest: str
    role: SpaceRole
    scopes: frozenset[KeyScope]
    created_by: str
    expires_at: int | None = None
