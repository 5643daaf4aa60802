"""The command: chooses cases, runs them one after the other, and says what broke."""

from __future__ import annotations

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from rota.faultpoints import POINTS
from rota.testing.crash.aftermath import driver_of
from rota.testing.crash.cases import HITS, STORES, Case, chained, every_hit, points_of, random_case
from rota.testing.crash.driver import Result, make_home
from rota.testing.crash.processes import load_everything


def main(words: Sequence[str] | None = None) -> int:
    """Run the cases that words choose; 1 if anything was lost, doubled or stranded."""
    wanted = _parser().parse_args(words)
    load_everything()
    failed = 0
    number, parts = (int(word) for word in wanted.part.split("/"))
    for case in islice(_cases(wanted), number - 1, None, parts):
        result = run_case(case, cold=wanted.cold)
        failed += bool(result.faults)
        _tell(result)
    return 1 if failed else 0


def run_case(case: Case, *, cold: bool = False) -> Result:
    """Run one case in a new folder, which stays if something broke."""
    folder = Path(tempfile.mkdtemp(prefix="rota-crash-"))
    make_home(folder)
    with _address(case, folder) as address:
        result = driver_of(case)(case, folder, address, cold=cold).run()
    if not result.faults:
        shutil.rmtree(folder)
    return result


@contextmanager
def _address(case: Case, folder: Path) -> Iterator[str]:
    if case.store == "sqlite":
        yield f"sqlite:///{folder / 'home' / 'rota.db'}"
        return
    from rota.testing.postgres import PostgresServer, shared_folder  # noqa: PLC0415 - needs a server

    server = PostgresServer(shared_folder())
    server.start()
    address = asyncio.run(server.create(migrated=not case.fresh))
    yield address
    asyncio.run(server.drop(address))


def _cases(wanted: argparse.Namespace) -> Iterator[Case]:
    for store in wanted.store or STORES:
        points = wanted.point or points_of(store)
        if wanted.random:
            yield from (random_case(store, wanted.seed + n) for n in range(wanted.random))
        elif wanted.chain:
            yield from chained(store, points)
        else:
            yield from every_hit(store, points, wanted.hits)


def _tell(result: Result) -> None:
    case = result.case
    verdict = "ok" if not result.faults else "BROKEN"
    seed = "" if case.seed is None else f"seed {case.seed}  "
    line = (
        f"{case.store:8}  {verdict:6}  {result.seconds:5.1f} s  {result.kills} kills  {seed}{case}"
    )
    kept = [f"kept in {result.folder}"] if result.faults else []
    sys.stdout.write("\n    ".join([line, *result.faults, *kept]) + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m rota.testing.crash", description=__doc__)
    parser.add_argument("--store", action="append", choices=STORES)
    parser.add_argument("--point", action="append", choices=list(POINTS), metavar="NAME")
    parser.add_argument("--hits", type=int, nargs="+", default=list(HITS))
    parser.add_argument("--chain", action="store_true", help="every point once, five to a case")
    parser.add_argument("--random", type=int, default=0, metavar="CASES")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--part", default="1/1", metavar="N/M", help="every M-th case from the N-th"
    )
    parser.add_argument("--cold", action="store_true", help="start every daemon from nothing")
    return parser
