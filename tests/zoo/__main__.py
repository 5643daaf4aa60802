"""`make zoo`: plant every bug, and print a table of who had it and what caught it here."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from functools import partial
from multiprocessing import get_context
from os import cpu_count

from tests.zoo.bugs import Bug
from tests.zoo.catalogue import BUGS
from tests.zoo.detection import MOST_SEEDS, SHORT_SEEDS, Caught, caught


def table(bugs: Sequence[Bug], found: Sequence[Caught | None]) -> Iterator[str]:
    """Yield the lines of the table, as the docs have it."""
    yield "| bug | seen at | caught by | after |"
    yield "|---|---|---|---|"
    for bug, by in zip(bugs, found, strict=True):
        if by is None:
            yield f"| {bug.says} | {bug.seen_at} | **nothing** | {MOST_SEEDS:,} seeds |"
            continue
        after = f"{by.seeds} seed{'' if by.seeds == 1 else 's'}" if by.seeds else "at once"
        yield f"| {bug.says} | {bug.seen_at} | {by.by}: {by.rule} | {after} |"


def look(bugs: Sequence[Bug], most_seeds: int) -> list[Caught | None]:
    """Look for bugs in several processes, and say what came of each."""
    found = []
    with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as pool:
        numbers = [BUGS.index(bug) for bug in bugs]
        answers = pool.map(partial(caught, most_seeds=most_seeds), numbers)
        for bug, by in zip(bugs, answers, strict=True):
            found.append(by)
            seeds = "not caught" if by is None else f"caught after {by.seeds} seeds"
            sys.stderr.write(f"{bug.name:<42} {seeds}\n")
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Look for every bug, or for those that few seeds find; fail if one is not caught."""
    parser = argparse.ArgumentParser(prog="python -m tests.zoo", description=__doc__)
    parser.add_argument(
        "--short",
        action="store_true",
        help=f"leave out what took many seeds, and look for the rest with {SHORT_SEEDS} at most",
    )
    short = parser.parse_args(argv).short
    left = [bug.name for bug in BUGS if short and bug.rare]
    bugs = [bug for bug in BUGS if bug.name not in left]
    found = look(bugs, SHORT_SEEDS if short else MOST_SEEDS)
    if not short:
        sys.stdout.write("\n".join(table(bugs, found)) + "\n\n")
    free = [bug.name for bug, by in zip(bugs, found, strict=True) if by is None]
    sys.stdout.write(
        f"{datetime.now(UTC):%-d %B %Y}: {len(found) - len(free)} of {len(found)} bugs are caught\n"
    )
    if free:
        sys.stdout.write(f"not caught: {', '.join(free)}\n")
    if left:
        sys.stdout.write(f"{len(left)} are left to `make zoo`: {', '.join(left)}\n")
    return 1 if free else 0


if __name__ == "__main__":
    sys.exit(main())
