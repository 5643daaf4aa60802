"""`make zoo`: plant every bug, and print a table of who had it and what caught it here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from os import cpu_count

from tests.zoo.all import BUGS
from tests.zoo.catching import MOST_SEEDS, Caught
from tests.zoo.looking import caught


def table(found: Sequence[Caught | None]) -> Iterator[str]:
    """Yield the lines of the table, as the docs have it."""
    yield "| bug | seen at | caught by | after |"
    yield "|---|---|---|---|"
    for bug, by in zip(BUGS, found, strict=True):
        if by is None:
            yield f"| {bug.says} | {bug.seen_at} | **nothing** | {MOST_SEEDS:,} seeds |"
            continue
        after = f"{by.seeds} seed{'' if by.seeds == 1 else 's'}" if by.seeds else "at once"
        yield f"| {bug.says} | {bug.seen_at} | {by.by}: {by.rule} | {after} |"


def main() -> int:
    """Look for every bug; fail if one is not caught."""
    with ProcessPoolExecutor(cpu_count(), mp_context=get_context("spawn")) as pool:
        found = []
        for bug, by in zip(BUGS, pool.map(caught, range(len(BUGS))), strict=True):
            found.append(by)
            seeds = "not caught" if by is None else f"caught after {by.seeds} seeds"
            sys.stderr.write(f"{bug.name:<42} {seeds}\n")
    sys.stdout.write("\n".join(table(found)) + "\n")
    free = sum(by is None for by in found)
    sys.stdout.write(f"\n{len(found) - free} of {len(found)} bugs are caught\n")
    return 1 if free else 0


if __name__ == "__main__":
    sys.exit(main())
