"""What the tests of kept work have in common."""

from __future__ import annotations

import pytest

from rota.flow.attempt import budget, programs
from rota.store import store


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let nobody wait before looking again: the yard of these tests answers at once."""
    monkeypatch.setattr(programs, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(store, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(budget, "LOOK_SECONDS", 0.001)
