"""What is noted of writes: from before the first one is passed on, whoever is killed."""

from __future__ import annotations

import asyncio
import os

import pytest

from rota.gateway import grants
from rota.gateway.grants import RETENTION_SECONDS, WriteMarks


@pytest.fixture
def folder(tmp_path):
    return str(tmp_path)


@pytest.fixture
def writes(folder):
    made = WriteMarks(folder)
    made.open()
    return made


def test_what_is_not_noted_is_not_known(folder, writes, tmp_path):
    assert grants.has_written(folder, "1-1") is None
    (tmp_path / "wrote" / "1-1").touch()  # it was being written when the power went
    assert grants.has_written(folder, "1-1") is None
    assert grants.has_written(str(tmp_path / "gone"), "1-1") is None


def test_the_first_write_counts_for_every_try_until_the_attempt_is_forgotten(folder, writes):
    grants.mark_started(folder, "1-1")
    assert grants.has_written(folder, "1-1") is False
    asyncio.run(writes.mark_written("1-1"))
    grants.mark_started(folder, "1-1")
    writes.close("1-1")
    assert grants.has_written(folder, "1-1") is True
    assert grants.has_written(folder, "1-2") is None
    grants.delete_mark(folder, "1-1")
    assert grants.has_written(folder, "1-1") is None


def test_many_at_once_are_noted_once(folder, writes):
    async def many():
        await asyncio.gather(*(writes.mark_written("1-1") for _ in range(20)))

    asyncio.run(many())
    assert os.listdir(os.path.join(folder, "wrote")) == ["1-1"]  # noqa: PTH118, PTH208


def test_what_cannot_be_noted_is_told_and_tried_again(folder, writes, tmp_path):
    (tmp_path / "wrote").rmdir()
    with pytest.raises(OSError, match="No such file"):
        asyncio.run(writes.mark_written("1-1"))
    writes.open()
    asyncio.run(writes.mark_written("1-1"))
    assert grants.has_written(folder, "1-1") is True


def test_what_nobody_came_back_for_is_forgotten_after_a_while(folder, writes, tmp_path):
    grants.mark_started(folder, "1-1")
    grants.mark_started(folder, "2-1")
    path = tmp_path / "wrote" / "1-1"
    old = path.stat().st_mtime - RETENTION_SECONDS - 60
    os.utime(path, (old, old))
    writes.open()
    assert (grants.has_written(folder, "1-1"), grants.has_written(folder, "2-1")) == (None, False)
