from __future__ import annotations

import asyncio

import pytest

from rota.errors import Busy
from rota.model.spaces import Limit, LimitScope, SpaceRole
from rota.runtime.clock import SystemClock
from rota.store.claims import set_limits
from rota.store.sqlite.database import SqliteDatabase
from rota.store.sqlite.instance_lock import TOPICS, WakeupFile
from rota.store.tasks import add_space
from rota.store.views import list_limits

PATIENCE = 20


class Ears:
    """Collects topics and wakes whoever waits for one."""

    def __init__(self):
        self.heard: list[str] = []
        self._any = asyncio.Event()

    def __call__(self, topic):
        self.heard.append(topic)
        self._any.set()

    async def wait(self):
        async with asyncio.timeout(PATIENCE):
            await self._any.wait()


async def open_two(path):
    holder, other = (
        SqliteDatabase(str(path), SystemClock()),
        SqliteDatabase(str(path), SystemClock()),
    )
    await holder.open()
    await other.open()
    await holder.take_roles()
    return holder, other


async def write_something(store):
    standing = [limit.cap or 0 for limit in await store.read(list_limits)]
    await store.write(set_limits, [Limit(scope=LimitScope.TOTAL, cap=max(standing, default=0) + 1)])


async def test_a_write_of_another_process_rings_with_its_topics(tmp_path):
    holder, other = await open_two(tmp_path / "rota.db")
    ears = Ears()
    holder.subscribe(ears)
    await write_something(other)
    await ears.wait()
    assert ears.heard == ["runs"]
    await other.close()
    await holder.close()


async def test_a_lost_ring_is_noticed_by_looking(tmp_path):
    holder, other = await open_two(tmp_path / "rota.db")
    await holder._doorbell.watching.wait()
    (tmp_path / "rota.db.wake").unlink()
    ears = Ears()
    holder.subscribe(ears)
    await write_something(other)
    await ears.wait()
    assert set(ears.heard) == set(TOPICS)
    await other.close()
    await holder.close()


async def test_own_writes_are_not_taken_for_somebody_elses(tmp_path):
    holder, other = await open_two(tmp_path / "rota.db")
    await holder.write(add_space, "x", SpaceRole.MEMBER, "UTC")
    before = await holder._version()
    await write_something(holder)
    assert await holder._version() == before
    await write_something(other)
    assert await holder._version() != before
    await other.close()
    await holder.close()


async def test_a_path_too_long_for_a_socket_still_works(tmp_path):
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    holder, other = await open_two(folder / "rota.db")
    assert not (folder / "rota.db.wake").exists()
    await holder._doorbell.watching.wait()
    ears = Ears()
    holder.subscribe(ears)
    await write_something(other)
    await ears.wait()
    await other.close()
    await holder.close()


async def test_the_bell_goes_with_its_holder(tmp_path):
    holder, other = await open_two(tmp_path / "rota.db")
    bell = tmp_path / "rota.db.wake"
    assert bell.is_socket()
    assert bell.stat().st_mode & 0o777 == 0o600
    with pytest.raises(Busy):
        await other.take_roles()
    assert bell.is_socket()
    await holder.close()
    assert not bell.exists()
    await write_something(other)
    await other.take_roles()
    assert bell.is_socket()
    await other.close()


async def test_a_leftover_bell_is_replaced(tmp_path):
    (tmp_path / "rota.db.wake").write_text("")
    holder, other = await open_two(tmp_path / "rota.db")
    assert (tmp_path / "rota.db.wake").is_socket()
    await other.close()
    await holder.close()


async def test_noise_on_the_socket_is_ignored(tmp_path):
    ears = Ears()

    def hear(topics):
        for topic in topics:
            ears(topic)

    bell = WakeupFile(str(tmp_path / "x"), hear)

    async def version():
        return 1

    bell.listen(version)
    caller = WakeupFile(str(tmp_path / "x"), hear)
    caller.ring(["nonsense", "../x"])
    caller.ring([])
    caller.ring(["later"])
    await ears.wait()
    assert ears.heard == ["later"]
    caller.close()
    await bell.stop_listening()
