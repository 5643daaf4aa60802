"""The verdict can fail: each kind of damage, done to a sound database by hand, is called by name."""

from __future__ import annotations

import copy
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.crash import witness
from tests.tools.crash.evidence import Database
from tests.tools.crash.verdict import judge

PROGRAM = """
import sys
from pathlib import Path
from tests.tools.crash.cases import Case, at
from tests.tools.crash.driver import Driver, make_home
folder = Path(sys.argv[1])
make_home(folder)
case = Case("sqlite", (at("settle.commit"),))
result = Driver(case, folder, f"sqlite:///{folder}/home/rota.db").run()
assert not result.faults, result.faults
"""


@pytest.fixture(scope="module")
def healthy(tmp_path_factory):
    """What a sound case leaves behind."""
    folder = Path(tmp_path_factory.mktemp("crash")) / "case"
    subprocess.run([sys.executable, "-c", PROGRAM, str(folder)], check=True, timeout=60)
    found = Database(f"sqlite:///{folder}/home/rota.db").read()
    return witness.noted(folder), list(witness.messages(folder)), found


@pytest.fixture
def case(healthy):
    return copy.deepcopy(healthy)


def kinds(case):
    return {sentence.partition(":")[0] for sentence in judge(*case)}


def first(rows, **wanted):
    return next(row for row in rows if all(row[name] == value for name, value in wanted.items()))


def task(found, name):
    return first(found["tasks"], name=name, deleted_at=None)["id"]


def test_a_sound_database_is_called_sound(case):
    assert judge(*case) == []


def lose_a_run(lines, messages, found):
    run = first(found["runs"], key=first(lines, what="queued")["key"])
    found["runs"].remove(run)


def change_a_payload(lines, messages, found):
    first(found["runs"], key=first(lines, what="queued")["key"])["payload"] = "{}"


def undo_a_cancellation(lines, messages, found):
    run_id = first(lines, what="cancelled", state="cancelled")["run"]
    first(found["runs"], id=run_id)["state"] = "succeeded"


def forget_an_answer(lines, messages, found):
    first(found["questions"], id=first(lines, what="answered")["question"])["answered_at"] = None


def lose_a_task(lines, messages, found):
    first(found["tasks"], name="single")["deleted_at"] = 1


def bring_a_task_back(lines, messages, found):
    first(found["tasks"], name=first(lines, what="deleted")["task"])["deleted_at"] = None


def double_a_slot(lines, messages, found):
    run = next(run for run in found["runs"] if run["slot_key"])
    found["runs"].append({**run, "id": 10_000})


def end_a_run_twice(lines, messages, found):
    found["events"].append(first(found["events"], name="run.settled"))


def leave_a_run_running(lines, messages, found):
    run = first(found["runs"], state="succeeded")
    run["state"] = "running"


def leave_a_message_sending(lines, messages, found):
    found["deliveries"][0]["state"] = "sending"


def skip_an_attempt(lines, messages, found):
    found["attempts"].pop()


def succeed_twice(lines, messages, found):
    for attempt in found["attempts"]:
        attempt["outcome"] = "succeeded"


def work_off_the_record(lines, messages, found):
    lines.append({"what": "begin", "pid": 1, "run": 1, "epoch": 99, "task": "single"})


def work_twice(lines, messages, found):
    lines.append(first(lines, what="begin"))


def work_behind_the_back(lines, messages, found):
    begun = first(lines, what="begin", task="flaky", epoch=1)
    lines.remove(begun)
    lines.append(begun)


def succeed_without_work(lines, messages, found):
    run_id = first(found["runs"], state="succeeded")["id"]
    lines[:] = [line for line in lines if line.get("run") != run_id or line["what"] != "end"]


def lose_a_slot(lines, messages, found):
    slots = [run for run in found["runs"] if run["task_id"] == task(found, "tick")]
    found["runs"].remove(min(slots, key=lambda run: run["slot_at"]))


def stop_planning_early(lines, messages, found):
    first(lines, what="unscheduled", task="tick")["planned"] += 3_600_000_000


def lose_a_file(lines, messages, found):
    found["message_files"].pop()


def lose_a_successor(lines, messages, found):
    found["runs"].remove(first(found["runs"], task_id=task(found, "second")))


def lose_a_message(lines, messages, found):
    messages.clear()


def send_twice(lines, messages, found):
    messages.append(messages[0])


def overfill_a_lane(lines, messages, found):
    ends = [line for line in lines if line["what"] == "end" and line["task"] == "laned"]
    lines.remove(ends[0])


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lose_a_run, "lost"),
        (change_a_payload, "lost"),
        (undo_a_cancellation, "lost"),
        (forget_an_answer, "lost"),
        (lose_a_task, "lost"),
        (bring_a_task_back, "lost"),
        (double_a_slot, "doubled"),
        (end_a_run_twice, "doubled"),
        (leave_a_run_running, "stranded"),
        (leave_a_message_sending, "stranded"),
        (skip_an_attempt, "attempts"),
        (succeed_twice, "attempts"),
        (work_off_the_record, "work"),
        (work_twice, "work"),
        (work_behind_the_back, "work"),
        (succeed_without_work, "work"),
        (lose_a_slot, "slots"),
        (stop_planning_early, "slots"),
        (lose_a_successor, "chain"),
        (lose_a_file, "files"),
        (lose_a_message, "outbox"),
        (send_twice, "outbox"),
        (overfill_a_lane, "limits"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_damage_is_called_by_its_name(case, damage, kind):
    damage(*case)
    assert kind in kinds(case)


def test_a_damaged_file_is_said_first(case):
    lines, messages, found = case
    broken = type(found)(tables=found.tables, health="row 1 missing from index")
    assert judge(lines, messages, broken) == ["the database is damaged: row 1 missing from index"]


def test_a_line_that_a_kill_cut_off_spoils_no_other(tmp_path):
    witness.note("queued", str(tmp_path), sure=True, run=1)
    path = tmp_path / witness.FILE
    path.write_text(path.read_text() + '\n{"what": "queu')
    witness.note("queued", str(tmp_path), run=2)
    assert [line["run"] for line in witness.noted(tmp_path)] == [1, 2]
