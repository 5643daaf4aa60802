"""What every measure is given: sizes, fresh databases, and a way to call the sides in turn."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from bench.kit import HOME, Value, call, value
from bench.server import Server
from bench.table import Row

Takes: TypeAlias = dict[str, list[dict[str, Any]]]


@dataclass
class Bench:
    """One run of the benchmark."""

    server: Server
    quick: bool
    repeats: int
    stores: tuple[str, ...] = ("sqlite", "postgres")

    def size(self, full: int, quick: int) -> int:
        return quick if self.quick else full

    def fresh(self, store: str, name: str) -> str:
        """Return the address of an empty database."""
        if store == "postgres":
            return self.server.fresh(f"bench_{name}")
        path = HOME / "sqlite" / f"{name}.db"
        path.parent.mkdir(parents=True, exist_ok=True)
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
        return f"sqlite:///{path}"

    def on(self, store: str, side: str, verb: str, **options: Any) -> Callable[[], dict[str, Any]]:
        """Return a take of a side's verb, on a database of its own that is empty each time."""
        return lambda: call(side, verb, address=self.fresh(store, side), **options)

    def takes(self, **sides: Callable[[], dict[str, Any]]) -> Takes:
        """Run every side in turn, `repeats` times, so that noise hits all of them alike.

        What one side has left unwritten is written before the next begins, and none always follows
        the same one.
        """
        found: Takes = {name: [] for name in sides}
        order = list(sides)
        for _ in range(self.repeats):
            for name in order:
                os.sync()
                found[name].append(sides[name]())
            order.append(order.pop(0))
        return found


Measure: TypeAlias = Callable[[Bench], Iterator[Row]]


def of(takes: list[dict[str, Any]], key: str, unit: str = "/s") -> Value:
    return value([take[key] for take in takes], unit)


def forget(address: str) -> None:
    """Delete a large SQLite file once it has been measured."""
    if address.startswith("sqlite:///"):
        path = Path(address.removeprefix("sqlite:///"))
        for file in path.parent.glob(f"{path.name}*"):
            file.unlink()
