"""Two tenants, and every operation of the OpenAPI file tried by the wrong one.

What the file does not tell is told here: which thing of ann's stands for a parameter, and what a
request says. An operation that is not told of fails the test until somebody does.
"""

import re
import sqlite3
from datetime import timedelta
from urllib.parse import quote

import pytest

from rota.api.openapi import describe_api
from rota.model.attempts import AttemptReport, OutgoingMessage
from rota.model.attempts import WaitingForAnswer as Asks
from rota.model.keys import EVERY_SCOPE, KeyScope
from rota.store.tasks import find_space

CANARY = "kestrel"
"""A word that stands in everything of ann's and in nothing that bob says."""
NOWHERE = {
    "task": "987654", "run": "987654", "key": "987654", "space": "nobody", "session": "987654",
}  # fmt: skip
WHOLE = {
    "list_workers", "list_machines", "list_machine_samples", "list_limits", "set_limit", "remove_limit",
    "pause_all", "resume_all", "stop_daemon", "start_daemon",
    "list_secrets", "put_secret", "remove_secret",
}  # fmt: skip
"""What concerns the whole installation, and no member."""
ELSEWHERE = {"ask_sql": "tests/api/sql_console/test_rows.py"}
"""Where two tenants are tried in another way."""
INSIDE = "/v1/attempt/"
"""What an attempt alone may do, and for its own run; nobody who comes with a key is one."""
OWN = {"list_spaces", "list_open_questions", "show_status", "create_space"}
"""What takes no names: it shows a caller what is theirs."""
LISTS = {
    "list_tasks": ("thread", "text", "name", "space"),
    "list_runs": ("task", "space"),
    "list_schedules": ("task", "space"),
    "list_keys": ("space",),
    "list_notification_targets": ("space",),
    "list_audit_entries": ("space",),
    "list_sessions": ("thread", "space"),
    "list_threads": ("space",),
    "search_sessions": ("thread", "space"),
}
"""Which filters of a list may name a thing of somebody else."""
WORK = {"instructions": "Look."}
RULE = {"every": "1h"}
BODIES = {
    "create_space": {"name": "ann"},
    "change_space": {"timezone": "Europe/Berlin"},
    "create_key": {"name": "mine"},
    "create_task": WORK,
    "create_thread_task": WORK | {"title": "Look"},
    "change_task": {"title": "Mine now"},
    "put_task": WORK,
    "run_task": {},
    "enable_task": {},
    "disable_task": {},
    "put_schedule": {"schedule": RULE},
    "preview_schedule": {"schedule": RULE},
    "create_run": {"agent": WORK},
    "cancel_run": None,
    "retry_run": None,
    "retry_task": {},
    "answer_run": {"answer": "yes"},
    "put_state": {"value": 1},
    "mark_seen": {"items": [{"item": "item"}]},
    "backfill_task": {"start": "2026-03-01"},
    "set_task_budget": {"tokens": 1},
    "set_space_budget": {"tokens": 1},
    "set_limit": {"scope": "total", "cap": 1},
    "set_notification_target": {"to": "log:there"},
    "ask_sql": {"sql": "select 1"},
    "send_message": {"text": "hello", "to": "log:"},
    "ask_user": {"question": "Shall I?"},
    "spawn_subtask": WORK,
    "defer_state": {"key": "note", "value": 1},
    "defer_seen": {"items": [{"item": "item"}]},
    "defer_message": {"text": "hello", "to": "log:"},
    "defer_alert": {"text": "hello"},
    "record_effect": {"result": 1},
    "put_secret": {"value": "a value that nobody knows"},
    "archive_session": {"thread": "cli:ann:kestrel"},
    "clear_session": {"thread": "cli:ann:kestrel"},
    "resume_session": {},
    "create_message": {"text": "Hello?"},
    "register_thread": {"title": "Mine now"},
    "cancel_thread": {},
}
"""What a sound request says."""
QUERIES = {
    "remove_limit": "?scope=total",
    "remove_notification_target": "?to=log:there",
    "search_sessions": "?words=estre",
}
"""What it says in its query, where it must."""


@pytest.fixture
def kind():
    return "sqlite"


@pytest.fixture(scope="module")
def operations():
    paths = describe_api()["paths"]
    return {
        operation["operationId"]: (
            method.upper(),
            path + QUERIES.get(operation["operationId"], ""),
            operation,
        )
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


@pytest.fixture
def things(door):
    """Everything that ann may have, made through the door; what stands for each parameter."""
    ann = door.ann
    task = {
        "name": "secret", "title": CANARY, "instructions": CANARY, "thread": "cli:ann:kestrel",
        "schedule": {"cron": "0 9 * * *"}, "policy": {"lane": CANARY, "deliver_to": f"log:{CANARY}"},
    }  # fmt: skip
    made = ann.post("/v1/tasks", task).json
    ann.put("/v1/tasks/secret/state/note", {"value": CANARY})
    ann.post("/v1/tasks/secret/seen", {"items": [{"item": "item", "data": CANARY}]})
    ann.post("/v1/tasks", {"name": "quiet", "title": CANARY, "instructions": CANARY})
    ann.post("/v1/tasks/quiet/disable", {"reason": CANARY})
    run = ann.post("/v1/tasks/secret/run-now", {"payload": CANARY, "key": CANARY}).json["run"]
    door.run(_ask(door))
    key = ann.post("/v1/keys", {"name": CANARY}).json["id"]
    ann.put("/v1/notification-targets", {"to": f"log:{CANARY}"})
    door.run(_talk(door, run))
    ann.post("/v1/threads/cli:ann:kestrel/messages", {"text": CANARY})
    session = ann.get("/v1/sessions").json["sessions"][0]["id"]
    return {
        "task": str(made["id"]), "run": str(run), "space": "ann", "thread_key": "cli:ann:kestrel",
        "name": "default", "item": "item", ("state", "key"): "note", "key": str(key),
        "secret": "anthropic",
        "session": str(session),
    }  # fmt: skip


async def _talk(door, run):
    """Let ann's run have told its session before it asked."""
    from rota.model.attempts import AgentSessionRef
    from rota.store.sessions import keep_session

    owner = await door.store.read(find_space, "ann")
    told = AgentSessionRef("claude", CANARY)
    await door.store.write(keep_session, run, 1, owner.id, told, door.store.now())


async def _ask(door):
    """Let ann's run ask a question, with a message on its way."""
    await door.bench.worker("w", timedelta(days=1))
    door.bench.routes = ["agent"]
    claimed = await door.bench.claimed(1, routes=["agent"])
    from rota.flow.settle import settle_attempts
    from rota.model.attempts import Assignment
    from rota.testing.fakes import FixedChance

    lease = claimed.leases[0]
    message = OutgoingMessage(client_id="m", channel="log", target=CANARY, body=CANARY)
    report = AttemptReport(outcome=Asks(question=CANARY), messages=(message,))
    ended = [(Assignment(lease, claimed.tasks[lease.task_id], ()), report)]
    assert all(await settle_attempts(door.store, ended, FixedChance()))


def rows(door, tmp_path):
    """Every row of every table."""
    with sqlite3.connect(f"file:{tmp_path / 'rota.db'}?mode=ro", uri=True) as database:
        names = [
            row[0]
            for row in database.execute("select name from sqlite_master where type = 'table'")
        ]
        return {name: database.execute(f"select * from {name}").fetchall() for name in names}  # noqa: S608


def address(operation_id, path, values):
    parts = path.split("/")
    group = parts[4] if len(parts) > 4 and parts[4] in {"state", "seen"} else parts[2]
    filled = {}
    for name in re.findall(r"{(\w+)}", path):
        value = values.get((group, name), values.get(name))
        assert value is not None, f"say in `things` what {name} of {operation_id} may be"
        filled[name] = quote(value, safe="")
    return path.format(**filled)


def body_of(operation_id, operation):
    if "requestBody" in operation:
        assert operation_id in BODIES, f"say in BODIES what a sound {operation_id} asks for"
    return BODIES.get(operation_id)


def takes_space(operation):
    """Return where an operation may be told a space."""
    where = {one["name"]: one["in"] for one in operation["parameters"]}
    if "space" in where:
        return where["space"]
    body = operation.get("requestBody", {"content": {"application/json": {"schema": {}}}})
    schema = body["content"]["application/json"]["schema"]
    if "$ref" in schema:
        schema = describe_api()["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    return "body" if "space" in schema.get("properties", {}) else None


def tries(operations, things):
    """Every way to name a thing of ann's: operation, method, path, body."""
    for operation_id, (method, path, operation) in operations.items():
        if operation_id in WHOLE | OWN | set(ELSEWHERE):
            continue
        body = body_of(operation_id, operation)
        where = takes_space(operation)
        if path.startswith(INSIDE):
            yield operation_id, method, path, body and body | {"run": int(things["run"])}
            continue
        if operation_id in LISTS:
            yield from list_tries(operation_id, method, path, things)
            continue
        assert "{" in path or where, f"say whether {operation_id} is in WHOLE, OWN or LISTS"
        if "{" in path:
            yield operation_id, method, path, body
        if where == "query":
            sign = "&" if "?" in path else "?"
            yield operation_id, method, f"{path}{sign}space=ann", body
        if where == "body":
            yield operation_id, method, path, (body or {}) | {"space": "ann"}
    yield "create_space", "POST", "/v1/spaces", BODIES["create_space"]
    yield "create_run", "POST", "/v1/runs", {"task": things["task"]}
    yield "create_run", "POST", "/v1/runs", {"task": "secret", "space": "ann"}


def list_tries(operation_id, method, path, things):
    for name in LISTS[operation_id]:
        value = {"thread": "cli:ann:kestrel", "text": "estre", "name": "secret"}.get(name)
        sign = "&" if "?" in path else "?"
        yield operation_id, method, f"{path}{sign}{name}={value or things[name]}", None


def told_of(text, said):
    """Return an answer without what the asker has said himself."""
    for value in said:
        text = text.replace(value, "·")
    return text


def test_e6_no_operation_shows_or_changes_what_belongs_to_somebody_else(
    door, operations, things, tmp_path
):
    before = rows(door, tmp_path)
    count = 0
    for operation_id, method, path, body in tries(operations, things):
        told = door.bob.ask(method, address(operation_id, path, things), body)
        where = (operation_id, path, body, told.status, told.text)
        assert CANARY not in told_of(told.text, {"cli:ann:kestrel"}), where
        assert not re.search(
            r"\bann\b", told_of(told.text, {'"ann"', r"\"ann\"", "cli:ann:kestrel"})
        ), where
        if operation_id in LISTS and told.status == 200:
            assert all(not value for name, value in told.json.items() if name != "keys"), where
        else:
            assert (told.status, told.code) == (404, "not_found"), where
        count += 1
    assert rows(door, tmp_path) == before
    assert count > len(operations) - len(WHOLE)


def test_e6_what_is_not_yours_looks_like_what_is_not_there(door, operations, things):
    for operation_id, (method, path, operation) in operations.items():
        if "{" not in path or operation_id in WHOLE | {"create_thread_task"}:
            continue
        body = body_of(operation_id, operation)
        told = door.bob.ask(method, address(operation_id, path, things), body)
        nowhere = things | NOWHERE
        missing = door.bob.ask(method, address(operation_id, path, nowhere), body)
        for name in re.findall(r"{(\w+)}", path)[:1]:
            mine, none = f'\\"{things[name]}\\"', f'\\"{nowhere[name]}\\"'
            assert told.text.replace(mine, "·") == missing.text.replace(none, "·"), operation_id
        assert told.status == missing.status == 404


def test_lists_show_a_member_their_own_things_only(door, operations, things):
    for operation_id in sorted(OWN - {"create_space"} | set(LISTS)):
        method, path, _ = operations[operation_id]
        told = door.bob.ask(method, path)
        assert told.status == 200
        assert CANARY not in told.text
        assert not re.search(r"\bann\b", told.text), (operation_id, told.text)


def test_what_concerns_the_whole_is_refused_to_a_member(door, operations, things):
    for operation_id in sorted(WHOLE):
        method, path, operation = operations[operation_id]
        whole = address(operation_id, path, things)
        told = door.bob.ask(method, whole, body_of(operation_id, operation))
        assert (told.status, told.code) == (403, "not_permitted"), operation_id


def test_e9_a_key_without_the_scope_opens_nothing(door, operations, things, tmp_path):
    before = None
    keys = {scope: door.client("ann", EVERY_SCOPE - {scope}) for scope in KeyScope}
    before = rows(door, tmp_path)
    for operation_id, (method, path, operation) in operations.items():
        scope = KeyScope(operation["x-scope"])
        body = body_of(operation_id, operation)
        told = keys[scope].ask(method, address(operation_id, path, things), body)
        assert (told.status, told.code) == (403, "not_permitted"), (operation_id, told)
    assert rows(door, tmp_path) == before


def test_e9_a_key_that_is_unknown_expired_or_revoked_opens_nothing(door, operations, things):
    late = door.client("ann", expires_at=door.clock.now() + timedelta(hours=1))
    gone = door.client("ann")
    assert late.get("/v1/tasks").status == gone.get("/v1/tasks").status == 200
    assert door.ann.delete(f"/v1/keys/{door.key.id}").status == 200
    strangers = [gone, late, door.nobody, type(gone)(door.port, "rota_00000000_" + "A" * 43)]
    for operation_id, (method, path, operation) in operations.items():
        for stranger in strangers:
            door.clock.advance(hours=1)
            told = stranger.ask(
                method, address(operation_id, path, things), body_of(operation_id, operation)
            )
            assert (told.status, told.code) == (401, "unauthorized"), operation_id
            assert told.headers["www-authenticate"] == "Bearer"


def test_e7_e9_scopes_and_spaces_come_from_the_key_and_from_no_header(door):
    narrow = door.client("bob", {KeyScope.READ})
    for name in ("X_Scope", "X_Scopes", "X_Space", "X_Role", "X_User", "X_HTTP_Method_Override"):
        told = narrow.post("/v1/tasks", WORK, **{name: "main"})
        assert told.status == 403
    assert door.bob.get("/v1/tasks", X_Space="ann", Rota_Space="ann").json["tasks"] == []


def test_a_member_cannot_make_a_key_that_opens_more(door):
    narrow = door.client("bob", {KeyScope.ADMIN})
    for body in ({"role": "main"}, {"space": "main"}, {"space": "ann"}, {"scopes": ["read"]}):
        told = narrow.post("/v1/keys", {"name": "more", "scopes": ["admin"]} | body)
        assert told.status in {403, 404}, told
    assert len(narrow.get("/v1/keys").json["keys"]) == 2
