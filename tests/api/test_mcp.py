"""`/mcp`: who comes in, what is said there, and what hostile clients get."""

import json

import pytest

from rota.rules.tokens import make_attempt_token
from rota.store.plans import promote_delayed
from tests.api.attempts import begin, hold
from tests.tools.store_bench import failed

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {},
    "clientInfo": {"name": "t", "version": "1"},
}
META = "io.modelcontextprotocol/"
MODERN = {
    f"{META}protocolVersion": "2026-07-28",
    f"{META}clientCapabilities": {},
    f"{META}clientInfo": {"name": "t", "version": "1"},
}


@pytest.fixture
def job(door):
    return begin(door, "ann")


def test_hands_are_shaken_and_tools_are_listed_and_called(door, job):
    told = job.rpc("initialize", HELLO)
    assert told.json["result"]["protocolVersion"] == "2025-11-25"
    assert told.json["result"]["serverInfo"]["name"] == "rota"
    assert "act for your run" in told.json["result"]["instructions"]
    assert (
        "before you schedule something that nobody asked for" in told.json["result"]["instructions"]
    )
    session = told.headers["mcp-session-id"]
    notice = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    done = job.client.post("/mcp", notice, Mcp_Session_Id=session)
    assert (done.status, done.text) == (202, "")
    assert job.rpc("ping").json["result"] == {}
    tools = {tool["name"]: tool for tool in job.rpc("tools/list").json["result"]["tools"]}
    assert "Ask the person first" in tools["schedule_task"]["description"]
    assert "task" not in tools["get_state"]["inputSchema"]["required"]
    assert tools["list_tasks"]["annotations"]["readOnlyHint"]
    made = job.call("schedule_task", instructions="Tell.", name="later", schedule={"every": "2h"})
    assert made["ok"], made
    assert door.ann.get("/v1/tasks/later").json["thread"] == "cli:ann:chat"


@pytest.mark.parametrize(
    ("asked", "given"),
    [("2025-06-18", "2025-06-18"), ("2025-03-26", "2025-11-25"), ("3000-01-01", "2025-11-25"), (7, "2025-11-25")],
)  # fmt: skip
def test_a_version_is_agreed_on(job, asked, given):
    told = job.rpc("initialize", {**HELLO, "protocolVersion": asked})
    assert told.json["result"]["protocolVersion"] == given


def test_a_version_that_is_not_spoken_is_refused(job):
    told = job.rpc("tools/list", MCP_Protocol_Version="2024-11-05")
    assert (told.status, told.json["error"]["code"]) == (400, -32022)
    assert "2026-07-28" in told.json["error"]["data"]["supported"]
    assert job.rpc("tools/list", MCP_Protocol_Version="2025-06-18").status == 200


def modern(job, method, params=None, **headers):
    beside = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": method, **headers}
    return job.rpc(method, {**(params or {}), "_meta": MODERN}, **beside)


def test_a_client_of_2026_needs_no_handshake(job):
    found = modern(job, "server/discover").json["result"]
    assert "2026-07-28" in found["supportedVersions"]
    listed = modern(job, "tools/list").json["result"]
    assert (listed["resultType"], listed["cacheScope"], listed["ttlMs"]) == (
        "complete",
        "private",
        0,
    )
    said = {"name": "get_task", "arguments": {}}
    called = modern(job, "tools/call", said, Mcp_Name="get_task").json["result"]
    assert called["structuredContent"]["name"] == "job"
    assert called["_meta"][f"{META}serverInfo"]["name"] == "rota"
    for headers in ({"Mcp_Name": "list_tasks"}, {"Mcp_Method": "ping"}, {}):
        told = modern(job, "tools/call", said, **headers)
        assert (told.status, told.json["error"]["code"]) == (400, -32020)
    assert modern(job, "resources/list").status == 404


def test_a_repeated_call_of_a_session_is_done_once(door, job):
    session = job.rpc("initialize", HELLO).headers["mcp-session-id"]
    message = {
        "jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "schedule_task", "arguments": {"instructions": "x"}},
    }  # fmt: skip
    told = [job.client.post("/mcp", message, Mcp_Session_Id=session).json for _ in range(2)]
    assert told[0] == told[1]
    assert told[0]["result"]["structuredContent"]["ok"]
    named = {**message, "params": {**message["params"], "_meta": {"rota/request_id": "mine"}}}
    told = [job.client.post("/mcp", {**named, "id": n}).json["result"] for n in range(2)]
    assert told[0] == told[1]
    assert len(door.ann.get("/v1/tasks").json["tasks"]) == 3


def test_a_refusal_is_an_answer_that_a_model_can_read(job):
    told = job.rpc("tools/call", {"name": "get_task", "arguments": {"task": "nothing"}})
    result = told.json["result"]
    assert (told.status, result["isError"]) == (200, True)
    assert json.loads(result["content"][0]["text"])["error"]["code"] == "not_found"


def test_a_pass_is_dead_with_its_attempt(door):
    first = begin(door, "ann", policy={"retry": {"attempts": 2, "base": "1s"}})
    assert first.rpc("ping").status == 200
    first.end(failed())
    told = [first.rpc("ping").status for _ in range(30)]
    assert set(told) == {401}, "it is no guess, so it is not held against anybody"
    door.clock.advance(hours=1)
    door.run(door.store.write(promote_delayed, 10))
    second = hold(door)
    assert second.rpc("ping").status == 200
    assert first.rpc("ping").status == 401
    assert first.rpc("tools/call", {"name": "set_state", "arguments": {}}).status == 401


def test_a_pass_is_of_its_run_its_home_and_its_database_alone(door, job):
    other = begin(door, "bob")
    secret, incarnation = door.passes._secret, door.store.database.incarnation
    _, _, run, epoch, proof = job.token.split("_", 4)
    theirs = other.held
    forged = [
        f"rota_run_{theirs.run_id}_{epoch}_{proof}",
        f"rota_run_{run}_2_{proof}",
        f"rota_run_0{run}_{epoch}_{proof}",
        f"rota_run_{run}_{epoch}_{proof[:-1]}",
        f"rota_run_{run}_{epoch}_{'A' * 43}",
        make_attempt_token(b"x" * 32, incarnation, theirs.run_id, theirs.epoch),
        make_attempt_token(secret, "another", theirs.run_id, theirs.epoch),
        make_attempt_token(secret, incarnation, theirs.run_id, theirs.epoch + 1),
        "", "rota_run_", f"{job.token} ", "٣" * 60,
    ]  # fmt: skip
    from tests.api.conftest import Client

    for token in forged:
        door.clock.advance(hours=1)
        headers = {
            "Authorization": f"Bearer {token}".encode().decode("latin-1"),
            "Content-Type": "application/json",
        }
        told = Client(door.port, None).send(
            "POST", "/mcp", b'{"jsonrpc":"2.0","id":1,"method":"ping"}', headers
        )
        assert told.status in ({200} if token == f"{job.token} " else {401}), token
    assert make_attempt_token(secret, incarnation, job.held.run_id, job.held.epoch) == job.token


def test_a_pass_opens_nothing_but_the_desk(door, job):
    for path in ("/v1/tasks", "/v1/runs", "/v1/status", "/v1/keys", "/metrics", "/v1/openapi.json"):
        door.clock.advance(hours=1)
        assert job.client.get(path).status == 401, path
    door.clock.advance(hours=1)
    assert door.nobody.post("/mcp", {}).status == 401


def test_a_key_comes_in_with_what_it_may_do(door):
    begin(door, "bob", "theirs")
    from rota.model.keys import KeyScope

    reader = door.client("ann", scopes={KeyScope.READ})
    listed = reader.post("/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).json
    hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
    assert "the space of your key" in reader.post("/mcp", hello).json["result"]["instructions"]
    names = {tool["name"] for tool in listed["result"]["tools"]}
    assert "list_tasks" in names
    assert not {"schedule_task", "ask_user", "send_message"} & names
    schema = next(t for t in listed["result"]["tools"] if t["name"] == "get_task")["inputSchema"]
    assert schema["required"] == ["task"]
    call = {"name": "get_task", "arguments": {"task": "theirs", "space": "bob"}}
    told = reader.post("/mcp", {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call})
    assert told.json["result"]["structuredContent"]["error"]["code"] == "not_found"


@pytest.mark.parametrize("kind", ["sqlite"])
def test_zub_54_a_key_queues_work_and_asks_sql_and_no_run_does(door):
    from rota.model.keys import KeyScope

    def call(client, tool, **fields):
        params = {"name": tool, "arguments": fields}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return client.post("/mcp", message).json

    made = call(door.ann, "create_run", agent={"instructions": "Look."})
    found = made["result"]["structuredContent"]
    run = door.ann.get(f"/v1/runs/{found['run']}").json
    assert (found["ok"], run["task"], run["space"]) == (True, "once-agent", "ann")
    begin(door, "bob", "theirs")
    asked = call(door.ann, "ask_sql", sql="select count(*) as n from runs")["result"]
    assert asked["structuredContent"]["rows"] == [[1]]
    told = call(door.ann, "ask_sql", sql="delete from runs")["result"]["structuredContent"]
    assert told["error"]["code"] == "sql_refused"
    planner = door.client("ann", scopes={KeyScope.READ, KeyScope.RUN})
    assert call(planner, "ask_sql", sql="select 1")["error"]["code"] == -32602
    job = begin(door, "ann", "mine")
    listed = {tool["name"] for tool in job.rpc("tools/list").json["result"]["tools"]}
    assert not {"create_run", "ask_sql"} & listed
    for verb, fields in (
        ("create_run", {"agent": {"instructions": "x"}}),
        ("ask_sql", {"sql": "1"}),
    ):
        assert job.serve(verb, **fields)["error"]["code"] == "not_found"


def test_zub_54_a_key_passes_an_answer_on_and_no_run_does(door):
    from rota.model.attempts import WaitingForAnswer
    from rota.model.keys import KeyScope

    def call(client, **fields):
        params = {"name": "answer_run", "arguments": fields}
        message = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params}
        return client.post("/mcp", message).json

    asking = begin(door, "ann", "asking")
    asking.end(WaitingForAnswer(question="May I?", options=("yes", "no")))
    run = asking.held.run_id
    reader = door.client("ann", scopes={KeyScope.READ})
    assert call(reader, run=run, answer="yes")["error"]["code"] == -32602
    told = call(door.bob, run=run, answer="yes")["result"]["structuredContent"]
    assert told["error"]["code"] == "not_found"
    told = call(door.ann, run=run, answer="maybe")["result"]["structuredContent"]
    assert told["error"]["code"] == "invalid"
    told = call(door.ann, run=run, answer="yes")["result"]["structuredContent"]
    assert (told["ok"], told["state"]) == (True, "queued")
    job = begin(door, "ann", "mine")
    assert job.serve("answer_run", run=run, answer="yes")["error"]["code"] == "not_found"
    assert "answer_run" not in str(job.rpc("tools/list").json)


BAD = [
    (b"", 400, -32700),
    (b"{", 400, -32700),
    (b"\xff\xfe", 400, -32700),
    (b"NaN", 400, -32700),
    (b"[" * 100_000, 400, -32700),
    (b'{"a":' * 100_000, 400, -32700),
    (b"[]", 400, -32600),
    (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', 400, -32600),
    (b"null", 400, -32600),
    (b'"ping"', 400, -32600),
    (b"{}", 400, -32600),
    (b'{"jsonrpc":"1.0","id":1,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1' + b"0" * 300 + b',"method":"ping"}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":7}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"result":{}}', 400, -32600),
    (b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"prompts/list"}', 200, -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"__class__"}', 200, -32601),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"x"}}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":[]}}', 200, -32602),
    (b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_task","arguments":[1]}}', 200, -32602),
]  # fmt: skip


def test_what_is_no_message_is_refused(job):
    headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
    for body, status, code in BAD:
        told = job.client.send("POST", "/mcp", body, headers)
        assert (told.status, told.json["error"]["code"]) == (status, code), (body[:80], told)
        assert len(told.text) < 500


def test_a_body_is_bounded_and_must_be_json(job):
    headers = {"Authorization": f"Bearer {job.token}", "Content-Type": "application/json"}
    told = job.client.send("POST", "/mcp", b"{", {**headers, "Content-Length": str(2 << 20)})
    assert told.status == 413
    plain = {**headers, "Content-Type": "text/plain"}
    assert job.client.send("POST", "/mcp", b"{}", plain).status == 415
    assert job.client.post("/mcp", {}, Origin="http://evil.example").status == 403
    assert job.client.post("/mcp", {}, Host="evil.example").status == 421


def test_other_methods_have_nothing_to_say(job):
    told = job.client.get("/mcp", Accept="text/event-stream")
    assert (told.status, told.headers["allow"]) == (405, "POST, DELETE")
    assert job.client.put("/mcp", {}).status == 405
    assert job.client.delete("/mcp", Mcp_Session_Id="x").status == 204


def test_deep_arguments_are_refused_and_the_door_stays_open(job):
    deep: object = 1
    for _ in range(150):
        deep = {"a": deep}
    told = job.call("set_state", key="k", value=deep)
    assert told["error"]["code"] == "invalid"
    assert job.rpc("ping").status == 200
