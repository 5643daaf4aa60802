"""A daemon whose disk is full is not ready: it says what it cannot do, and recovers by itself."""

from __future__ import annotations

import asyncio
import json
import signal
from http.client import HTTPConnection

import pytest

from rota.app.discovery import find_daemon_address
from rota.errors import Unavailable
from rota.flow.observe.readiness import readiness
from rota.store.postgres.database import PostgresDatabase
from tests.scenario.bad_disk.test_read_only import set_read_only
from tests.system.conftest import House
from tests.tools.store_bench import Bench

FULL = {"disk_full", "store_unwritable"}


@pytest.fixture
def house(disk, tmp_path):
    made = House(disk.folder, tmp_path / "bytecode")
    yield made
    made.close()


def ask(house, path):
    port = int(find_daemon_address(house.home).url.rpartition(":")[2])
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def test_a_daemon_on_a_full_disk_is_not_ready_until_there_is_room(house, disk):
    daemon = house.up()
    house.json("task", "create", "tick", "--call", "rota.samples:hello", "--every", "1s")
    daemon.log.wait("run.settled", "tick")
    assert ask(house, "/readyz") == (200, {"status": "ok"})
    disk.fill()
    daemon.log.wait("poller.unavailable", "no room is left")
    status, told = ask(house, "/readyz")
    assert (status, told["status"], told["error"]["code"]) == (503, "unavailable", "unavailable")
    assert {reason["code"] for reason in told["reasons"]} >= FULL
    assert all(reason["message"] in told["error"]["message"] for reason in told["reasons"])
    assert str(disk.folder) not in json.dumps(told)
    assert ask(house, "/healthz")[0] == 200
    warnings = {each["code"]: each["message"] for each in house.json("status")["warnings"]}
    assert warnings.keys() >= FULL
    assert "no room is left on its disk" in warnings["store_unwritable"]
    found = json.loads(house.rota("doctor", "--json").stdout)["findings"]
    assert {finding["code"] for finding in found} >= FULL
    disk.free()
    daemon.log.wait("run.settled", "tick")
    while ask(house, "/readyz")[0] != 200:
        daemon.log.wait("run.settled")
    assert not FULL & {each["code"] for each in house.json("status")["warnings"]}
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0


async def codes(store):
    return [problem.code for problem in await readiness(store, [])]


async def test_a_refused_write_counts_until_something_is_written(disk, clock, opened_file):
    store = await opened_file(str(disk.folder / "rota.db"))
    bench = Bench(store, clock)
    task = await bench.task()
    disk.fill()
    assert await codes(store) == ["disk_full"]
    with pytest.raises(Unavailable):
        while True:
            await bench.queue(task, 50)
    assert await codes(store) == ["store_unwritable", "disk_full"]
    assert await bench.claim(0) == []  # what changes nothing is done all the same
    assert "store_unwritable" in await codes(store)
    disk.free()
    assert await codes(store) == ["store_unwritable"]
    await bench.queue(task)
    assert await codes(store) == []
    await store.close()


async def test_looking_whether_it_is_ready_writes_nothing(disk, clock, opened_file):
    store = await opened_file(str(disk.folder / "rota.db"))
    await Bench(store, clock).task()
    before = {path.name: path.stat().st_mtime_ns for path in disk.folder.iterdir()}
    for _ in range(3):
        assert await codes(store) == []
    assert {path.name: path.stat().st_mtime_ns for path in disk.folder.iterdir()} == before
    await store.close()


async def test_a_server_that_refuses_writes_is_told(postgres_address, clock):
    store = PostgresDatabase(postgres_address, clock, own_clock=True)
    await store.open()
    bench = Bench(store, clock)
    task = await bench.task()
    assert await codes(store) == []
    await set_read_only(postgres_address, "on")
    sentence = ""
    while "it may only be read" not in sentence:
        with pytest.raises(Unavailable) as refused:
            await bench.queue(task)
        sentence = str(refused.value)
    assert await codes(store) == ["store_unwritable"]
    await set_read_only(postgres_address, "off")
    while await codes(store):
        try:
            await bench.queue(task)
        except Unavailable:
            await asyncio.sleep(0)
    await store.close()
