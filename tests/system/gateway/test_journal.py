"""Writes under a name through the gateway as a process: once, whoever is killed, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal

import pytest

from tests.system.gateway.conftest import REAL
from tests.system.gateway.test_process import PATIENCE, Home, Line, run
from tests.system.gateway.upstream import Upstream

ORDERING = """
import os, sys, urllib.error, urllib.request
address = os.environ["ROTA_GATEWAY_URL"] + "/shop/v1/" + sys.argv[1]
headers = {"Authorization": "Bearer " + os.environ["ROTA_GATEWAY_TOKEN"], "Rota-Effect": "order"}
wanted = urllib.request.Request(address, b"{}", headers)
try:
    with urllib.request.urlopen(wanted, timeout=60) as answer:
        mark, text = answer.headers["Rota-Effect"], answer.read().decode()
except urllib.error.HTTPError as fault:
    mark, text = fault.headers["Rota-Effect"], fault.read().decode()
print(os.environ["ROTA_ATTEMPT"], mark, text, flush=True)
sys.exit(0 if os.environ["ROTA_ATTEMPT"] == sys.argv[2] else 1)
"""


@pytest.fixture
def home(tmp_path):
    with Upstream() as provider:
        yield Home(tmp_path, provider)


def order(line, token, path="201", body=b"{}", name="order"):
    """Ask for a write under a name; return the status, what it says of it, and the answer."""
    with contextlib.closing(line):
        said = {"X-Api-Key": token, "Rota-Effect": name}
        line.request("POST", f"/models/v1/{path}", body, said)
        answer = line.getresponse()
        return answer.status, answer.headers["Rota-Effect"], json.loads(answer.read())


def code_of(answer):
    return answer[0], answer[2]["error"]["code"]


def test_the_next_attempt_is_told_by_the_next_gateway_what_the_first_was_answered(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        first = await asyncio.to_thread(order, Line(door), token)
        assert first == (201, "done", {"order": 1})
        os.kill(home.pid(), signal.SIGKILL)
        daemon.close()
        second = home.daemon()
        token, door = await home.permit(second, 1, epoch=2)
        again = await asyncio.to_thread(order, Line(door), token)
        assert again == (201, "already-done", {"order": 1})
        other, elsewhere = await home.permit(second, 2)
        assert (await asyncio.to_thread(order, Line(elsewhere), other))[1] == "done"
        assert len(home.provider.script.noted) == 2
        for path in (home.folder / "effects").rglob("*"):
            assert not path.stat().st_mode & 0o077, path
            assert path.is_dir() or token.encode() not in path.read_bytes()

    run(home, work)


def test_killed_between_the_note_and_the_answer_it_is_unknown_and_never_done_again(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        asking = asyncio.ensure_future(asyncio.to_thread(order, Line(door), token, "slow"))
        assert await asyncio.to_thread(home.provider.script.begun.wait, PATIENCE)
        os.kill(home.pid(), signal.SIGKILL)
        with pytest.raises(OSError):
            await asking
        home.provider.script.go.set()
        token, door = await home.permit(daemon, 1, epoch=2)
        again = await asyncio.to_thread(order, Line(door), token, "slow")
        assert code_of(again) == (409, "effect_unknown")
        differs = await asyncio.to_thread(order, Line(door), token, "slow", b"[]")
        assert code_of(differs) == (409, "effect_differs")
        assert len(home.provider.script.noted) == 1
        other = await asyncio.to_thread(order, Line(door), token, "slow", b"{}", "order-2")
        assert other == (201, "done", {"order": 2})

    run(home, work)


def test_an_attempt_that_is_let_in_no_more_leaves_what_it_began_unknown(home):
    async def work():
        daemon = home.daemon()
        token, door = await home.permit(daemon, 1)
        asking = asyncio.ensure_future(asyncio.to_thread(order, Line(door), token, "slow"))
        assert await asyncio.to_thread(home.provider.script.begun.wait, PATIENCE)
        await daemon.revoke("1-1")
        with pytest.raises(OSError):
            await asking
        token, door = await home.permit(daemon, 1, epoch=2)
        again = await asyncio.to_thread(order, Line(door), token, "slow")
        assert code_of(again) == (409, "effect_unknown")
        assert len(home.provider.script.noted) == 1

    run(home, work)


def test_two_attempts_at_once_write_once(home):
    async def work():
        daemon = home.daemon()
        one = await home.permit(daemon, 1)
        two = await home.permit(daemon, 1, epoch=2)
        begun = home.provider.script.begun
        first = asyncio.ensure_future(asyncio.to_thread(order, Line(one[1]), one[0], "slow"))
        assert await asyncio.to_thread(begun.wait, PATIENCE)
        second = asyncio.ensure_future(asyncio.to_thread(order, Line(two[1]), two[0], "slow"))
        assert (await asyncio.to_thread(order, Line(two[1]), two[0], name="other"))[0] == 201
        home.provider.script.go.set()
        marks = {(await each)[1] for each in (first, second)}
        assert marks == {"done", "already-done"}
        paths = [noted.path for noted in home.provider.script.noted]
        assert sorted(paths) == ["/v1/201", "/v1/slow"]

    run(home, work)


@pytest.mark.parametrize(
    ("path", "told", "asked"),
    [
        ("201", ['1 done {"order": 1}', '2 already-done {"order": 1}'], 1),
        ("429", ['1 refused {"order": 1}', '2 refused {"order": 2}'], 2),
    ],
)
@pytest.mark.parametrize("executor", ["process", "sandbox"])
def test_a_run_that_is_tried_again_is_told_what_was_done(
    gated, request, executor, path, told, asked
):
    """A script behind walls, and an agent without them."""
    if executor == "sandbox":
        request.getfixturevalue("sandbox")
    gated.plan(
        f'[upstreams.shop]\nurl = "{gated.provider.url}"\nlocal = true\nallow = ["POST /v1/*"]\n'
    )
    (gated.work / "order.py").write_text(ORDERING)
    gated.up()
    gated.keep("shop", REAL)
    gated.keep("anthropic", REAL)
    policy = {"retry": {"attempts": 2, "base": "1s"}}
    if executor == "sandbox":
        words = ("python3", "order.py", path, "2", gated.token)
        gated.task("order", *words, network="egress", executor=executor, policy=policy)
    else:
        gated.agent("order", "order.py", path, "2", policy=policy)
    ended = gated.done("order")
    assert ended["state"] == "succeeded", ended
    logs = "".join(part["text"] for part in ended["logs"])
    assert all(line in logs + ended["result"] for line in told), ended
    assert len(gated.provider.script.noted) == asked
    run_again = gated.begin("order")
    gated.until(run_again, lambda shown: shown["finished_at"] is not None)
    assert len(gated.provider.script.noted) == 2 * asked


def test_an_attempt_is_told_what_it_did_before_its_daemon_and_the_gateway_were_killed(gated):
    gated.plan(
        f'[upstreams.shop]\nurl = "{gated.provider.url}"\nlocal = true\nallow = ["POST /v1/*"]\n'
    )
    once = ORDERING.rpartition("sys.exit")[0]
    (gated.work / "order.py").write_text(once)
    (gated.work / "twice.py").write_text(
        "import pathlib, time, urllib.error\n"
        "code = open('order.py').read()\n"
        "exec(code)\n"
        "while not pathlib.Path('go').exists():\n"
        "    time.sleep(0.02)\n"
        "for _ in range(400):\n"
        "    try:\n"
        "        exec(code)\n"
        "        break\n"
        "    except OSError:\n"
        "        time.sleep(0.05)\n"
    )
    gated.up()
    gated.keep("shop", REAL)
    gated.keep("anthropic", REAL)
    gated.agent("order", "twice.py", "201")
    run = gated.begin("order")
    gated.until(run, lambda shown: any("1 done" in part["text"] for part in shown["logs"]))
    gated.kill()
    os.kill(gated.gateway.pid(), signal.SIGKILL)
    gated.up()
    gated.go()
    ended = gated.until(run, lambda shown: shown["finished_at"] is not None)
    assert ended["state"] == "succeeded", ended
    assert ended["result"].splitlines() == ['1 done {"order": 1}', '1 already-done {"order": 1}']
    assert len(gated.provider.script.noted) == 1
