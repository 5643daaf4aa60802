"""What is said beside an answer when nobody takes the work."""

from __future__ import annotations

from rota.doors.cli.desk import Desk, Record
from rota.errors import RotaError

NOBODY = "Nobody works: start `rota up`."


def idle_words(seen: Record) -> str:
    """Return why nobody takes work, by a status; empty if somebody does."""
    idle = str(seen.get("idle") or "")
    return idle and f"{idle[0].upper()}{idle[1:]}."


def tell_if_idle(desk: Desk) -> bool:
    """Say that nobody takes what was just asked for, and what to do; return whether that is so."""
    words = "" if desk.out.as_json else look_if_idle(desk)
    if words:
        desk.out.talk(words)
    return bool(words)


def look_if_idle(desk: Desk) -> str:
    """Return why nobody takes what was asked for; empty if somebody does."""
    try:
        words = idle_words(desk.call("GET", "/v1/status"))
    except RotaError:  # who may ask for work may not look, and a daemon may be restarting
        return ""
    return words.replace("Nobody works:", "Nobody works on it:")
