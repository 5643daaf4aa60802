"""What can be asked: the documented views, the same on every store."""

import json
from datetime import datetime

import pytest

from rota.errors import SqlFailed, SqlRefused
from rota.store.sql_console import MOST_ROWS, VIEWS, SqlType


async def test_every_view_has_its_columns_and_shows_the_rows_of_the_caller_alone(room):
    for view in VIEWS:
        found = await room.ask(f"select * from {view.name}")
        assert found.columns == tuple(column.name for column in view.columns), view.name
        assert not found.truncated
        mine = await room.ask(f"select * from {view.name}", space="ann")
        if view.name in {"workers", "ledger", "deliveries"}:
            continue
        assert 0 < len(mine.rows) < len(found.rows), view.name
        named = "space" if view.name != "spaces" else "name"
        assert {row[found.columns.index(named)] for row in mine.rows} == {"ann"}, view.name
    assert await room.rows("select * from workers", space="ann") == []
    assert len(await room.rows("select * from workers")) == 1


async def test_instants_are_text_that_a_program_reads_and_that_sorts(room):
    for view in VIEWS:
        named = [column.name for column in view.columns if column.kind is SqlType.INSTANT]
        for row in await room.rows(f"select {', '.join(named)} from {view.name}"):
            for text in filter(None, row):
                assert datetime.fromisoformat(text).tzinfo is not None
                assert len(text) == len("2026-01-01T00:00:00.000000Z")
    (row,) = await room.rows("select min(created_at) from runs where space = 'ann'")
    assert row[0] == room.bench.clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def test_columns_of_json_are_json(room):
    for view in VIEWS:
        named = [column.name for column in view.columns if column.kind is SqlType.JSON]
        if named:
            for row in await room.rows(f"select {', '.join(named)} from {view.name}"):
                for text in filter(None, row):
                    json.loads(text)


async def test_views_can_be_joined_grouped_and_ordered(room):
    rows = await room.rows(
        "select t.space, r.state, count(*) as n from runs r join tasks t on t.id = r.task_id"
        " group by t.space, r.state order by t.space, r.state"
    )
    assert rows == [
        (s, state, 1) for s in ("ann", "bob") for state in ("failed", "succeeded", "waiting")
    ]
    counted = await room.rows("with c as (select * from runs) select count(*) from c", space="ann")
    assert counted == [(3,)]
    ranked = await room.rows(
        "select id, rank() over (order by id) from runs order by id", space="ann"
    )
    assert [row[1] for row in ranked] == [1, 2, 3]


async def test_parameters_are_values_and_never_words(room):
    sql = "select count(*) from runs where state = $1 and id >= $2"
    assert await room.rows(sql, "failed", 0, space="ann") == [(1,)]
    assert await room.rows(sql, "failed' or '1'='1", 0, space="ann") == [(0,)]
    for wrong in ((), ("failed",), ("failed", 0, 1)):
        with pytest.raises(SqlRefused):
            await room.ask(sql, *wrong)
    assert await room.verdict(sql, "\ud800", 0) in {"sql_refused", "sql_failed"}
    assert await room.verdict(sql, "\x00", 0) in {"answered", "sql_failed"}
    assert await room.verdict("select '\ud800'") == "sql_refused"


async def test_a_long_answer_is_cut_and_says_so(room):
    series = "with recursive c(n) as (select 1 union all select n + 1 from c where n < {}) select n{} from c"
    found = await room.ask(series.format(MOST_ROWS, ""))
    assert (len(found.rows), found.truncated) == (MOST_ROWS, False)
    found = await room.ask(series.format(MOST_ROWS + 1, ""))
    assert (len(found.rows), found.truncated) == (MOST_ROWS, True)
    wide = " || replace('" + "x" * 5000 + "', 'x', 'ab')"
    found = await room.ask(series.format(900, wide.replace("||", ", ")))
    assert found.truncated
    assert 90 < len(found.rows) < 120


async def test_a_trailing_semicolon_and_comments_are_no_second_statement(room):
    for sql in ("select 1;", "-- why\nselect 1", "/* why */ select 1 -- so", " select 1 ; \n"):
        assert await room.rows(sql) == [(1,)], sql


async def test_odd_values_can_be_told(room):
    odd = {
        "sqlite": ("select 1e999, -1e999, x'00ff', null, 9007199254740993, char(0)"),
        "postgres": (
            "select cast('inf' as float8), cast('-inf' as float8), decode('00ff', 'hex'), null,"
            " 9007199254740993, ''"
        ),
    }[room.kind]
    (row,) = await room.rows(odd)
    assert row[:5] == ("Infinity", "-Infinity", "\\x00ff", None, 9007199254740993)


async def test_a_mistake_is_told_in_the_words_of_the_query(room):
    for sql, word in (
        ("select nope from runs", "nope"),
        ("selec 1", "selec"),
        ("select * from nowhere", "nowhere"),
    ):
        with pytest.raises(SqlRefused, match=word):
            await room.ask(sql)


async def test_parameters_of_the_wrong_kind_are_refused(postgres_room):
    with pytest.raises((SqlRefused, SqlFailed)):
        await postgres_room.ask("select * from runs where id = $1", "one")
