"""What the tests of kept work have in common."""

from __future__ import annotations

import pytest

from rota.flow.execute import minding, patiently, spending


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Let nobody wait before looking again: the yard of these tests answers at once."""
    monkeypatch.setattr(minding, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(patiently, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(spending, "LOOK_SECONDS", 0.001)
