from __future__ import annotations

import pytest


@pytest.fixture
def worked(rota, hello):
    rota.ok("task", "run", hello)
    rota.ok("once")
    return rota


def test_a_backup_is_written_and_restored_elsewhere(worked, tmp_path):
    file = tmp_path / "backup.zip"
    answer = worked.ok("backup", str(file))
    assert answer.out.startswith(f"Wrote {file}: 1 task, 0 schedules, 1 run, ")
    other = f"sqlite:///{tmp_path}/other.db"
    answer = worked.ok("restore", str(file), "--store", other)
    assert answer.out.startswith(f"Restored {other}: 1 task, 0 schedules, 1 run, ")
    assert answer.out.endswith("next      rota verify, then rota up\n")
    assert [run["id"] for run in worked.json("runs", "--store", other)["runs"]] == [1]
    assert worked.json("verify", "--store", other)["ok"]


def test_both_answer_in_json(worked, tmp_path):
    file = str(tmp_path / "backup.zip")
    made = worked.json("backup", file)
    assert (made["file"], made["store"], made["rows"]["runs"]) == (file, "SQLite", 1)
    done = worked.json("restore", file, "--force", "--catch-up")
    assert done["backup"] == made
    assert done["incarnation"] != made["incarnation"]
    assert done["slots_passed_over"] == done["messages_in_doubt"] == done["runs_lost"] == 0
    assert done["aside"].startswith(str(worked.home / "rota.db.before-"))


def test_nothing_is_replaced_unasked(worked, tmp_path):
    file = str(tmp_path / "backup.zip")
    worked.ok("backup", file)
    assert worked.refused("backup", file, code=5).endswith(
        "choose another name, or --force to replace it"
    )
    assert "is not empty: --force moves it aside" in worked.refused("restore", file, code=5)
    worked.ok("backup", file, "--force")
    worked.ok("restore", file, "--force")


def test_there_is_nothing_to_back_up_where_there_is_no_database(rota, tmp_path):
    answer = rota("backup", str(tmp_path / "backup.zip"))
    assert answer.code == 6
    assert answer.err.startswith("rota: there is no database ")
    assert not rota.home.exists()
    assert list(tmp_path.iterdir()) == []


def test_a_restore_makes_the_home_it_needs(worked, tmp_path):
    file = str(tmp_path / "backup.zip")
    worked.ok("backup", file)
    worked.home = tmp_path / "another" / "home"
    worked.ok("restore", file)
    assert [task["name"] for task in worked.json("task", "list")["tasks"]] == ["hello"]
