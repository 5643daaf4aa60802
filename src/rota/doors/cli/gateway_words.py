"""The gateway of a home in words: whether it is there, since when, and what it can show."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import NamedTuple

from rota.flow.observe.telling import counted, span
from rota.gateway.looking import Seen
from rota.model.secrets import SecretView


class Gatekeeping(NamedTuple):
    """What is known of a gateway and of the secrets it is for."""

    seen: Seen | None
    secrets: Sequence[SecretView]


def gateway_record(known: Gatekeeping) -> dict[str, object]:
    """Return what is known of the gateway; secrets by name, and never their values."""
    seen = known.seen
    return {
        "running": seen is not None,
        "answers": seen is not None and seen.attempts is not None,
        "pid": None if seen is None else seen.pid,
        "since": None if seen is None else seen.since.isoformat(),
        "socket": None if seen is None else seen.socket,
        "attempts": None if seen is None else seen.attempts,
        "secrets": [
            {
                "name": secret.name,
                "source": secret.source,
                "readable": secret.problem is None,
                "problem": secret.problem,
            }
            for secret in known.secrets
        ],
    }


def gateway_lines(known: Gatekeeping, now: datetime) -> Iterator[str]:
    """Yield how the gateway is doing, and each secret it would show."""
    yield "The gateway to providers:"
    yield f"  {_state(known.seen, now)}"
    for secret in known.secrets:
        sign, told = ("✓", "") if secret.problem is None else ("✗", f": {secret.problem}")
        yield f"  {sign} {secret.name}, {secret.source}{told}"


def _state(seen: Seen | None, now: datetime) -> str:
    if seen is None:
        return "does not run; it starts when an agent needs it"
    age = span(now - seen.since)
    if seen.attempts is None:
        return f"✗ process {seen.pid}, up for {age}, does not answer at {seen.socket}"
    kind = "" if seen.current else " of another version"
    who = counted(seen.attempts, "attempt")
    return f"✓ process {seen.pid}{kind}, up for {age}, open to {who} ({seen.socket})"
