"""Agents of a real daemon use a key that they never have."""

from __future__ import annotations

import json
import os
import signal

import pytest

from tests.system.gateway.conftest import REAL

LOOKING = """
import errno, glob, json, os, socket, sys
canary = "".join(reversed(sys.argv[1])).encode()
found = []
places = ["/run", "/tmp", "/etc", "/var", os.environ["HOME"], os.getcwd()]
places += [value for name, value in os.environ.items() if name.startswith("ROTA_") and "/" in value]
files = [path for place in places for path in glob.glob(f"{place}/**", recursive=True)]
files += glob.glob("/proc/[0-9]*/environ") + glob.glob("/proc/[0-9]*/cmdline")
for path in files:
    try:
        if os.path.isfile(path) and canary in open(path, "rb").read(1 << 20):
            found.append(path)
    except OSError:
        pass
reached = []
for family, kind, place in (
    (socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 53)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 123)),
    (socket.AF_INET, socket.SOCK_DGRAM, ("1.1.1.1", 443)),
    (socket.AF_INET, socket.SOCK_STREAM, ("169.254.169.254", 80)),
    (socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", int(sys.argv[2]))),
    (socket.AF_INET6, socket.SOCK_STREAM, ("::1", int(sys.argv[2]))),
    (socket.AF_INET, socket.SOCK_RAW, ("1.1.1.1", 0)),
):
    try:
        with socket.socket(family, kind) as line:
            line.settimeout(2)
            line.connect(place)
            line.send(b"x")
            reached.append(place)
    except OSError:
        pass
try:
    socket.getaddrinfo("api.anthropic.com", 443)
    reached.append("dns")
except OSError:
    pass
print(json.dumps({"found": found, "reached": reached, "env": sorted(os.environ)}))
"""

ORDERING = """
import os, sys, time, urllib.request
address = os.environ["ROTA_GATEWAY_URL"] + "/shop/v1/orders"
headers = {"Authorization": "Bearer " + os.environ["ROTA_GATEWAY_TOKEN"]}
body = b"{}" if sys.argv[1] == "POST" else None
wanted = urllib.request.Request(address, body, headers, method=sys.argv[1])
with urllib.request.urlopen(wanted, timeout=60) as answer:
    print("received", answer.read(), flush=True)
time.sleep(120)
"""


def test_an_answer_goes_on_while_the_daemon_is_killed_and_started_again(gated):
    gated.plan()
    gated.up()
    done = gated.set_secret("anthropic", f"{REAL}\n")
    assert done.returncode == 0, done
    assert "The gateway uses it for anthropic." in done.stdout
    gated.agent("ask", "asking.py")
    run = gated.begin("ask")
    assert gated.provider.script.begun.wait(30)
    pid = gated.gateway.pid()
    gated.kill()
    gated.up()
    gated.until(run, lambda shown: any("first" in part["text"] for part in shown["logs"]))
    gated.provider.script.go.set()
    ended = gated.until(run, lambda shown: shown["finished_at"] is not None)
    assert (ended["state"], "heard data: last" in ended["result"]) == ("succeeded", True), ended
    assert gated.gateway.pid() == pid
    (noted,) = gated.provider.script.noted
    assert noted.headers["x-api-key"] == [REAL]
    assert "of-the-agent" not in str(noted.headers)
    (listed,) = json.loads(gated.call("GET", "/v1/secrets")[1])["secrets"]
    assert (listed["name"], listed["source"]) == ("anthropic", "kept")
    assert listed["used_at"] is not None
    assert "value" not in listed


def test_an_agent_goes_on_asking_after_the_gateway_was_killed(gated):
    gated.plan()
    gated.provider.script.go.set()
    (gated.work / "often.py").write_text(
        "import pathlib, time\n"
        "code = open('asking.py').read()\n"
        "exec(code)\n"
        "pathlib.Path('once').touch()\n"
        "while not pathlib.Path('go').exists():\n"
        "    time.sleep(0.02)\n"
        "for _ in range(200):\n"
        "    try:\n"
        "        exec(code)\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.05)\n"
        "print('twice', flush=True)\n"
    )
    gated.up()
    gated.keep("anthropic", REAL)
    gated.agent("ask", "often.py")
    run = gated.begin("ask")
    gated.until(run, lambda shown: (gated.work / "once").exists())
    os.kill(gated.gateway.pid(), signal.SIGKILL)
    gated.go()
    ended = gated.until(run, lambda shown: shown["finished_at"] is not None)
    assert (ended["state"], "twice" in ended["result"]) == ("succeeded", True), ended
    assert len(gated.provider.script.noted) == 2


def test_c1_c4_behind_walls_there_is_no_key_and_no_other_way_out(gated, sandbox):
    """The key is in the environment of the daemon, as it is on most machines."""
    (gated.work / "looking.py").write_text(LOOKING)
    (gated.work / "both.py").write_text(
        "import os, sys\nexec(open('asking.py').read())\nexec(open('looking.py').read())\n"
    )
    gated.provider.script.go.set()
    gated.extra = {
        "ANTHROPIC_API_KEY": REAL,
        "ANTHROPIC_BASE_URL": gated.provider.url,
        "GEMINI_API_KEY": REAL,
        "HTTPS_PROXY": "http://user:pw@127.0.0.1:1",
    }
    backwards = "".join(reversed(REAL))
    gated.up()
    gated.agent("look", "both.py", backwards, str(gated.provider.port), executor="sandbox")
    run = gated.begin("look")
    ended = gated.until(run, lambda shown: shown["finished_at"] is not None)
    assert ended["state"] == "succeeded", ended
    told = json.loads(ended["result"].strip().splitlines()[-1])
    assert (told["found"], told["reached"]) == ([], [])
    assert {"ANTHROPIC_API_KEY", "ROTA_GATEWAY_TOKEN"} <= set(told["env"])
    assert not {"GEMINI_API_KEY", "HTTPS_PROXY"} & set(told["env"])
    (noted,) = gated.provider.script.noted
    assert noted.headers["x-api-key"] == [REAL]


def test_c6_what_an_agent_leaves_behind_opens_nothing(gated):
    gated.plan()
    gated.provider.script.go.set()
    (gated.work / "leave.py").write_text(
        "import os\nexec(open('asking.py').read())\n"
        "open('left', 'w').write(os.environ['ANTHROPIC_API_KEY'])\n"
    )
    (gated.work / "use.py").write_text(
        "import os\nimport urllib.error\nos.environ['ANTHROPIC_API_KEY'] = open('left').read()\n"
        "try:\n    exec(open('asking.py').read())\n"
        "except urllib.error.HTTPError as fault:\n    print('turned away:', fault.code)\n"
    )
    gated.up()
    gated.keep("anthropic", REAL)
    gated.agent("leave", "leave.py")
    gated.agent("use", "use.py")
    assert gated.done("leave")["state"] == "succeeded"
    ended = gated.done("use")
    assert ended["result"].strip() == "turned away: 401", ended
    assert len(gated.provider.script.noted) == 1


@pytest.mark.parametrize("first", ["POST", "GET"])
def test_a_lost_attempt_that_wrote_through_the_gateway_is_asked_about(gated, sandbox, first):
    """The gateway is killed after it has passed the write on, and so is the keeper."""
    gated.plan(
        f'[upstreams.shop]\nurl = "{gated.provider.url}"\nlocal = true\n'
        'allow = ["POST /v1/orders", "GET /v1/orders"]\n'
    )
    (gated.work / "order.py").write_text(ORDERING)
    gated.up()
    gated.keep("shop", REAL)
    gated.keep("anthropic", REAL)
    words = ("python3", "order.py", first, gated.token)
    gated.task("order", *words, network="egress", executor="sandbox")
    run = gated.begin("order")
    gated.until(run, lambda shown: any("received" in part["text"] for part in shown["logs"]))
    os.kill(gated.gateway.pid(), signal.SIGKILL)
    keeper, _ = gated.keeper()
    os.kill(keeper, signal.SIGKILL)
    if first == "POST":
        shown = gated.until(run, lambda shown: shown["state"] == "waiting")
        assert "it had written through the gateway" in shown["questions"][0]["context"]
    else:
        shown = gated.until(run, lambda shown: shown["losses"] == 1)
        assert shown["questions"] == []
        gated.until(run, lambda shown: shown["state"] == "running")
    assert shown["attempts"][0]["outcome"] == "lost"


def test_a_script_without_leave_is_told_nothing_of_the_gateway(gated):
    gated.plan()
    gated.up()
    gated.keep("anthropic", REAL)
    gated.task("plain", "env")
    ended = gated.done("plain")
    assert "GATEWAY" not in ended["result"]
    assert "ANTHROPIC" not in ended["result"]
    assert gated.gateway.pid() is None
