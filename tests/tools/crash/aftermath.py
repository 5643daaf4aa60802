"""Lives that begin with a database full of ended work: pruning it, and upgrading it."""

from __future__ import annotations

import atexit
import json
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Final

import apsw

import rota
from rota.store.sql_files import load_migrations
from tests.tools.crash.cases import KEEPING, Case
from tests.tools.crash.driver import LEAVE_SECONDS, QUIET_LOOK, Driver
from tests.tools.crash.evidence import Evidence
from tests.tools.crash.kept_attempts import AskingDriver, KeptDriver
from tests.tools.crash.processes import Process

STEPS: Final = (9997, 9998, 9999)
"""Schema steps of a Rota to come, so that an upgrade has three."""
SETTLING_SECONDS: Final = 20.0
KEPT: Final = ("tasks", "schedules", "runs", "attempts", "ledger", "questions", "deliveries")


class _Aftermath(Driver):
    """Works until everything has ended, then lets daemons die over what is left."""

    def _go(self) -> None:
        if not self._heal(0):
            return
        self._judge()
        before = self._database.read()
        for number, blow in enumerate(self._case.blows):
            daemon = self._start(blow.fault)
            if daemon.wait(SETTLING_SECONDS):
                self.result.struck += 1
            else:
                self._complain(f"life {number} never came to {blow}")
            self._bury(daemon, blow)
        daemon = self._start("")
        self._wait(daemon, lambda: daemon.up and self._done())
        daemon.send(signal.SIGTERM)
        if not daemon.wait(LEAVE_SECONDS) or daemon.code != 0:
            self._complain(f"the last daemon ended with code {daemon.code}")
        self._compare(before, self._database.read())

    def _wait(self, daemon: Process, done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + SETTLING_SECONDS
        while not done() and daemon.alive:
            if time.monotonic() > deadline:
                self._complain("it did not come to an end")
                return
            time.sleep(QUIET_LOOK)

    def _start(self, fault: str) -> Process:
        raise NotImplementedError

    def _done(self) -> bool:
        raise NotImplementedError

    def _compare(self, before: Evidence, after: Evidence) -> None:
        raise NotImplementedError


class Pruning(_Aftermath):
    """Everything is older than retention allows: it goes, and what it came to stays counted."""

    def _start(self, fault: str) -> Process:
        return self._start_daemon(fault, ROTA_RETENTION="1ms")

    def _done(self) -> bool:
        return not self._database.read()["runs"]

    def _compare(self, before: Evidence, after: Evidence) -> None:
        was = Counter((run["task_id"], run["state"]) for run in before["runs"])
        now = Counter((run["task_id"], run["state"]) for run in after["runs"])
        for task in after["tasks"]:
            for state, count in json.loads(task["pruned"]).items():
                now[task["id"], state] += count
        if was != now:
            self.result.faults.append(f"lost: runs {was - now} and too many {now - was}")
        for table in ("attempts", "questions", "deliveries", "deferred", "effects"):
            if after[table]:
                self.result.faults.append(f"stranded: {len(after[table])} {table} without a run")


class Upgrading(_Aftermath):
    """A Rota to come, with three more steps of the schema, takes over."""

    def _start(self, fault: str) -> Process:
        return self._start_daemon(fault, cold=True, PYTHONPATH=str(rota_to_come()))

    def _done(self) -> bool:
        return self._database.version() == STEPS[-1]

    def _compare(self, before: Evidence, after: Evidence) -> None:
        for table in KEPT:
            if before[table] != after[table]:
                self.result.faults.append(f"lost: {table} changed with the upgrade")
        if self._case.store == "sqlite":
            self._check_snapshot(before)

    def _check_snapshot(self, before: Evidence) -> None:
        copy = self._folder / "home" / f"rota.db.before-{STEPS[0]}"
        connection = apsw.Connection(str(copy), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            health = connection.execute("pragma integrity_check").get
            runs = connection.execute("select count(*) from runs").get
            version = connection.execute("pragma user_version").get
        finally:
            connection.close()
        wanted = load_migrations("rota.store.sqlite")[-1].number
        if (health, runs, version) != ("ok", len(before["runs"]), wanted):
            self.result.faults.append(f"lost: the snapshot is {health}, {runs} runs, {version}")


@cache
def rota_to_come() -> Path:
    """Return a folder with a copy of Rota that has further steps of the schema."""
    folder = Path(mkdtemp(prefix="rota-to-come-"))
    atexit.register(shutil.rmtree, folder)
    package = folder / "rota"
    shutil.copytree(Path(rota.__file__).parent, package, ignore=shutil.ignore_patterns("*.pyc"))
    for number in STEPS:
        for store, schema in (("sqlite", ""), ("postgres", "rota.")):
            step = package / "store" / store / "migrations" / f"{number}_to_come.sql"
            step.write_text(f"create table {schema}to_come_{number} (id integer primary key);\n")
    return folder


DRIVERS: Final[dict[str, type[Driver]]] = {
    "prune_runs": Pruning,
    "migrate": Upgrading,
    "snapshot": Upgrading,
}
"""Who drives the points of these parts; the usual driver drives all others."""


def driver_of(case: Case) -> type[Driver]:
    """Return the driver that a case needs."""
    if case.asking:
        return AskingDriver
    if case.fresh or not case.blows:
        return Driver
    if KEEPING.issuperset(blow.owner for blow in case.blows):
        return KeptDriver
    return DRIVERS.get(case.blows[0].owner, Driver)
