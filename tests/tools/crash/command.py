"""The command: chooses cases, runs them one after the other, and says what broke."""

from __future__ import annotations

import argparse
import asyncio
import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from itertools import islice
from pathlib import Path

from rota.faultpoints import POINTS
from tests.tools.crash.aftermath import driver_of
from tests.tools.crash.cases import (
    HITS,
    STORES,
    Case,
    asking,
    chained,
    every_hit,
    outage_case,
    points_of,
    random_case,
)
from tests.tools.crash.driver import Driver, Result, make_home
from tests.tools.crash.outage import Outage
from tests.tools.crash.processes import load_everything
from tests.tools.crash.record import Record
from tests.tools.postgres import PostgresServer, shared_folder

REPEAT = "python -m tests.tools.crash --store {0.store} --seed {0.seed}"
DEFAULT_RECORD = ".crash/record.jsonl"


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases that words choose; 1 if anything was lost, doubled or stranded."""
    wanted = _parser().parse_args(words)
    load_everything()
    record = Record(wanted.record)
    deadline = time.monotonic() + wanted.seconds
    number, parts = (int(word) for word in wanted.part.split("/"))
    ran = failed = kills = 0
    for case in islice(_cases(wanted, record), number - 1, None, parts):
        if time.monotonic() > deadline:
            break
        result = run_case(case, cold=wanted.cold)
        record.add(result)
        _tell(result)
        ran, kills, failed = ran + 1, kills + result.kills, failed + bool(result.faults)
    _say(f"{ran} cases, {kills} kills, {failed} broken.")
    return 1 if failed else 0


def run_case(case: Case, *, cold: bool = False) -> Result:
    """Run one case in a new folder, which stays if something broke."""
    folder = Path(tempfile.mkdtemp(prefix="rota-crash-"))
    make_home(folder)
    with _driver(case, folder, cold=cold) as driver:
        result = driver.run()
    if not result.faults:
        shutil.rmtree(folder)
    return result


@contextmanager
def _driver(case: Case, folder: Path, *, cold: bool) -> Iterator[Driver]:
    if case.store == "sqlite":
        yield driver_of(case)(case, folder, f"sqlite:///{folder / 'home' / 'rota.db'}", cold=cold)
        return
    server = _server(durable=case.store == "server")
    address = asyncio.run(server.create(migrated=not case.fresh))
    try:
        if case.store == "server":
            yield Outage(case, folder, address, server)
        else:
            yield driver_of(case)(case, folder, address, cold=cold)
    finally:
        asyncio.run(server.drop(address))


@cache
def _server(*, durable: bool) -> PostgresServer:
    """Return the server that tests share, or one of our own that may be killed."""
    folder = Path(tempfile.mkdtemp(prefix="rota-server-")) / "data" if durable else shared_folder()
    server = PostgresServer(folder, durable=durable)
    server.start()
    if durable:
        atexit.register(_remove, server)
    return server


def _remove(server: PostgresServer) -> None:
    server.stop()
    shutil.rmtree(server.folder.parent)


def _cases(wanted: argparse.Namespace, record: Record) -> Iterator[Case]:
    for store in wanted.store or (*STORES, "server"):
        points = wanted.point or points_of(store)
        if wanted.seed is not None:
            yield random_case(store, wanted.seed) if store != "server" else outage_case(wanted.seed)
        elif store == "server":
            yield from _outage_cases(wanted.outages, record)
        elif wanted.random:
            yield from _random_cases(store, wanted.random, record)
        elif wanted.asking:
            yield from asking(store)
        elif wanted.chain:
            yield from chained(store, points)
        else:
            yield from every_hit(store, points, wanted.hits)
            yield from () if wanted.point else asking(store)


def _random_cases(store: str, kills: int, record: Record) -> Iterator[Case]:
    """Yield the next seeds until the record holds as many kills as wanted."""
    while record.kills(store) < kills:
        yield random_case(store, record.next_seed(store))


def _outage_cases(outages: int, record: Record) -> Iterator[Case]:
    while record.struck("server") < outages:
        yield outage_case(record.next_seed("server"))


def _tell(result: Result) -> None:
    case = result.case
    verdict = "ok" if not result.faults else "BROKEN"
    seed = "" if case.seed is None else f"seed {case.seed}: "
    _say(
        f"{case.store:8}  {verdict:6}  {result.seconds:5.1f} s  {result.kills} kills  {seed}{case}"
    )
    if result.faults:
        again = [] if case.seed is None else [f"again: {REPEAT.format(case)}"]
        for line in (*result.faults, *again, f"kept in {result.folder}"):
            _say(f"    {line}")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.crash",
        description="Kill the real daemon at fault points, heal it, and read the database.",
    )
    add = parser.add_argument
    choices = (*STORES, "server")
    add("--store", action="append", choices=choices, help="one store; `server`: its outages")
    add("--point", action="append", choices=list(POINTS), metavar="NAME", help="not every point")
    add("--hits", type=int, nargs="+", default=list(HITS), help="which times at a point (1 2 3)")
    add("--chain", action="store_true", help="every point once, five to a case")
    add("--asking", action="store_true", help="only runs that ask, wait and are answered")
    add("--random", type=int, default=0, metavar="KILLS", help="until the record holds so many")
    add("--outages", type=int, default=9, metavar="N", help="until the record holds so many (9)")
    add("--seed", type=int, help="one random case again")
    add("--record", type=Path, default=Path(DEFAULT_RECORD), help=f"where ({DEFAULT_RECORD})")
    add("--seconds", type=float, default=float("inf"), help="begin no case after so long")
    add("--part", default="1/1", metavar="N/M", help="every M-th case, from the N-th on")
    add("--cold", action="store_true", help="start every daemon from nothing")
    return parser
