from __future__ import annotations

import apsw
import pytest


def damage(home, *statements):
    connection = apsw.Connection(str(home / "rota.db"))
    for statement in statements:
        connection.execute(statement)
    connection.close()


@pytest.fixture
def worked(rota, hello):
    rota.ok("task", "run", hello)
    rota.ok("task", "run", hello)
    rota.ok("once")
    return rota


def test_a_sound_database_exits_with_0_and_a_line_for_each_invariant(worked):
    answer = worked.ok("verify")
    lines = answer.out.splitlines()
    assert lines[0].startswith("Checked 2 runs, 0 schedules, 0 deliveries, as of 20")
    assert "✓ I18  2  replaying a run's events gives its state" in lines
    assert lines[-1] == "All invariants hold."
    found = worked.json("verify")
    assert found["ok"]
    assert found["violations"] == found["not_looked_at"] == []
    assert {c["looked_at"] for c in found["checks"] if c["invariant"] in {"I4", "I5"}} == {2}


def test_a_damaged_one_exits_with_1_and_says_where_and_what_to_do(worked):
    damage(worked.home, "update runs set epoch = 3 where id = 2")
    answer = worked("verify")
    assert answer.code == 1
    assert "✗ I4   2  every attempt has its own epoch, without a gap" in answer.out
    assert "1 violation:\n" in answer.out
    assert "  I4   run 2: is at epoch 3, its ended attempts are [1]\n" in answer.out
    assert "       solution: stop Rota, keep a copy" in answer.out
    answer = worked("verify", "--json")
    assert answer.code == 1
    (violation,) = answer.json["violations"]
    assert violation["where"] == "run 2"


def test_a_database_that_is_not_there_exits_with_6_and_is_not_made(rota):
    assert rota.refused("verify", code=6).startswith("there is no database ")
    assert not rota.home.exists()


def test_what_is_no_database_exits_with_6(rota):
    rota.home.mkdir()
    (rota.home / "rota.db").write_text("hello, this is no database at all\n" * 100)
    assert "it is not a database, check the address" in rota.refused("verify", code=6)


def test_another_schema_exits_with_6_and_is_left_as_it_is(worked):
    for version, advice in ((0, "start `rota up` once"), (999, "use the newer Rota")):
        damage(worked.home, f"pragma user_version = {version}")
        assert advice in worked.refused("verify", code=6)


def test_a_table_that_is_missing_exits_with_2(worked):
    damage(worked.home, "drop table attempts")
    answer = worked("verify")
    assert answer.code == 2
    assert answer.err.startswith("rota: unexpected SQLError: no such table: attempts")


def test_looking_changes_no_byte_of_the_database(worked):
    files = sorted(path for path in worked.home.iterdir() if path.name.startswith("rota.db"))
    before = [path.read_bytes() for path in files]
    worked.ok("verify")
    assert [path.read_bytes() for path in files if path.exists()] == before
