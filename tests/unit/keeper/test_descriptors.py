"""A daemon takes as many descriptors as it may, and remembers how many are usual."""

from __future__ import annotations

import resource

import pytest

from rota.keeper.build import MOST, take_descriptors, usual_files


@pytest.fixture
def hard():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    usual_files.cache_clear()
    yield before[1]
    usual_files.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_daemon_may_open_more_than_usual(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    take_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, MOST), hard)
    assert usual_files() == 256


def test_who_may_open_as_many_already_takes_no_more(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    take_descriptors()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
