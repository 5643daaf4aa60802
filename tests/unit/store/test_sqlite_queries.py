"""Queries of PostgreSQL become queries of SQLite by a few rewrites."""

from __future__ import annotations

import apsw
import pytest

from rota.store.sqlite.connection import connect, migrate
from rota.store.sqlite.queries import load_sqlite_queries, to_sqlite

REWRITES = {
    "select id from rota.runs r where r.id = :id::bigint": "select id from runs r where r.id = :id",
    "select :a::double precision, :b::text[], (x = 1)::int": "select :a, :b, (x = 1)",
    "select cast(value as bigint) from rota.facts": "select cast(value as bigint) from facts",
    "select id from rota.runs order by id for update": "select id from runs order by id",
    "select 1 from rota.runs q for update of q skip locked": "select 1 from runs q",
    "select 1 from rota.runs for no key update": "select 1 from runs",
    "select 1 from rota.runs for share\non conflict do nothing": (
        "select 1 from runs\non conflict do nothing"
    ),
    "select greatest(a, least(b, 0))": "select max(a, min(b, 0))",
    "select strpos(lower(a), lower(b))": "select instr(lower(a), lower(b))",
    "select json_agg(json_build_array(a, b) order by a)": (
        "select json_group_array(json_array(a, b) order by a)"
    ),
    "select a ilike :words::text": "select a like :words",
    "where id = any(:ids::bigint[])": "where id in (select value from json_each(:ids))",
    "where id <> all(:ids::bigint[])": "where id not in (select value from json_each(:ids))",
    "select 1 from unnest(:ids::bigint[]) as w(run_id)": (
        "select 1 from (select value as run_id from json_each(:ids) w) w"
    ),
    "select w.id from jsonb_to_recordset(:rows::text::jsonb)\n  as w(id bigint, at bigint)": (
        "select w.id from (select value ->> 'id' as id, value ->> 'at' as at"
        " from jsonb_each(:rows) w) w"
    ),
    "select 1 from rota.runs r /* sqlite: indexed by runs_ready */ where true": (
        "select 1 from runs r indexed by runs_ready where true"
    ),
}


@pytest.mark.parametrize("sql", REWRITES)
def test_a_query_is_rewritten(sql):
    assert to_sqlite(sql) == REWRITES[sql]


@pytest.mark.parametrize(
    "sql",
    [
        "select 'a::' || :b || ':c' from t /* a comment */ where kind = 'for'",
        "update t set a = max(a, b) where c in (select value from json_each(:ids)) returning id",
    ],
)
def test_what_both_dialects_spell_alike_is_left_alone(sql):
    assert to_sqlite(sql) == sql


@pytest.fixture
def connection():
    made = connect(":memory:")
    migrate(made, ":memory:")
    yield made
    made.close()


class Nulls(dict[str, None]):
    def __missing__(self, name: str) -> None:
        return None


@pytest.mark.parametrize("name", sorted(load_sqlite_queries()))
def test_sqlite_can_prepare_every_query(connection, name):
    assert list(connection.execute(f"explain {load_sqlite_queries()[name]}", Nulls()))


def test_records_cost_no_table_of_their_own(connection):
    sql = to_sqlite(
        "update rota.runs as r set cause = w.cause"
        " from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, cause text) where r.id = w.id"
    )
    plan = [row[3] for row in connection.execute(f"explain query plan {sql}", Nulls())]
    assert plan == [
        "SCAN w VIRTUAL TABLE INDEX 1:",
        "SEARCH r USING INTEGER PRIMARY KEY (rowid=?)",
    ]


def test_a_hint_for_an_index_that_is_missing_fails(connection):
    sql = to_sqlite("select 1 from rota.runs /* sqlite: indexed by runs_gone */")
    with pytest.raises(apsw.SQLError, match="no such index"):
        connection.execute(sql)
