"""PostgreSQL takes every query, by the index it is meant to use."""

from __future__ import annotations

import re

import pytest

from rota.store.postgres.connection import connect
from rota.store.postgres.transactions import Statements
from rota.store.sql_files import load_queries

QUERIES = load_queries()

HOT = {
    "existing_runs": {"runs_key", "runs_slot"},
    "active_in_lanes": {"runs_lane_queue", "runs_lane_running", "runs_lane_waiting"},
    "requeue_runs": {"runs_pkey"},
    "finish_runs_with": {"runs_pkey"},
    "await_runs": {"runs_pkey"},
    "hold_runs": {"runs_pkey"},
    "ready_runs": {"runs_pkey", "runs_lane_ready"},
    "promote_runs": {"runs_pkey"},
    "request_cancel": {"runs_pkey"},
    "held_runs": {"runs_running"},
    "lost_runs": {"runs_running"},
    "drop_heads": {"heads_pool_space_id_route_grp_metered_key", "heads_pkey"},
    "turn_heads": {"heads_pool_space_id_route_grp_metered_key"},
    "advance_schedules": {"schedules_pkey"},
    "lock_schedules": {"schedules_pkey"},
    "last_ledger": {"ledger_schedule"},
    "oldest_events": {"events_pkey"},
    "run_events": {"events_run"},
    "cancel_reasons": {"events_run"},
    "list_deliveries": {"deliveries_run", "deliveries_pkey"},
    "list_runs": {"runs_pkey"},
    "list_runs_of_task": {"runs_task"},
    "take_pings": {"pings_pkey"},
    "open_heads": {"heads_turn"},
    "pick_runs": {"runs_ready"},
    "lease_runs": {"runs_pkey"},
    "count_total": {"runs_running"},
    "count_pool": {"runs_running"},
    "count_group": {"runs_running_group"},
    "count_spaces": {"runs_running"},
    "view_lanes": {"runs_lane_running", "runs_lane_ready", "runs_lane_queue"},
    "lock_runs": {"runs_pkey"},
    "record_attempts": {"runs_pkey"},
    "record_events": {"runs_pkey"},
    "finish_runs": {"runs_pkey"},
    "later_due": {"runs_later"},
    "next_due": {"schedules_due", "runs_later"},
    "due_schedules": {"schedules_due"},
    "expired_runs": {"runs_expiry"},
    "pick_deliveries": {"deliveries_pending"},
    "find_heads": {"runs_ready"},
    "find_lanes": {"runs_lane_queue"},
}


WHOLE = {"waiting_pings"}  # verify looks at every row

SMALL = {"limits", "workers", "facts", "heads"}
"""Tables that may be read whole: heads only when a limit changes."""


@pytest.fixture
def rota_connection(postgres_address, runner):
    """A connection with the settings of Rota's own."""
    made = runner.run(connect(postgres_address, "test"))
    yield made
    runner.run(made.close())


async def test_postgres_can_prepare_every_query(connection):
    statements = Statements(QUERIES)
    for name in QUERIES:
        statement = statements.join((name,))
        prepared = await connection.prepare(statement.sql)
        assert len(prepared.get_parameters()) == len(statement.parameters), name


async def test_a_hot_query_goes_by_its_index_even_when_planned_on_empty_tables(rota_connection):
    statements = Statements(QUERIES)
    for name, indexes in HOT.items():
        plan = await plan_of(rota_connection, statements.join((name,)).sql)
        assert {index for index in indexes if index not in plan} == set(), f"{name}\n{plan}"


async def test_no_query_reads_a_large_table_from_end_to_end(rota_connection):
    statements = Statements(QUERIES)
    for name in QUERIES.keys() - WHOLE:
        plan = await plan_of(rota_connection, statements.join((name,)).sql)
        scans = set(re.findall(r"Seq Scan on (\w+)", plan))
        assert scans <= SMALL, f"{name}\n{plan}"
        assert not re.search(r"(Hash|Merge) \w*\s*Join", plan), f"{name}\n{plan}"


async def plan_of(connection, sql):
    prepared = await connection.prepare(sql)
    nulls = ", ".join("null" for _ in prepared.get_parameters())
    execute = f"explain (costs off) execute {prepared.get_name()}"
    rows = await connection.fetch(f"{execute}({nulls})" if nulls else execute)
    return "\n".join(row[0] for row in rows)


def test_parameters_are_numbered_by_first_appearance_and_casts_are_left_alone():
    statements = Statements({"q": "select :b::int, :a::text, :b::int where x::text = :c::text"})
    statement = statements.join(("q",))
    assert statement.sql == "select $1::int, $2::text, $1::int where x::text = $3::text"
    assert [name for _, name in statement.parameters] == ["b", "a", "c"]


def test_parts_of_one_statement_keep_their_parameters_apart():
    queries = {
        "gone": "delete from rota.pings where id = any(:ids::bigint[])",
        "seen": "with w as (select 1) select id from rota.runs where id = any(:ids::bigint[])",
    }
    statement = Statements(queries).join(("gone", "seen"))
    assert statement.sql == (
        "with ride_0 as (delete from rota.pings where id = any($1::bigint[])), "
        "w as (select 1) select id from rota.runs where id = any($2::bigint[])"
    )
    assert statement.parameters == ((0, "ids"), (1, "ids"))


def test_a_query_may_not_join_a_write_to_a_table_it_touches():
    statements = Statements(QUERIES)
    assert statements.may_join("finish_runs", ["record_attempts", "record_events"])
    assert not statements.may_join("record_events", ["finish_runs"])
    assert not statements.may_join("turn_heads", ["drop_heads"])
    assert statements.may_join("read_limits", ["reopen_heads", "open_new_heads"])
