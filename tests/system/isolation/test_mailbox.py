"""Mailboxes through the daemon, in every executor: what works, and what no program can do."""

from __future__ import annotations

import json
import secrets
import shutil
from pathlib import Path

MAIL = Path(__file__).parents[2] / "tools" / "hostile" / "hostile_mail.py"
REFUSED = {
    "link0": "symlink", "link1": "symlink", "link2": "symlink", "hard": "hard_link",
    "fifo": "not_a_file", "folder": "not_a_file", "full": "not_a_file", "socket": "not_a_file",
    "huge": "too_large", "half": "not_json", "deep": "too_deep", "wide": "too_many_values",
    "twice": "duplicate_key", "digits": "bad_number", "nan": "bad_number",
    "half-pair": "bad_text", "path": "bad_request_id",
}  # fmt: skip
TOLD = {
    "ROTA_ATTEMPT",
    "ROTA_MAILBOX",
    "ROTA_RUN_ID",
    "ROTA_SPACE",
    "ROTA_TASK_ID",
    "ROTA_TRACE_ID",
}
FLOOD = """
import os, time
out = os.environ["ROTA_MAILBOX"] + "/out/"
for number in range(10_000):
    os.close(os.open(out + "f%d.json" % number, os.O_CREAT | os.O_WRONLY))
time.sleep(600)
"""


def test_a_hostile_program_gets_answers_and_nothing_else(sited, place):
    sited.settle(place)
    secret = sited.house.folder / "secret"
    token = secrets.token_hex(16)
    secret.write_text(token)
    shutil.copy(MAIL, sited.work)
    sited.make("bad", "python3", "hostile_mail.py", str(secret))
    sited.up()
    run = sited.ended(sited.start("bad"))
    assert run["state"] == "succeeded", json.dumps(run)
    seen = run["result"] if isinstance(run["result"], dict) else json.loads(run["result"])
    assert seen["tasks"] == ["bad"]
    assert (seen["unknown"], seen["claims"]) == ("not_found", False)
    assert len(seen["late"]) == 1, "one effect, of the bytes that were read first"
    assert {"tasks.json", "threads.json"} <= set(seen["snapshots"])
    assert set(seen["names"]) >= TOLD
    assert seen["refused"] == {name: REFUSED[name] for name in seen["refused"]}
    assert len(seen["refused"]) >= len(REFUSED) - 1
    assert set(seen["left"]) <= {"full.json", "never.tmp"}, "the rest was taken away"
    assert (seen["sent"], seen["again"]) == (True, True)
    sent = [each["body"] for each in sited.json("run", str(run["id"]))["deliveries"]]
    assert sent.count("hello") == 1, "a command that is replayed has no second effect (A10)"
    if place.name in {"sandbox", "container", "docker", "walled"}:
        assert (seen["in"], seen["mkdir"], seen["moved"]) == (True, True, True)
        assert seen["others"] == [seen["own"]], "no other mailbox is seen"
    for file in sited.house.home.rglob("*"):
        if file.is_file() and not file.is_symlink():
            assert token.encode() not in file.read_bytes(), file
    kept = [json.loads(file.read_text()) for file in (sited.house.home / "errors").iterdir()]
    assert {each["error"]["code"] for each in kept} >= {*REFUSED.values()} - {"hard_link"}
    said = sited.json("requests", "--limit", "100")["requests"]
    refused = [each["about"]["why"] for each in said if each["command"] == "mailbox_rejected"]
    assert {*refused} >= {"symlink", "not_json", "bad_name"}
    assert {each["caller"] for each in said if each["command"] == "mailbox_rejected"} == {
        f"attempt:{run['id']}.1"
    }


def test_a_flood_fails_its_own_run_with_the_reason(sited, place):
    sited.settle(place)
    (sited.work / "flood.py").write_text(FLOOD)
    sited.make("flood", "python3", "flood.py")
    sited.up()
    run = sited.ended(sited.start("flood"), 30.0)
    assert run["state"] == "failed", run
    assert run["error_code"] == "mailbox_misused"
    assert "more than 500 files" in run["error"], run
