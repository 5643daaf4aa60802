"""Secrets, as far as anybody is told of them: never their values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretView:
    """One secret that is known here by its name.

    `source` is where its value comes from: `kept`, `env:NAME` or `file:/path`. `problem` says why
    there is none just now. `upstreams` are those of the gateway that show it.
    """

    name: str
    source: str
    upstreams: tuple[str, ...] = ()
    set_at: datetime | None = None
    set_by: str | None = None
    used_at: datetime | None = None
    problem: str | None = None
