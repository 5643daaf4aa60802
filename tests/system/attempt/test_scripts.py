"""Scripts, from the command line to their result: what they are told, and what they leave."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

TELL = """
import json, os, sys
from pathlib import Path
names = ("ROTA_CONFIG", "ROTA_PROFILE", "ROTA_PAYLOAD")
told = {name: json.loads(os.environ[name]) for name in names if name in os.environ}
told |= {name: value for name, value in os.environ.items() if name not in told}
told["argv"] = sys.argv[1:]
told["input"] = json.load(sys.stdin)
told["payload file"] = json.loads(Path(os.environ["ROTA_PAYLOAD_FILE"]).read_text())
told["resources"] = sorted(p.name for p in Path(os.environ["ROTA_RESOURCES"]).iterdir())
Path(os.environ["ROTA_RESULT_FILE"]).write_text(json.dumps(told))
print("told")
"""
REPORTS = """
import sys
def daily(payload):
    print("working")
    return {"got": payload, "words": sys.argv[1:]}
class Weekly:
    @staticmethod
    def run(payload):
        raise RuntimeError("no such week")
def nothing(payload):
    print("last line")
"""
SECRETS = {
    "MY_TOKEN": "canary-1",
    "AWS_SECRET_ACCESS_KEY": "canary-2",
    "DB_PASSWORD": "canary-3",
    "OPENAI_API_KEY": "canary-4",
    "ROTA_KEY": "canary-5",
    "SOMETHING_ELSE": "canary-6",
}


@pytest.fixture
def house_with_scripts(simple):
    (simple.work / "tell.py").write_text(TELL)
    (simple.work / "reports.py").write_text(REPORTS)
    return simple


def resources(kept, task):
    folder = kept.house.home / "spaces" / "main" / "resources" / task
    folder.mkdir(parents=True)
    return folder


def test_a_script_is_told_of_its_run_and_of_no_secret(kept):
    (kept.work / "tell.py").write_text(TELL)
    folder = resources(kept, "tell")
    (folder / "task_config.json").write_text('{"city": "Bremen", "timeout": "5m"}')
    (folder / "config.json").write_text('{"city": "nowhere"}')
    kept.create("tell", "tell.py", "-x", "--", thread="telegram:chat:-100:topic:7")
    kept.up(**SECRETS)
    run = kept.done("tell", "--payload", '{"day": 15}')
    assert run["state"] == "succeeded", run
    told = run["result"]
    assert told["argv"] == ["-x", "--"]
    assert told["input"] == told["ROTA_PAYLOAD"] == told["payload file"] == {"day": 15}
    assert told["ROTA_CONFIG"] == {"city": "Bremen", "timeout": "5m"}
    assert told["ROTA_PROFILE"]["name"] == told["ROTA_TASK"] == "tell"
    assert told["ROTA_PROFILE"]["kind"] == "script"
    assert told["ROTA_RUN_ID"] == str(run["id"])
    assert told["ROTA_TRACE_ID"] == run["trace_id"]
    assert told["ROTA_THREAD_KEY"] == "telegram:chat:-100:topic:7"
    assert told["resources"] == ["config.json", "task_config.json"]
    assert "canary" not in json.dumps(told)


HOSTILE_WORDS = ["$(touch pwned)", "`touch pwned`", "; touch pwned", "{payload}", "{{ 7 * 7 }}",
                 "%(name)s", "-rf", "--", "a\nb", "*", "~", "$HOME", ""]  # fmt: skip


def test_words_arrive_as_they_were_written(house_with_scripts):
    kept = house_with_scripts
    kept.up()
    asked = {"name": "words", "command": ["tell.py", *HOSTILE_WORDS]}
    assert kept.call("POST", "/v1/tasks", asked)[0] == 201
    run = kept.done("words", "--payload", json.dumps(HOSTILE_WORDS))
    assert run["result"]["argv"] == run["result"]["input"] == HOSTILE_WORDS
    assert not (kept.work / "pwned").exists()


def test_a_link_that_leads_out_of_the_space_is_not_run(house_with_scripts, tmp_path):
    kept = house_with_scripts
    outside = tmp_path / "outside.sh"
    outside.write_text("#!/bin/sh\ntouch pwned\n")
    outside.chmod(0o755)
    (kept.work / "inside.sh").symlink_to(outside)
    kept.create("linked", "inside.sh")
    kept.up()
    run = kept.done("linked")
    assert (run["state"], run["error_code"], len(run["attempts"])) == ("failed", "invalid", 1), run
    assert "it is a link to another place" in run["error"]
    assert not (kept.work / "pwned").exists()


def test_a_function_is_called_and_what_it_returns_is_the_result(house_with_scripts):
    kept = house_with_scripts
    kept.create("daily", "reports:daily", "--fast")
    kept.create("weekly", "reports:Weekly.run")
    kept.create("nothing", "reports:nothing")
    kept.create("missing", "no_such_module:go")
    kept.up()
    long = "x" * 150_000  # longer than a variable may be
    run = kept.once({"task": "daily", "payload": {"long": long}})
    assert run["result"] == {"got": {"long": long}, "words": ["--fast"]}, run
    assert kept.done("nothing")["result"] == "last line"
    failed = kept.done("weekly")
    assert (failed["state"], "no such week" in failed["error"]) == ("failed", True), failed
    assert "no_such_module" in kept.done("missing")["error"]


def test_a_shell_is_there_for_who_says_so_and_for_nobody_else(house_with_scripts):
    kept = house_with_scripts
    kept.up()
    assert kept.rota("task", "create", "piped", "--command", "echo one | tr o 0; echo $((6*7))",
                     "--shell").returncode == 0  # fmt: skip
    kept.create("plain", "echo", "one", "|", "'tr;'")
    assert kept.done("piped")["result"] == "42"
    assert kept.output(kept.json("runs")["runs"][0]["id"]) == ["0ne", "42"]
    assert kept.done("plain")["result"] == "one | tr;"
    assert "sh -c" in kept.rota("task", "show", "piped").stdout
    status, body = kept.call("PATCH", "/v1/tasks/piped", {"command": ["a", "b"]})
    assert (status, b"exactly one line" in body) == (400, True)


def test_a_script_that_agreed_on_lines_tells_how_far_it_is(house_with_scripts):
    kept = house_with_scripts
    lines = [
        {"rota": "progress", "percent": 40, "message": "half"},
        {"rota": "result", "data": [1]},
    ]
    (kept.work / "lines.sh").write_text(
        "#!/bin/sh\n" + "".join(f"echo '{json.dumps(line)}'\n" for line in lines)
    )
    (kept.work / "lines.sh").chmod(0o755)
    kept.create("lines", "lines.sh", output="lines")
    kept.create("silent", "true", output="lines")
    kept.up()
    run = kept.done("lines")
    assert run["result"] == [1]
    (told,) = [event["data"] for event in run["events"] if event["name"] == "run.progress"]
    assert told == {"percent": 40.0, "message": "half"}
    assert kept.done("silent")["error_code"] == "no_result"


ASKING = """
import json, os
from pathlib import Path
answers = json.loads(os.environ.get("ROTA_ANSWERS", "[]"))
if not answers:
    Path(os.environ["ROTA_ARTIFACTS"], "draft").write_text("Shall I?")
    print(json.dumps({"rota": "question", "text": "Send it?", "options": ["yes", "no"]}))
else:
    print("sent" if answers == ["yes"] else "kept")
"""


def test_a_script_asks_a_person_and_goes_on_with_the_answer(house_with_scripts):
    kept = house_with_scripts
    (kept.work / "ask.py").write_text(ASKING)
    kept.create("ask", "ask.py")
    kept.up()
    number = kept.json("run", "ask")["run"]
    waiting = kept.until(number, lambda run: run["state"] == "waiting")
    assert waiting["questions"][0]["question"] == "Send it?"
    kept.json("answer", str(number), "yes")
    run = kept.until(number, lambda run: run["finished_at"] is not None)
    assert (run["state"], run["result"]) == ("succeeded", "sent"), run
    assert [one["name"] for one in kept.json("artifacts", str(number))["artifacts"]] == ["draft"]


LEAVES = {
    "text": ('printf "all well\n\n" > "$ROTA_RESULT_FILE"; echo other', "all well"),
    "json": ('echo "[1, {}]" > "$ROTA_RESULT_FILE"', [1, {}]),
    "empty": (': > "$ROTA_RESULT_FILE"; echo last', "last"),
    "link": ('ln -s /etc/passwd "$ROTA_RESULT_FILE"; echo last', "last"),
    "hard link": ('echo no > x; ln x "$ROTA_RESULT_FILE"; echo last', "last"),
    "pipe": ('mkfifo "$ROTA_RESULT_FILE"; echo last', "last"),
    "folder": ('mkdir "$ROTA_RESULT_FILE"; echo last', "last"),
    "gone": ('rm -r "$ROTA_ARTIFACTS"; ln -s /etc "$ROTA_ARTIFACTS"; echo last', "last"),
}


def test_a_result_file_counts_if_it_is_a_plain_file(house_with_scripts):
    kept = house_with_scripts
    kept.up()
    for line, wanted in LEAVES.values():
        asked = {"script": {"command": [line], "shell": True}}
        run = kept.once(asked)
        assert (run["state"], run["result"]) == ("succeeded", wanted), (line, run)
    asked = {"script": {"command": ['head -c 300000 /dev/zero > "$ROTA_RESULT_FILE"'],
                        "shell": True}}  # fmt: skip
    run = kept.once(asked)
    assert (run["state"], run["error_code"]) == ("failed", "bad_result")
    failing = {"script": {"command": ['echo 1 > "$ROTA_RESULT_FILE"; exit 3'], "shell": True}}
    assert kept.once(failing)["state"] == "failed"


def test_the_time_a_script_may_take_is_its_tasks_then_its_configs(house_with_scripts):
    kept = house_with_scripts
    for name, words in (("short", {}), ("long", {"timeout": "20s"})):
        (resources(kept, name) / "config.json").write_text('{"timeout": 0.5}')
        kept.create(name, "sleep", "2", **words)
    (resources(kept, "wrong") / "config.json").write_text('{"timeout": "soon"}')
    (resources(kept, "bad") / "config.json").write_text("[]")
    kept.create("wrong", "true")
    kept.create("bad", "true")
    kept.up()
    assert kept.done("short")["error_code"] == "timeout"
    assert kept.done("long")["state"] == "succeeded"
    assert "soon" in kept.done("wrong")["error"]
    assert "one JSON object" in kept.done("bad")["error"]


def test_work_that_has_no_task_is_done_as_it_was_asked_for(kept):
    (kept.work / "tell.py").write_text(TELL)
    tools = kept.house.folder / "tools"
    tools.mkdir()
    (tools / "claude").write_text(
        '#!/bin/sh\necho \'{"type":"result","subtype":"success","is_error":false,"result":"seen"}\'\n'
    )
    (tools / "claude").chmod(0o755)
    kept.up(PATH=f"{tools}:/usr/local/bin:/usr/bin:/bin")
    script = {"script": {"command": ["tell.py", "a b"], "timeout": "7s", "metadata": {"of": "ann"}},
              "payload": [1, 2]}  # fmt: skip
    run = kept.once(script)
    assert run["state"] == "succeeded", run
    assert (run["result"]["argv"], run["result"]["input"]) == (["a b"], [1, 2])
    assert run["result"]["ROTA_PROFILE"]["timeout_seconds"] == 7.0
    assert run["result"]["ROTA_PROFILE"]["metadata"] == {"of": "ann"}
    slow = {"script": {"command": ["sleep", "60"], "timeout": "300ms"}}
    run = kept.once(slow)
    assert run["error_code"] == "timeout"
    asked = {"agent": {"instructions": "Look.", "agent": "claude"}}
    run = kept.once(asked)
    assert (run["state"], run["result"]) == ("succeeded", "seen"), run
    status, _ = kept.call("POST", "/v1/runs", {"script": {"command": ["/bin/true"]}})
    assert status == 400
    run = kept.json("run", "--command", "echo 'once more'", "--wait")
    assert run["result"] == "once more"


OUTLIVING = """
import os, sys, time
from pathlib import Path
Path(os.environ["ROTA_RESULT_FILE"]).write_text('{"half": 1')
Path(os.environ["ROTA_ARTIFACTS"], "early").write_text("left before")
print("begun", flush=True)
while not Path("go").exists():
    time.sleep(0.02)
Path(os.environ["ROTA_RESULT_FILE"]).write_text('{"whole": 2}')
Path(os.environ["ROTA_ARTIFACTS"], "late").write_text("left after")
"""


def test_what_a_script_leaves_while_no_daemon_is_there_counts(kept):
    (kept.work / "outlive.py").write_text(OUTLIVING)
    kept.create("outlive", "outlive.py")
    kept.up()
    number = kept.json("run", "outlive")["run"]
    kept.until(number, lambda run: run["logs"])
    kept.kill()
    kept.go()
    kept.up()
    run = kept.until(number, lambda run: run["finished_at"] is not None)
    assert (run["state"], run["result"], len(run["attempts"])) == ("succeeded", {"whole": 2}, 1)
    told = kept.json("artifacts", str(number))["artifacts"]
    assert [one["name"] for one in told] == ["early", "late", "result-1"]


FLOOD = """
import sys
for _ in range(200):
    sys.stderr.write("e" * 20_000 + "\\n")
    sys.stdout.write("o" * 20_000 + "\\n")
print("through")
"""


def test_a_script_never_waits_for_somebody_to_read(house_with_scripts):
    kept = house_with_scripts
    (kept.work / "flood.py").write_text(FLOOD)
    kept.create("flood", "flood.py")
    kept.up()
    run = kept.done("flood")
    assert (run["state"], run["result"]) == ("succeeded", "through")


def test_nothing_a_script_is_told_stands_in_a_command_line(house_with_scripts):
    kept = house_with_scripts
    kept.create("wait", "count.py", "3", "word-of-the-program")
    kept.up()
    number = kept.json("run", "wait", "--payload", '"word-of-the-payload"')["run"]
    kept.until(number, lambda run: run["logs"])
    lines = [read(path / "cmdline") for path in Path("/proc").iterdir() if path.name.isdigit()]
    assert any(b"word-of-the-program" in line for line in lines)
    assert not any(b"word-of-the-payload" in line for line in lines)
    kept.go()
    assert kept.until(number, lambda run: run["finished_at"] is not None)["state"] == "succeeded"


def read(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""
