"""Spaces, roles and limits."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from rota.model.ids import SpaceId


class SpaceRole(StrEnum):
    """Which spaces a space may act for: `main` for all of them, `member` for itself."""

    MAIN = "main"
    MEMBER = "member"


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """The isolated area of a person or group."""

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
    """What the number of is limited in a member space."""

    QUEUED = "queued"
    SCHEDULES = "schedules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """How many runs of a scope may run at once, and how many may start in a period.

    `key` is empty (total), a pool (scope `pool`; scope `space`: the default for every space in that
    pool), `pool/space` (one space in one pool) or the name of a group. The scope `space` also takes
    a quota instead of a pool, which limits member spaces. A limit without a cap counts nothing.
    """

    scope: LimitScope
    key: str = ""
    cap: int | None = None
    rate: int | None = None
    period: timedelta | None = None
