"""Programs reach the desk of their daemon, also of the next one, and only while they are wanted."""

from __future__ import annotations

import json
from pathlib import Path

CALL = """
import json, os, sys, time, urllib.error, urllib.request

def call(tool, **fields):
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call",
               "params": {"name": tool, "arguments": fields}}
    headers = {"Authorization": "Bearer " + os.environ["ROTA_MCP_TOKEN"],
               "Content-Type": "application/json"}
    asked = urllib.request.Request(os.environ["ROTA_MCP_URL"], json.dumps(message).encode(), headers)
    with urllib.request.urlopen(asked, timeout=10) as answer:
        return json.load(answer)["result"]["structuredContent"]

print("first", call("set_state", key="a", value=os.environ["ROTA_RUN_ID"])["ok"], flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
while True:
    try:
        print("second", call("set_state", key="b", value=2)["ok"], flush=True)
        break
    except OSError as fault:
        time.sleep(0.05)
"""


def test_a_program_talks_to_the_daemon_that_started_it_and_to_the_next(simple):
    (simple.work / "call.py").write_text(CALL)
    simple.create("call", "python3", "call.py")
    simple.up()
    number = simple.json("run", "call")["run"]
    simple.until(number, lambda run: any("first True" in part["text"] for part in run["logs"]))
    lines = [p.read_bytes() for p in Path("/proc").glob("[0-9]*/cmdline") if _there(p)]
    assert not any(b"rota_run_" in line for line in lines)
    token = _token(simple, number)
    simple.kill()
    simple.up()
    simple.go()
    run = simple.until(number, lambda run: run["finished_at"] is not None)
    assert (run["state"], run["result"]) == ("succeeded", "second True"), run
    kept = json.loads(simple.call("GET", "/v1/state/call")[1])["values"]
    assert {one["key"]: one["value"] for one in kept} == {"a": str(number), "b": 2}
    asked = json.loads(simple.call("GET", "/v1/requests")[1])["requests"]
    assert {f"attempt:{number}.1"} == {
        one["caller"] for one in asked if one["command"] == "defer_state"
    }
    assert token is None or token not in simple.rota("run", str(number)).stdout


def _there(path):
    try:
        return bool(path.read_bytes())
    except OSError:
        return False


def _token(simple, number):
    """Return the pass of a program that runs, from its own environment."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            told = dict(
                p.split(b"=", 1)
                for p in (folder / "environ").read_bytes().split(b"\0")
                if b"=" in p
            )
        except OSError:
            continue
        if told.get(b"ROTA_RUN_ID") == str(number).encode() and b"ROTA_MCP_TOKEN" in told:
            return told[b"ROTA_MCP_TOKEN"].decode()
    return None


def test_rota_mcp_speaks_for_a_client_with_a_key(simple):
    simple.up()
    simple.create("later", "true")
    asked = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": {"protocolVersion": "2025-11-25"}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/call",
         "params": {"name": "list_tasks", "arguments": {}}},
    ]  # fmt: skip
    import subprocess

    done = subprocess.run(
        simple.house._command(["mcp"]), input="".join(json.dumps(one) + "\n" for one in asked),
        env=simple.house._environment({}), capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    hello, listed = [json.loads(line) for line in done.stdout.splitlines()]
    assert hello["result"]["protocolVersion"] == "2025-11-25"
    tasks = listed["result"]["structuredContent"]["tasks"]
    assert [task["name"] for task in tasks] == ["later"]
    simple.stop()
    done = simple.rota("mcp")
    assert (done.returncode, "rota up" in done.stderr) == (6, True)
