"""A daemon takes as many descriptors as it may, and remembers how many are usual."""

from __future__ import annotations

import resource

import pytest

from rota.keeper.build import MAX_FILES, default_file_limit, raise_file_limit


@pytest.fixture
def hard():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    default_file_limit.cache_clear()
    yield before[1]
    default_file_limit.cache_clear()
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_daemon_may_open_more_than_usual(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, MAX_FILES), hard)
    assert default_file_limit() == 256


def test_who_may_open_as_many_already_takes_no_more(hard):
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    raise_file_limit()
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
