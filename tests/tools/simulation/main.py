"""`python -m tests.tools.simulation`: run simulated histories by their seeds, in parallel, on record.

python -m tests.tools.simulation --from 0 --to 999                   a thousand histories
python -m tests.tools.simulation --from 17 --to 17 --trace           one of them, told step by step
python -m tests.tools.simulation --from 0 --to 19999 --record FILE   many; started again, it goes on where it was
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from rota.errors import Invalid, RotaError
from tests.tools.simulation.coverage import SOMETIMES
from tests.tools.simulation.record import (
    Failure,
    Stretch,
    read,
    simulate,
    stretches,
    this_commit,
    write,
)
from tests.tools.simulation.world import World

LONG = 5_000
"""From this many seeds on, a rare path that was never walked is a failure too."""

MOST_TOLD = 3
MOST_WAITING = 4
"""How many stretches wait for each process."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit code."""
    options = _parser().parse_args(argv)
    try:
        if options.first > options.last:
            raise Invalid("to", options.last, "must not be smaller than `from`")
        return _trace(options.first) if options.trace else _run(options)
    except RotaError as fault:
        _say(f"python -m tests.tools.simulation: {fault}")
        return 2
    except KeyboardInterrupt:
        _say("\nstopped; started again with --record, it goes on where it was")
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.tools.simulation",
        description="Live through simulated histories of Rota and judge every commit of them.",
        epilog="Every history follows from its seed alone and can be repeated by anybody.",
    )
    parser.add_argument("--from", dest="first", type=int, default=0, help="first seed (0)")
    parser.add_argument("--to", dest="last", type=int, default=99, help="last seed (99)")
    jobs = os.cpu_count() or 1
    parser.add_argument("--jobs", type=int, default=jobs, help=f"processes ({jobs})")
    parser.add_argument("--record", type=Path, help="file to append to, and to go on from")
    parser.add_argument(
        "--all-sometimes",
        action="store_true",
        help=f"fail if a rare path was never walked (always from {LONG:,} seeds on)",
    )
    parser.add_argument("--trace", action="store_true", help="tell the first seed step by step")
    return parser


def _trace(seed: int) -> int:
    verdict = World(seed, lines=None).run()
    _say("\n".join(verdict.lines))
    _say(f"seed {seed}: {verdict.violation or 'no promise broken'}, hash {verdict.digest}")
    return 0 if verdict.violation is None else 1


def _run(options: argparse.Namespace) -> int:
    commit = this_commit()
    done = [] if options.record is None else read(options.record, commit)
    done = [s for s in done if options.first <= s.first and s.last <= options.last]
    tally = Tally(options.last - options.first + 1, done)
    todo = stretches(options.first, options.last, commit, done)
    with tally.shown():
        for stretch in _simulated(todo, max(1, options.jobs)):
            if options.record is not None:
                write(options.record, stretch)
            tally.add(stretch)
    return tally.end(every_path=options.all_sometimes or tally.total >= LONG)


def _simulated(todo: Iterable[Stretch], jobs: int) -> Iterator[Stretch]:
    """Yield stretches as they are done, by several processes."""
    left = iter(todo)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting: set[Future[Stretch]] = set()
        while True:
            fresh = islice(left, MOST_WAITING * jobs - len(waiting))
            waiting |= {pool.submit(simulate, stretch) for stretch in fresh}
            if not waiting:
                return
            ended, waiting = wait(waiting, return_when=FIRST_COMPLETED)
            for future in ended:
                yield future.result()


class Tally:
    """Counts stretches and shows how far they have come."""

    def __init__(self, total: int, done: Sequence[Stretch]) -> None:
        self.total = total
        self._before = sum(stretch.seeds for stretch in done)
        self._seeds = self._before
        self._counts: Counter[str] = Counter()
        self._failures: list[Failure] = []
        self._began = time.monotonic()
        self._shown = 0.0
        for stretch in done:
            self._take(stretch)

    def _take(self, stretch: Stretch) -> None:
        self._counts.update(stretch.counts)
        for failure in stretch.failures:
            self._failures.append(failure)
            if len(self._failures) <= MOST_TOLD:
                _tell(failure)

    def add(self, stretch: Stretch) -> None:
        """Count a stretch."""
        self._seeds += stretch.seeds
        self._take(stretch)
        self._show()

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Leave the line of progress when it is over, however it ends."""
        if self._before:
            _say(f"{self._before:,} seeds are on record already")
        try:
            yield
        finally:
            self._show(last=True)

    def _show(self, *, last: bool = False) -> None:
        now = time.monotonic()
        live = sys.stderr.isatty()
        if not last and now - self._shown < (0.2 if live else 10.0):
            return
        self._shown = now
        rate = (self._seeds - self._before) / max(0.001, now - self._began)
        line = (
            f"{self._seeds:>7,} of {self.total:,} seeds  {rate:5.1f} a second  "
            f"{len(self._failures)} violations"
        )
        end = "\n" if last or not live else ""
        sys.stderr.write(f"\r{line}{end}" if live else f"{line}{end}")
        sys.stderr.flush()

    def end(self, *, every_path: bool) -> int:
        """Say what came of it all; return the exit code."""
        missing = [name for name in SOMETIMES if not self._counts[name]]
        _say(f"{len(SOMETIMES) - len(missing)} of {len(SOMETIMES)} rare paths were walked")
        if missing and every_path:
            _say("never walked: " + "; ".join(missing))
        rules = Counter(failure.rule for failure in self._failures)
        for rule, count in rules.most_common():
            _say(f"{count:>7,} x {rule}")
        return 1 if self._failures or (missing and every_path) else 0


def _tell(failure: Failure) -> None:
    seed = failure.seed
    _say("\n".join(["", f"seed {seed} broke a promise; its last steps:", *failure.lines]))
    _say(f"{failure.rule}: {failure.detail}")
    _say(f"to repeat it: python -m tests.tools.simulation --from {seed} --to {seed} --trace\n")


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
