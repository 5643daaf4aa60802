"""Who is let in at all."""

import pytest
from tests.conftest import KINDS


@pytest.mark.parametrize("kind", KINDS)
def test_every_key_opens_its_own_space(door):
    for space in ("main", "ann", "bob"):
        told = getattr(door, space).post("/v1/tasks", {"name": "job", "instructions": "Look."})
        assert (told.status, told.json["space"]) == (201, space)
    assert door.nobody.get("/v1/tasks").status == 401


def test_health_is_told_to_everybody(door):
    assert door.nobody.get("/healthz").json == {"status": "ok"}
    assert door.nobody.get("/readyz").json == {"status": "ok"}
