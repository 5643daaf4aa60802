"""Where the time of a drain goes: python bench/profile.py [sqlite|postgres] [--n 50000] [--top 25].

Each store is drained several times: as it is; with the event-loop thread under cProfile, and then SQLite's
writing thread, which slows them but shows the functions; and timed by stage, each transaction and each
statement in microseconds a run.
"""

# ruff: noqa: A005 - run as a script; see sys.path below
from __future__ import annotations

import argparse
import asyncio
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[0] = str(ROOT)  # so that cProfile finds the standard library's profile, not this file

import cProfile  # noqa: E402
import pstats  # noqa: E402
from importlib import import_module  # noqa: E402

import apsw  # noqa: E402

from bench import fill  # noqa: E402
from bench.measures.base import Bench  # noqa: E402
from bench.server import Server  # noqa: E402
from bench.sides.ours import CHUNK, counting  # noqa: E402


class Ledger:
    """Calls and seconds by name; wall time, and CPU of the thread that spent it."""

    def __init__(self) -> None:
        self.on = False
        self.calls: dict[str, int] = defaultdict(int)
        self.wall: dict[str, float] = defaultdict(float)
        self.cpu: dict[str, float] = defaultdict(float)

    @contextmanager
    def time(self, name: str) -> Iterator[None]:
        if not self.on:
            yield
            return
        wall, cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            self.calls[name] += 1
            self.wall[name] += time.perf_counter() - wall
            self.cpu[name] += time.thread_time() - cpu

    def show(self, prefix: str, n: int, title: str, *, cpu: bool = True) -> None:
        names = sorted((k for k in self.calls if k.startswith(prefix)), key=lambda k: -self.wall[k])
        if not names:
            return
        print(f"\n{title:<44}{'calls':>7}{'wall us/run':>13}{'CPU us/run' if cpu else '':>12}")
        for name in names:
            own = f"{self.cpu[name] / n * 1e6:>12.2f}" if cpu else ""
            print(
                f"  {name.removeprefix(prefix):<42}{self.calls[name]:>7}{self.wall[name] / n * 1e6:>13.2f}{own}"
            )


def _timed_statements(session: Any, ledger: Ledger) -> None:
    """Every named statement, whichever dialect."""

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        async def call(self: Any, query: str = "", *args: Any, **params: Any) -> Any:
            given = (query, *args) if query else args
            with ledger.time(f"statement {query or method.__name__}"):
                return await method(self, *given, **params)

        return call

    for name in ("rows", "run", "insert", "enter_claim"):
        if hasattr(session, name):
            setattr(session, name, timed(getattr(session, name)))


def _timed_sqlite(ledger: Ledger) -> None:
    store = import_module("rota.store.sqlite.database")
    plain = store.transact

    def transact(connection: Any, session: Any, operation: Any, *args: Any, **options: Any) -> Any:
        with ledger.time(f"thread {operation.__module__.rsplit('.', 1)[-1]}.{operation.__name__}"):
            return plain(connection, session, operation, *args, **options)

    store.transact = transact

    class Connection(apsw.Connection):
        def execute(self, sql: str, *args: Any, **options: Any) -> Any:
            if sql in {"commit", "begin", "begin immediate"}:
                with ledger.time(f"statement ({sql})"):
                    return super().execute(sql, *args, **options)
            return super().execute(sql, *args, **options)

    apsw.Connection = Connection


def profile_thread(profile: cProfile.Profile) -> Callable[[], None]:
    """Watch what the store's writing thread does; returns how to stop that."""
    store = import_module("rota.store.sqlite.database")
    plain = store.transact

    def transact(*args: Any, write: bool, **options: Any) -> Any:
        if not write:
            return plain(*args, write=write, **options)
        profile.enable()
        try:
            return plain(*args, write=write, **options)
        finally:
            profile.disable()

    store.transact = transact

    def stop() -> None:
        store.transact = plain

    return stop


def instrument(store: str, ledger: Ledger) -> None:
    session = import_module(f"rota.store.{store}.session")
    for name in dir(session):
        if name.endswith("Session") and getattr(session, name).__module__ == session.__name__:
            _timed_statements(getattr(session, name), ledger)
    if store == "sqlite":
        _timed_sqlite(ledger)


def _timed_writes(store: Any, ledger: Ledger) -> None:
    """Each transaction as the event loop waits for it."""
    for name in ("write", "read"):
        plain = getattr(store, name)

        async def call(operation: Any, *args: Any, _plain: Any = plain, _name: str = name) -> Any:
            with ledger.time(f"await {_name} {operation.__name__}"):
                return await _plain(operation, *args)

        setattr(store, name, call)


async def drain(
    address: str, n: int, ledger: Ledger | None, profile: cProfile.Profile | None
) -> None:
    rota, tally = counting(address)
    if ledger is not None:
        _timed_writes(rota.store, ledger)
    async with rota:
        for begin in range(0, n, CHUNK):
            await rota.enqueue_many("noop", range(begin, min(n, begin + CHUNK)))
        await fill.vacuum(address)
        loop_cpu, all_cpu = time.thread_time(), time.process_time()
        if ledger is not None:
            ledger.on = True
        if profile is not None:
            profile.enable()
        await rota.work(until_idle=True)
        if profile is not None:
            profile.disable()
        if ledger is not None:
            ledger.on = False
        wall = time.monotonic() - tally.first
        loop_cpu, all_cpu = time.thread_time() - loop_cpu, time.process_time() - all_cpu
    note = "" if ledger is None and profile is None else " (slowed by being watched)"
    print(
        f"{n:,} runs, {n / wall:,.0f}/s{note}: {wall / n * 1e6:.1f} us a run, of which the loop's CPU"
        f" {loop_cpu / n * 1e6:.1f} us and other threads' CPU {(all_cpu - loop_cpu) / n * 1e6:.1f} us"
    )


def show(store: str, address: Callable[[], str], n: int, top: int) -> None:
    print(f"\n=== {store}: as it is")
    asyncio.run(drain(address(), n, None, None))
    print("\n--- the loop's thread under cProfile")
    profile = cProfile.Profile()
    asyncio.run(drain(address(), n, None, profile))
    pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(top)
    if store == "sqlite":
        print("--- SQLite's writing thread under cProfile, filling of the queue included")
        profile = cProfile.Profile()
        stop = profile_thread(profile)
        asyncio.run(drain(address(), n, None, None))
        stop()
        pstats.Stats(profile).strip_dirs().sort_stats("tottime").print_stats(top)
    print("--- by stage")
    ledger = Ledger()
    instrument(store, ledger)
    asyncio.run(drain(address(), n, ledger, None))
    ledger.show("await ", n, "transactions, as the loop waits for them", cpu=False)
    ledger.show("thread ", n, "transactions, inside SQLite's threads")
    ledger.show("statement ", n, "statements", cpu=store == "sqlite")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("store", nargs="?", choices=("sqlite", "postgres"))
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--top", type=int, default=25)
    asked = parser.parse_args()
    stores = (asked.store,) if asked.store else ("sqlite", "postgres")
    server = Server() if "postgres" in stores else None
    try:
        for store in stores:
            bench = Bench(server, quick=False, repeats=1)  # type: ignore[arg-type]
            show(store, lambda s=store, b=bench: b.fresh(s, "profile"), asked.n, asked.top)
    finally:
        if server is not None:
            server.close()


if __name__ == "__main__":
    main()
