"""Compare Rota with the oracle around every change of offset of every zone: `make oracle`."""

from __future__ import annotations

import sys
import zoneinfo
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from multiprocessing import Pool, cpu_count
from pathlib import Path
from time import monotonic

from tests.oracle.cases import RULES
from tests.oracle.chosen import CHOSEN, DATE_LINE, chosen_change
from tests.oracle.compare import Mismatch, Outcome, compare_change
from tests.oracle.windows import Change, changes, zone_names

FIRST, LAST = 2020, 2030
MOST_SHOWN = 20
COLUMNS = "{:>6} {:>9} {:>9} {:>13} {:>11}"


def main(arguments: Sequence[str] | None = None) -> int:
    options = read(arguments)
    names = options.zone or zone_names()
    print(f"{len(names)} zones, {len(RULES)} rules, zone data {zone_data()}\n", flush=True)
    begun = monotonic()
    with Pool(options.processes) as pool:
        find = partial(changes, first=new_year(options.first), last=new_year(options.last + 1))
        found = dict(zip(names, pool.imap(find, names, chunksize=8), strict=True))
        if not options.zone and options.first <= FIRST:
            found[DATE_LINE[0]].append(chosen_change(*DATE_LINE))
        jobs = jobs_of(found)
        outcomes = collect(pool.imap_unordered(compare_change, jobs), jobs)
    mismatches = [mismatch for outcome in outcomes for mismatch in outcome.mismatches]
    print(COLUMNS.format("all", *sums(outcomes)), f"in {monotonic() - begun:.0f} s")
    show(mismatches)
    strange = unlike_chosen(outcomes)
    for change in strange:
        print(f"No change in tests/oracle/chosen.py is like that of {change}: add it there.")
    return 1 if mismatches or strange or not outcomes else 0


def read(arguments: Sequence[str] | None) -> Namespace:
    parser = ArgumentParser(prog="python -m tests.oracle", description=__doc__)
    parser.add_argument("--zone", action="append", help="this zone only; may be repeated")
    parser.add_argument("--from", dest="first", type=int, default=FIRST, metavar="YEAR")
    parser.add_argument("--to", dest="last", type=int, default=LAST, metavar="YEAR")
    parser.add_argument("--processes", type=int, default=cpu_count(), metavar="N")
    return parser.parse_args(arguments)


def new_year(year: int) -> datetime:
    return datetime(year, 1, 1, tzinfo=UTC)


def zone_data() -> str:
    """Return the version of the zone data in use, and where they are from."""
    for folder in map(Path, zoneinfo.TZPATH):
        listed = folder / "tzdata.zi"
        if listed.is_file():
            return f"{listed.open().readline().split()[-1]} ({folder})"
        if (folder / "UTC").is_file():
            return f"of unknown version ({folder})"
    return f"{version('tzdata')} (the tzdata package)"


def jobs_of(found: dict[str, list[Change]]) -> list[tuple[Change, list[str]]]:
    """Return each distinct change with the zones that made it, oldest first."""
    zones: dict[Change, list[str]] = {}
    for name, made in found.items():
        for change in made:
            zones.setdefault(change, []).append(name)
    return sorted(zones.items())


def collect(done: Iterable[Outcome], jobs: list[tuple[Change, list[str]]]) -> list[Outcome]:
    """Take outcomes as they come, and print a line for each year that is complete."""
    print(COLUMNS.format("year", "changes", "distinct", "comparisons", "mismatches"), flush=True)
    left = Counter(change.year for change, _ in jobs)
    outcomes = list[Outcome]()
    for outcome in done:
        outcomes.append(outcome)
        year = outcome.change.year
        left[year] -= 1
        if left[year] == 0:
            of_year = [one for one in outcomes if one.change.year == year]
            print(COLUMNS.format(year, *sums(of_year)), flush=True)
    return outcomes


def sums(outcomes: list[Outcome]) -> list[str]:
    counts = (
        sum(outcome.zones for outcome in outcomes),
        sum(outcome.windows for outcome in outcomes),
        sum(outcome.comparisons for outcome in outcomes),
        sum(len(outcome.mismatches) for outcome in outcomes),
    )
    return [f"{count:,}" for count in counts]


def show(mismatches: list[Mismatch]) -> None:
    for found in mismatches[:MOST_SHOWN]:
        print(f"\n{found}")
    if len(mismatches) > MOST_SHOWN:
        print(f"\nand {len(mismatches) - MOST_SHOWN:,} more")


def unlike_chosen(outcomes: list[Outcome]) -> list[str]:
    """Return a change of each kind that the tests of every day would not meet."""
    known = {chosen_change(*chosen).kind for chosen in CHOSEN}
    unknown = {
        outcome.change.kind: f"{outcome.zone}, {outcome.change}"
        for outcome in outcomes
        if outcome.change.kind not in known
    }
    return sorted(unknown.values())


if __name__ == "__main__":
    sys.exit(main())
