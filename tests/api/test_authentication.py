"""Who is let in at all."""

import pytest

from rota.errors import Unavailable
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


def test_a_door_whose_store_refuses_writes_is_not_ready(door):
    door.store.last_write.failed(Unavailable("cannot write to /home/ann/rota.db: no room is left"))
    told = door.nobody.get("/readyz")
    sentence = "the last write to the database was refused, and none was done since"
    assert (told.status, told.json) == (
        503,
        {
            "status": "unavailable",
            "error": {"code": "unavailable", "message": sentence},
            "reasons": [{"code": "store_unwritable", "message": sentence}],
        },
    )
    by_whom = {name: getattr(door, name).get("/v1/status").json for name in ("main", "ann")}
    said = {
        name: [each["message"] for each in status["warnings"] if each["code"] == "store_unwritable"]
        for name, status in by_whom.items()
    }
    detail = "cannot write to /home/ann/rota.db: no room is left"
    assert said == {"main": [f"{sentence}: {detail}"], "ann": [sentence]}
    door.store.last_write.done()
    assert door.nobody.get("/readyz").status == 200
