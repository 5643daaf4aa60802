"""Spaces, roles and limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rota.model.ids import SpaceId


class SpaceRole(StrEnum):
    """What a space may act for: `main` for every space, `member` only for itself."""

    MAIN = "main"
    MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A person's or group's own corner."""

    id: SpaceId
    name: str
    role: SpaceRole
    timezone: str
    created_at: datetime


class LimitScope(StrEnum):
    """What a limit counts."""

    TOTAL = "total"
    POOL = "pool"
    SPACE = "space"
    GROUP = "group"


class Quota(StrEnum):
    """What a member space may have only so many of."""

    QUEUED = "queued"
    SCHEDULES = "schedules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many runs of a scope may run at once, and how many may start in a period.

    `key` is empty (total), a pool (pool; space: every space's default in that pool),
    `pool/space` (one space in one pool) or a group's name. In the place of a pool the scope `space`
    takes a quota as well, which member spaces have. A limit without a cap counts nothing.
    """

    scope: LimitScope
    key: str = ""
    cap: int | None = None
    rate: int | None = None
    period: timedelta | None = None
