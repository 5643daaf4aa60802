"""The command behind `POST /v1/sql`: who may ask, what they are told, what is written down."""

import json
import logging
import os

import pytest

from rota.app.composition import make_sql_console, sql_role_ddl
from rota.app.settings import Settings
from rota.cli.reference import sql_page
from rota.commands.catalogue import execute, find_command, read_request
from rota.commands.context import AppContext, RequestContext
from rota.commands.errors import error_code, error_record
from rota.errors import Invalid, NotPermitted, SqlRefused, SqlTimeout, Unavailable
from rota.model.keys import KeyScope
from rota.model.spaces import SpaceRole
from rota.rules.permissions import LOCAL, Caller
from rota.store.sql_console import VIEWS
from rota.testing.fakes import FixedChance

ASK, _ = find_command("POST", "/v1/sql")


async def ask(room, body, caller):
    app = AppContext(store=room.store, chance=FixedChance(), sql_console=room.inquirer)
    office = RequestContext(app=app, caller=caller)
    answer = await execute(ASK, office, read_request(ASK.takes, body))
    return json.loads(answer.text)


def member(space, *scopes):
    return Caller(
        space=space, role=SpaceRole.MEMBER, name=space, id=space, scopes=frozenset(scopes)
    )


async def test_a_member_with_the_scope_is_answered_about_its_own_space(room, caplog):
    caplog.set_level(logging.INFO)
    sql = "select distinct space, $1 as said from runs"
    body = {"sql": sql, "params": ["not-for-the-log"]}
    given = await ask(room, body, member("bob", KeyScope.SQL))
    assert given["columns"] == ["space", "said"]
    assert given["rows"] == [["bob", "not-for-the-log"]]
    assert given["truncated"] is False
    assert given["request_id"].startswith("sql_")
    (noted,) = [record for record in caplog.records if record.message == "sql.asked"]
    assert noted.request == given["request_id"]
    assert (noted.caller, noted.how, noted.rows) == ("bob", "answered", 1)
    assert "not-for-the-log" not in repr(vars(noted))
    assert "distinct" not in repr(vars(noted))


async def test_the_owner_is_answered_about_everybody(room):
    given = await ask(room, {"sql": "select distinct space from runs order by 1"}, LOCAL)
    assert given["rows"] == [["ann"], ["bob"]]


async def test_another_scope_is_not_enough(sqlite_room):
    await sqlite_room.fill()
    others = [scope for scope in KeyScope if scope is not KeyScope.SQL]
    with pytest.raises(NotPermitted):
        await ask(sqlite_room, {"sql": "select 1"}, member("ann", *others))


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"sql": ""},
        {"sql": None},
        {"sql": "x" * 20_001},
        {"sql": "select 1", "params": {"a": 1}},
        {"sql": "select 1", "params": [[1]]},
        {"sql": "select 1", "params": [2**63]},
        {"sql": "select 1", "params": [1] * 101},
        {"sql": "select 1", "space": "bob"},
        {"sql": "select 1", "space_id": 2},
    ],
)
def test_a_body_that_is_wrong_is_refused_in_one_sentence(body):
    with pytest.raises(Invalid):
        read_request(ASK.takes, body)


def test_faults_have_their_codes():
    assert error_record(SqlRefused("x"))["error"]["code"] == "sql_refused"
    assert (error_code(SqlRefused("x")).status, error_code(SqlTimeout("x")).exit_code) == (400, 8)
    assert not ASK.writes


async def test_a_process_keeps_nothing_of_the_environment(sqlite_room, monkeypatch):
    monkeypatch.setenv("ROTA_KEY", "a-secret-of-the-daemon")
    await sqlite_room.fill()
    await sqlite_room.rows("select 1")
    (process,) = sqlite_room.inquirer._idle
    with open(f"/proc/{process.pid}/environ", "rb") as environ:  # noqa: ASYNC230, PTH123
        assert b"a-secret-of-the-daemon" not in environ.read()
    assert os.getpriority(os.PRIO_PROCESS, process.pid) > 0


async def test_a_process_is_let_go_after_a_while_and_another_one_comes(sqlite_room, runner):
    await sqlite_room.fill()
    inquirer = sqlite_room.inquirer
    inquirer._kept = 0.0
    await sqlite_room.rows("select 1")
    (process,) = inquirer._idle
    await process.wait()
    assert await sqlite_room.rows("select 1") == [(1,)]


async def test_a_process_that_was_killed_is_replaced(sqlite_room):
    await sqlite_room.fill()
    await sqlite_room.rows("select 1")
    (process,) = sqlite_room.inquirer._idle
    process.kill()
    await process.wait()
    assert await sqlite_room.rows("select 1") == [(1,)]


async def test_where_it_cannot_be_asked_one_sentence_says_so(tmp_path, memory):
    for store, word in (("memory:", "in memory"), ("postgresql://x/y", "rota sql role")):
        inquirer = make_sql_console(Settings(home=tmp_path, store=store))
        app = AppContext(store=memory, chance=FixedChance(), sql_console=inquirer)
        office = RequestContext(app=app, caller=LOCAL)
        with pytest.raises(SqlRefused, match=word):
            await execute(ASK, office, read_request(ASK.takes, {"sql": "select 1"}))
    office = RequestContext(app=AppContext(store=memory, chance=FixedChance()), caller=LOCAL)
    with pytest.raises(Unavailable, match="rota up"):
        await execute(ASK, office, read_request(ASK.takes, {"sql": "select 1"}))


def test_the_page_and_the_role_tell_of_every_view():
    page, ddl = sql_page("made"), sql_role_ddl()
    for view in VIEWS:
        assert f"## `{view.name}`" in page
        assert f"create view rota_sql.{view.name} with (security_barrier = true)" in ddl
        for column in view.columns:
            assert f"| `{column.name}` |" in page
    for hidden in ("digest", "rota.keys", "rota.audit_log", "rota.task_state", "rota.seen_items"):
        assert hidden not in ddl
    with pytest.raises(Invalid):
        sql_role_ddl('x"; drop table rota.runs; --')


async def test_the_role_may_be_made_again(postgres_room, postgres_address, sql_role):
    import asyncpg

    from rota.store.postgres.sql_console import role_ddl

    await postgres_room.fill()
    before = await postgres_room.rows("select count(*) from runs", space="ann")
    connection = await asyncpg.connect(postgres_address)
    await connection.execute(role_ddl(sql_role))
    await connection.close()
    assert await postgres_room.rows("select count(*) from runs", space="ann") == before == [(3,)]
