"""What the tests of kept work have in common."""

from __future__ import annotations

import pytest

from rota.flow.attempt import budget, programs
from rota.store import store


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let nobody wait before looking again: the yard of these tests answers at once."""
    monkeypatch.setattr(programs, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(store, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(budget, "RETRY_SECONDS", 0.001)
