"""A small daemon that starts attempts and records what they write, made to be killed.

It keeps its promises with nothing but a database and the daemon's side of the keeper: who the
keeper will be is committed before it is started, and lines are committed together with the offset
behind them. Its tables have no unique keys on purpose: what is recorded twice shall be seen.
"""

from __future__ import annotations

import fcntl
import os
import random
import select
import time
from pathlib import Path

import apsw

from rota.keeper.client import (
    KeeperEnded,
    KeeperFifo,
    KeeperIdentity,
    KeeperLease,
    new_identity,
    probe,
    read_spool,
    start_keeper,
)
from rota.model.programs import Program, ResourceLimits
from rota.ports.executor import KeeperSpec, ProcessTreeMode
from tests.tools.keepers.attempts import ENVIRONMENT, keeper_program
from tests.tools.keepers.programs import COUNTING

TABLES = """
create table if not exists epochs (epoch integer);
create table if not exists attempts (
    name text, boot text, nonce text, lines integer, code integer, tree text, done integer
);
create table if not exists offsets (name text, stream text, at integer);
create table if not exists lines (name text, stream text, at integer, line blob);
create table if not exists endings (
    name text, reason text, code integer, proven integer, out_size integer, err_size integer
);
"""
REFUSED = 75
STREAMS = ("out", "err")
LEASE_SECONDS = 60.0
LOCK_SECONDS = 10.0
LOCK_RETRY_SECONDS = 0.01
LOOK_MILLISECONDS = 20
READ_BYTES = 256 * 1024


def open_database(home: Path) -> apsw.Connection:
    """Open the record of a daemon."""
    database = apsw.Connection(str(home / "record.db"))
    database.set_busy_timeout(10_000)
    database.execute("pragma journal_mode=wal; pragma synchronous=off")
    database.execute(TABLES)
    return database


class Daemon:
    """Keeps a number of attempts going until a file says stop, and ends when all have ended."""

    def __init__(
        self,
        home: Path,
        trees: list[ProcessTreeMode],
        at_once: int,
        seed: int,
        *,
        patient: bool = True,
    ) -> None:
        self.home = home
        self.trees = trees
        self.at_once = at_once
        lock = os.open(home / "daemon.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        # A child that the last one has just forked has its lock until it has become a keeper.
        patience = LOCK_SECONDS if patient else 0.0
        while not _locked(lock):
            if patience <= 0:
                os._exit(REFUSED)
            time.sleep(LOCK_RETRY_SECONDS)
            patience -= LOCK_RETRY_SECONDS
        self.database = open_database(home)
        with self.database:
            self.database.execute(
                "insert into epochs select coalesce(max(epoch), 0) + 1 from epochs"
            )
        self.epoch = int(self._one("select max(epoch) from epochs"))
        self.chance = random.Random(f"{seed}:{self.epoch}")
        self.program = keeper_program(home)
        self.wake = KeeperFifo(home / "wake")
        self.lease = KeeperLease(home / "lease", self.epoch)
        self.lease.renew(LEASE_SECONDS)

    def run(self) -> None:
        """Work until there is no more to do."""
        poll = select.poll()
        poll.register(self.wake, select.POLLIN)
        while True:
            living = list(
                self.database.execute("select name, boot, nonce from attempts where not done")
            )
            stopping = (self.home / "stop").exists()
            if stopping and not living:
                return
            for name, boot, nonce in living:
                self._look(KeeperIdentity(name=name, boot=boot, nonce=nonce))
            if not stopping and len(living) < self.at_once:
                self._begin()
            elif poll.poll(LOOK_MILLISECONDS):
                self.wake.read_names()
            self.lease.renew(LEASE_SECONDS)

    def _one(self, sql: str, *values: str | int) -> int:
        return int(next(iter(self.database.execute(sql, values)))[0])

    def _begin(self) -> None:
        number = self._one("select count(*) from attempts")
        identity = new_identity(f"{self.home.name}.{number}")
        lines, strays = self.chance.randint(50, 1500), self.chance.randint(0, 3)
        code, tree = self.chance.choice([0, 0, 3]), self.chance.choice(self.trees)
        folder = self.home / identity.name
        with self.database:
            self.database.execute(
                "insert into attempts values (?, ?, ?, ?, ?, ?, 0)",
                (identity.name, identity.boot, identity.nonce, lines, code, tree.value),
            )
            for stream in STREAMS:
                self.database.execute(
                    "insert into offsets values (?, ?, 0)", (identity.name, stream)
                )
        source = [self.program.python, "-I", "-S", "-c", COUNTING]
        pause = str(round(self.chance.uniform(0.0, 0.03), 3))
        argv = [*source, str(lines), str(strays), str(code), pause, str(folder)]
        spec = KeeperSpec(
            name=identity.name,
            command=Program(argv=argv, env=ENVIRONMENT),
            bounds=ResourceLimits(grace_seconds=0.3, hard_seconds=30.0),
            tree=tree,
        )
        start_keeper(
            folder,
            spec,
            identity,
            self.program,
            epoch=self.epoch,
            lease=self.lease,
            wake=self.wake,
            leftover_seconds=0.2,
        )

    def _look(self, identity: KeeperIdentity) -> None:
        folder = self.home / identity.name
        seen = probe(folder, identity)
        ending = seen.ending if isinstance(seen, KeeperEnded) else None
        rest = ending is not None
        more = [self._tail(folder, identity.name, stream, rest=rest) for stream in STREAMS]
        if ending is None or any(more):
            return
        with self.database:
            self.database.execute(
                "insert into endings values (?, ?, ?, ?, ?, ?)",
                (
                    identity.name,
                    ending.reason.value,
                    ending.code,
                    int(ending.proven),
                    ending.out.size,
                    ending.err.size,
                ),
            )
            self.database.execute("update attempts set done = 1 where name = ?", (identity.name,))

    def _tail(self, folder: Path, name: str, stream: str, *, rest: bool) -> bool:
        """Record the new lines of a stream with the offset behind them; true if there were any."""
        find = "select at from offsets where name = ? and stream = ?"
        at = self._one(find, name, stream)
        data = read_spool(folder, stream, at, READ_BYTES)
        whole = data if rest and len(data) < READ_BYTES else data[: data.rfind(b"\n") + 1]
        if not whole:
            return False
        with self.database:
            for line in whole.splitlines(keepends=True):
                row = (name, stream, at, line)
                self.database.execute("insert into lines values (?, ?, ?, ?)", row)
                at += len(line)
            change = "update offsets set at = ? where name = ? and stream = ?"
            self.database.execute(change, (at, name, stream))
        return True


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
