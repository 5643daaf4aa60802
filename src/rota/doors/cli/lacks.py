"""What tasks name and cannot be found: as the daemon sees it, or else as this terminal does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rota.doors.cli.remote import Remote
from rota.ports.store import Store
from rota.wiring.lacking import NOT_ON_PATH, lacks_of_all, search_path
from rota.wiring.settings import Settings

MOST_LISTED = 1_000
MOST_NAMED = 5
DAEMON, TERMINAL = "the daemon", "this terminal"
NO_DAEMON = "No daemon answers, so programs were looked for on the PATH of this terminal: {}"


class Lack(NamedTuple):
    """Something that tasks name and that is missing, and what to do."""

    sentence: str
    advice: str


class Looked(NamedTuple):
    """What was found missing, and by whom."""

    lacks: Sequence[Lack]
    by: str

    @property
    def note(self) -> str | None:
        """What must be known of the PATH on which programs were looked for, if any is missing."""
        missing = any(NOT_ON_PATH in lack.sentence for lack in self.lacks)
        return NO_DAEMON.format(search_path()) if missing and self.by == TERMINAL else None


def ask_daemon(daemon: Remote) -> Looked:
    """Return what a daemon lacks for the tasks that are enabled."""
    found: dict[str, list[str]] = {}
    before: int | None = None
    while True:
        page = {} if before is None else {"before": before}
        wanted = {"state": "enabled", "limit": MOST_LISTED, **page}
        listed = daemon.call("GET", "/v1/tasks", wanted)
        for task in listed["tasks"]:
            for lack in daemon.call("GET", f"/v1/tasks/{task['id']}", {})["lacks"]:
                found.setdefault(lack, []).append(task["name"])
        before = listed["next"]
        if before is None:
            return _looked(found, DAEMON)


async def look_here(store: Store, settings: Settings) -> Looked:
    """Return what would be missing for tasks if they were started from here."""
    found = await lacks_of_all(store, settings)
    named = {str(lack): [task.name for task in tasks] for lack, tasks in found.items()}
    return _looked(named, TERMINAL)


def _looked(found: dict[str, list[str]], by: str) -> Looked:
    return Looked([_lack(told, sorted(tasks), by) for told, tasks in sorted(found.items())], by)


def _lack(told: str, tasks: list[str], by: str) -> Lack:
    what, _, advice = told.partition(": ")
    where = f" of {by}" if what.endswith(NOT_ON_PATH) else ""
    return Lack(f"{what}{where}, wanted by {_named(tasks)}", advice)


def _named(tasks: list[str]) -> str:
    more = len(tasks) - MOST_NAMED
    named = ", ".join(tasks[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    return f"the task{'' if len(tasks) == 1 else 's'} {named}"
