"""The record of a long simulation: one line for every stretch of seeds, so that it can go on."""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from rota.errors import Invalid
from tests.tools.simulation.world import World

STRETCH = 25
"""How many seeds are told of in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A seed whose history broke a promise."""

    seed: int
    rule: str
    detail: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """What came of a few seeds in a row; both ends belong to it."""

    first: int
    last: int
    commit: str
    steps: int = 0
    virtual_seconds: float = 0.0
    failures: tuple[Failure, ...] = ()
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def seeds(self) -> int:
        """How many seeds it has."""
        return self.last - self.first + 1


def simulate(stretch: Stretch) -> Stretch:
    """Live through every history of a stretch."""
    counts: Counter[str] = Counter()
    failures = []
    steps, seconds = 0, 0.0
    for seed in range(stretch.first, stretch.last + 1):
        verdict = World(seed).run()
        counts.update(verdict.counts)
        steps += verdict.steps
        seconds += verdict.seconds
        if verdict.violation is not None:
            rule, detail = verdict.violation.rule, verdict.violation.detail
            failures.append(Failure(seed=seed, rule=rule, detail=detail, lines=verdict.lines))
    return Stretch(
        first=stretch.first,
        last=stretch.last,
        commit=stretch.commit,
        steps=steps,
        virtual_seconds=round(seconds),
        failures=tuple(failures),
        counts=dict(sorted(counts.items())),
    )


def stretches(first: int, last: int, commit: str, done: Iterable[Stretch]) -> Iterator[Stretch]:
    """Yield what is left to do of a range, in stretches."""
    known = {seed for stretch in done for seed in range(stretch.first, stretch.last + 1)}
    seed = first
    while seed <= last:
        end = min(last, seed - seed % STRETCH + STRETCH - 1)
        left = [number for number in range(seed, end + 1) if number not in known]
        if left:
            yield Stretch(first=left[0], last=left[-1], commit=commit)
        seed = end + 1


def read(path: Path, commit: str) -> list[Stretch]:
    """Return what a record knows of a commit; a line that was cut off by a crash is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text().splitlines():
        try:
            stretch = json.loads(line)
        except json.JSONDecodeError:
            continue
        if stretch["commit"] == commit:
            failures = tuple(Failure(**failure) for failure in stretch.pop("failures"))
            found.append(Stretch(**stretch, failures=failures))
    return found


def write(path: Path, stretch: Stretch) -> None:
    """Add a line; one that was cut off by a crash stays alone on its own."""
    try:
        with path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    file.write(b"\n")
            file.write(f"{json.dumps(asdict(stretch))}\n".encode())
    except OSError as fault:
        raise Invalid("record", str(path), f"cannot be written: {fault.strerror}") from None


def this_commit() -> str:
    """Return what is simulated: the commit of a checkout, or the version that is installed."""
    here = Path(__file__).parent
    try:
        found = [
            _git(here, "rev-parse", "--short=10", "HEAD"),
            _git(here, "status", "--porcelain", "."),
        ]
    except (OSError, subprocess.CalledProcessError):
        return version("rota")
    return f"{found[0]}+changes" if found[1] else found[0]


def _git(here: Path, *args: str) -> str:
    done = subprocess.run(
        ["git", *args],
        cwd=here,
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.strip()
