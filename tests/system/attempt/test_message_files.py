"""Files that people send, through a real daemon: read by the program, through deaths and retries."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path

import pytest

from tests.system.attempt.test_conversations import ask, until

HERE = "cli:default"
BYTES = bytes(range(256)) * 40
AGENT = """
import hashlib, html, json, os, pathlib, re, sys, time

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

def seen(path):
    file = pathlib.Path(path)
    return [file.name, hashlib.sha256(file.read_bytes()).hexdigest()]

box = pathlib.Path(os.environ["ROTA_MAILBOX"])
prompt = sys.stdin.read()
paths = [html.unescape(found) for found in re.findall(' media_path="([^"]*)"', prompt)]
assert all(path.startswith(f"{box}/in/files/") for path in paths), paths
say("text", text=json.dumps([seen(path) for path in paths]))
if "break" in prompt and os.environ["ROTA_ATTEMPT"] == "1":
    sys.exit(3)
while "wait" in prompt and not pathlib.Path("go").exists():
    time.sleep(0.02)
lying = sorted(path.name for path in (box / "in" / "files").iterdir())
say("result", text=json.dumps({"prompt": prompt, "seen": [seen(path) for path in paths],
                               "lying": lying, "box": str(box)}))
"""
LISTENER = """
import hashlib, json, os, pathlib, sys, time

box = pathlib.Path(os.environ["ROTA_MAILBOX"])

def send(name, **said):
    (box / "out" / f"{name}.tmp").write_text(json.dumps({"request_id": name, **said}))
    (box / "out" / f"{name}.tmp").rename(box / "out" / f"{name}.json")
    while not (box / "in" / "replies" / f"{name}.json").exists():
        time.sleep(0.01)

send("a", type="listen")
print(json.dumps({"rota": "text", "text": "listens"}), flush=True)
first = box / "in" / "messages" / "0001.json"
while not first.exists():
    time.sleep(0.01)
told = json.loads(first.read_text())
read = [hashlib.sha256(open(file["media_path"], "rb").read()).hexdigest() for file in told["files"]]
send("b", type="ack", number=1)
print(json.dumps({"rota": "result", "text": json.dumps({"told": told, "read": read})}), flush=True)
"""
STEERED = """
import hashlib, json, sys

def say(kind, **more):
    print(json.dumps({"rota": kind, **more}), flush=True)

for line in sys.stdin:
    told = json.loads(line)
    if told["rota"] == "instructions":
        say("text", text="begun")
        continue
    files = told.get("files", [])
    read = [hashlib.sha256(open(file["media_path"], "rb").read()).hexdigest() for file in files]
    say("read", id=told["id"])
    say("result", text=json.dumps({"files": files, "read": read}))
"""


def digest(content):
    return hashlib.sha256(content).hexdigest()


def file_of(name, content, **more):
    return {"name": name, "data": base64.b64encode(content).decode(), **more}


def make(kept, program, *more):
    (kept.work / "agent.py").write_text(program)
    wanted = {"instructions": "Look.", "agent": "command", "output": "lines", "thread": HERE}
    words = [word for option, value in wanted.items() for word in (f"--{option}", value)]
    kept.json("task", "create", "talk", "--command", "python3 agent.py", "--answers", *words, *more)
    return kept


def send(kept, text, *files, **more):
    said = {"text": text, "files": list(files), **more}
    return ask(kept, "POST", f"/v1/threads/{HERE}/messages", said)


def told(run):
    assert run["state"] == "succeeded", run
    return json.loads(run["result"])


def test_a_program_reads_the_bytes_that_people_sent(kept, tmp_path):
    make(kept, AGENT).up()
    photo = tmp_path / "pho  to & \u202f'1'.png"
    photo.write_bytes(BYTES)
    said = kept.json("say", HERE, "Is this right?", "--file", str(photo), "--file", __file__)
    assert [file["type"] for file in said["files"]] == ["image/png", "text/x-python"]
    found = told(until(kept, said["reader"]))
    own = Path(__file__).read_bytes()
    assert found["seen"] == [[photo.name, digest(BYTES)], ["test_files.py", digest(own)]]
    assert found["lying"] == [str(said["id"])]
    first, second = (line for line in found["prompt"].splitlines() if "<message" in line)
    assert ' media_type="image" media_mimetype="image/png" media_path="/' in first
    assert first.endswith(">Is this right?</message>")
    assert second.endswith("></message>")
    shown = kept.rota("messages", HERE).stdout
    assert "(image/png, 10,240 bytes)" in shown
    assert kept.rota("verify").returncode == 0


def test_a_retry_finds_them_again_and_nothing_of_the_try_before(kept):
    make(kept, AGENT, "--retry", "2", "--retry-base", "1ms").up()
    said = send(kept, "break once", file_of("a.txt", b"one"))
    run = until(kept, said["reader"])
    found = told(run)
    assert run["attempt"] == 2, run
    assert found["seen"] == [["a.txt", digest(b"one")]]
    assert f"/{run['id']}-2/" in found["box"], found


@pytest.mark.parametrize("fault", ["kept.written", "record_launch.committed", "kept.started"])
def test_a_daemon_that_dies_on_the_way_loses_no_file(kept, fault):
    make(kept, AGENT)
    said = kept.json("say", HERE, "Here.", "--file", __file__)
    kept.up(ROTA_FAULT=f"{fault}:1:kill")
    kept.daemon.wait()
    kept.up()
    own = Path(__file__).read_bytes()
    assert told(until(kept, said["reader"]))["seen"] == [["test_files.py", digest(own)]]


def test_a_program_that_goes_on_through_a_restart_keeps_them(kept):
    make(kept, AGENT).up()
    said = send(kept, "wait", file_of("a.txt", b"one"))
    until(kept, said["reader"], lambda run: run["logs"])
    kept.kill()
    kept.up()
    kept.go()
    assert told(until(kept, said["reader"]))["seen"] == [["a.txt", digest(b"one")]]


def test_a_program_that_listens_finds_the_files_before_the_words(kept):
    make(kept, LISTENER).up()
    number = ask(kept, "POST", "/v1/tasks/talk/run-now", {})["run"]
    until(kept, number, lambda run: run["logs"])
    send(kept, "", file_of("a.png", BYTES), file_of("b.bin", b""))
    found = told(until(kept, number))
    assert found["read"] == [digest(BYTES), digest(b"")]
    (first, second) = found["told"]["files"]
    assert (first["name"], first["size"], first["media_type"]) == ("a.png", len(BYTES), "image")
    assert (second["media_mimetype"], second["media_type"]) == (
        "application/octet-stream",
        "document",
    )


def test_a_program_that_is_steered_finds_the_files_before_the_words(kept):
    make(kept, STEERED, "--prompt-by", "lines").up()
    number = ask(kept, "POST", "/v1/tasks/talk/run-now", {})["run"]
    until(kept, number, lambda run: run["logs"])
    send(kept, "Look.", file_of("a.png", BYTES, type="image/x-own"))
    found = told(until(kept, number))
    assert found["read"] == [digest(BYTES)]
    assert found["files"][0]["media_mimetype"] == "image/x-own"
