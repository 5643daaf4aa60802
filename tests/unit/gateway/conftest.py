"""A provider and a gate before it."""

from __future__ import annotations

import pytest

from tests.system.gateway.upstream import Upstream
from tests.unit.gateway.gateways import Door


@pytest.fixture
def provider():
    with Upstream() as made:
        yield made


@pytest.fixture
def door(provider, tmp_path):
    return Door(provider, tmp_path / "exit")
