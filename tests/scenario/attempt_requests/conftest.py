from __future__ import annotations

import pytest

from tests.scenario.attempt_requests.attempts import Talkers


@pytest.fixture
def talkers(bench):
    """Agents' tasks in a store of each kind."""
    return Talkers(bench)


@pytest.fixture
def small(desk):
    """Agents' tasks in a store in memory."""
    return Talkers(desk)
