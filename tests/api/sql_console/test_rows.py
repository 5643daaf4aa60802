"""Attacks S5, S6, S8 and S10: others' rows, hidden tables, locks, errors."""

from __future__ import annotations

import pytest

from rota.errors import SqlFailed, SqlRefused, SqlTimeout

STOPPED = {"sql_refused", "sql_failed", "sql_timeout"}


async def test_s05_no_row_of_another_space(room):
    """Whatever is said to the session, and by whatever name a query calls itself."""
    spoofs = [
        f"WITH {name} AS (SELECT * FROM {schema}.{name}) SELECT * FROM {name}"
        for name in ("runs", "tasks", "questions", "events", "spaces")
        for schema in ("main", "rota", "temp.main")
    ]
    for sql in (
        *spoofs,
        "WITH runs AS (SELECT digest FROM keys) SELECT * FROM runs",
        "WITH RECURSIVE runs AS (SELECT digest FROM keys) SELECT * FROM runs",
        "SELECT * FROM (SELECT digest FROM keys) AS runs",
        "SELECT (SELECT payload FROM main.runs LIMIT 1) FROM runs",
        "SELECT (SELECT payload FROM rota.runs LIMIT 1) FROM runs",
        "SELECT count(*) FROM main.runs",
        "SELECT count(*) FROM rota.runs",
        "SELECT 1 FROM runs JOIN main.spaces ON true",
    ):
        assert await room.verdict(sql, space="ann") == "sql_refused", sql
    tries = {
        "sqlite": ["SELECT * FROM runs WHERE space = 'bob' OR 1 OR space_id = 2"],
        "postgres": [
            "SET ROLE postgres",
            "SET SESSION AUTHORIZATION postgres",
            "RESET ROLE",
            "RESET SESSION AUTHORIZATION",
            "SELECT set_config('rota.token', '0', false)",
            "SELECT set_config('role', 'postgres', false)",
            "SELECT set_config('session_authorization', 'postgres', false)",
            "SELECT current_setting('rota.token')",
            "SELECT rota_sql.space()",
            "SELECT space()",
            "SET rota.token = '0:'",
            "SET LOCAL search_path = rota",
            "SELECT current_user",
            "CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql SECURITY DEFINER AS 'select 1'",
        ],
    }
    await room.all_end_with(tries)
    mine = await room.rows(
        "select space, payload from runs where space = 'bob' or 1 = 1", space="ann"
    )
    assert [row[0] for row in mine] == ["ann"] * 3
    assert await room.rows("select count(*) from runs where payload like '%bob%'", space="ann") == [
        (0,)
    ]


async def test_s05_a_signature_is_for_one_space_and_one_connection(postgres_room, sql_url):
    """Even with the role in hand, and every function of PostgreSQL."""
    import asyncpg

    from rota.store.postgres.sql_console import sign

    room = postgres_room
    await room.fill()
    key = await room.inquirer._read_key()
    connection = await asyncpg.connect(sql_url)
    try:
        pid = connection.get_server_pid()

        async def seen(token):
            await connection.execute("select set_config('rota.token', $1, false)", token)
            rows = await connection.fetch("select distinct space from runs order by 1")
            return [row[0] for row in rows]

        ann, bob = (str(room.ids[name]) for name in ("ann", "bob"))
        good = sign(key, room.ids["ann"], pid)
        assert await seen(good) == ["ann"]
        assert await seen(sign(key, None, pid)) == ["ann", "bob"]
        for forged in (
            "",
            "0",
            "0:",
            ":",
            bob,
            good.replace(f"{ann}:", f"{bob}:"),
            good.replace(f"{ann}:", "0:"),
            good + " ",
            sign(key, None, pid + 1),
            sign("", None, pid),
            sign("guess", None, pid),
            "x" * 10_000,
        ):
            assert await seen(forged) == [], forged
        for sql in (
            "select * from rota.metadata",
            "select * from rota.runs",
            "select * from rota.keys",
            "set role postgres",
            "set session authorization postgres",
            "create temp table x (a int)",
            "insert into rota_sql.spaces values ('x', 'main', 'UTC', '')",
            "alter view rota_sql.runs set (security_barrier = false)",
            "create or replace function rota_sql.space() returns bigint language sql as 'select 0'",
            "set temp_file_limit = -1",
            "alter role current_user superuser",
        ):
            with pytest.raises(asyncpg.PostgresError):
                await connection.execute(sql)
        # A function that tells what it is shown is not shown what the filter keeps back.
        await seen(good)
        with pytest.raises(asyncpg.PostgresError):
            await connection.fetch("select * from runs where cast(payload as int) = 1")
        told = []
        connection.add_log_listener(lambda _, message: told.append(str(message)))
        try:
            await connection.fetch("select * from runs where cast(payload as int) = 1")
        except asyncpg.PostgresError as fault:
            told.append(str(fault))
        assert room.secret not in repr(told)
    finally:
        await connection.close()


async def test_s06_no_keys_no_catalog_no_definitions(room):
    await room.all_end_with(
        {
            "both": [
                *(
                    f"SELECT {what} FROM {table}"
                    for table in (
                        "keys",
                        "audit_log",
                        "task_state",
                        "seen_items",
                        "metadata",
                        "limits",
                        "queue_heads",
                    )
                    for what in ("*", "count(*)", "1")
                ),
                "SELECT digest FROM runs",
                "SELECT home FROM workers",
                "SELECT dedupe_key FROM deliveries",
                "SELECT space_id FROM runs",
            ],
            "sqlite": [
                *(
                    f"SELECT {what} FROM {table}"
                    for table in (
                        "sqlite_master",
                        "sqlite_schema",
                        "sqlite_temp_master",
                        "sqlite_temp_schema",
                        "main.sqlite_master",
                        "temp.sqlite_master",
                        "sqlite_sequence",
                        "sqlite_stat1",
                        "sqlite_stmt",
                    )
                    for what in ("*", "count(*)", "1")
                ),
                "SELECT rowid FROM runs",
                "SELECT * FROM main.keys",
                "SELECT * FROM temp.keys",
            ],
            "postgres": [
                "SELECT * FROM pg_stat_activity",
                "SELECT * FROM pg_catalog.pg_stat_activity",
                'SELECT * FROM "pg_stat_activity"',
                "SELECT * FROM PG_STAT_ACTIVITY",
                "SELECT * FROM pg_class",
                "SELECT * FROM pg_authid",
                "SELECT * FROM pg_roles",
                "SELECT * FROM pg_views",
                "SELECT * FROM pg_settings",
                "SELECT pg_get_viewdef('runs')",
                "SELECT pg_get_functiondef(1)",
                "SELECT * FROM information_schema.tables",
                'SELECT * FROM "information_schema".tables',
                "SELECT cast('rota.keys' as regclass)",
                "SELECT 10::regrole",
                "SELECT * FROM rota.keys",
                "SELECT * FROM rota.metadata",
                "SELECT xmin FROM runs",
                "SELECT tableoid FROM runs",
            ],
        },
    )


async def test_s08_nothing_waits_locks_signals_or_counts(room):
    await room.all_end_with(
        {
            "both": [
                "SELECT * FROM runs FOR UPDATE",
                "LOCK TABLE runs",
                "SELECT sleep(1)",
                "SELECT pg_sleep(1)",
            ],
            "sqlite": [
                "BEGIN EXCLUSIVE",
                "PRAGMA locking_mode = exclusive",
                "PRAGMA wal_checkpoint",
            ],
            "postgres": [
                *(
                    f"SELECT {call}"
                    for call in (
                        "pg_sleep_for('1s')",
                        "pg_sleep_until('tomorrow')",
                        "pg_advisory_lock(1)",
                        "pg_advisory_xact_lock(1919906913, 1)",
                        "pg_try_advisory_lock(1)",
                        "pg_notify('rota', 'runs')",
                        "nextval('rota.runs_id_seq')",
                        "setval('rota.runs_id_seq', 1)",
                        "currval('rota.runs_id_seq')",
                        "pg_terminate_backend(1)",
                        "pg_cancel_backend(1)",
                        "pg_reload_conf()",
                        "pg_export_snapshot()",
                        "txid_current()",
                        "pg_logical_emit_message(true, 'a', 'b')",
                        "gen_random_uuid()",
                    )
                ),
                "SELECT * FROM runs FOR SHARE",
                "SELECT * FROM rota.runs FOR UPDATE SKIP LOCKED",
                "SELECT\npg_sleep\n(1)",
                "SELECT pg_sleep/**/(1)",
                "SELECT pg_sleep -- x\n (1)",
                'SELECT "pg_sleep"(1)',
                "SELECT pg_catalog . pg_sleep(1)",
                "SELECT (SELECT 1 FROM pg_sleep(1))",
                "SELECT 1 FROM runs, LATERAL pg_sleep(1)",
                "SELECT 1 WHERE 1 OPERATOR(pg_catalog.=) 1",
                "SELECT count(*) FILTER (WHERE pg_sleep(1) IS NULL) FROM runs",
                "SELECT 1pg_sleep(1)",
            ],
        },
    )


async def test_s10_errors_tell_nothing_of_others(room):
    """`verdict` looks into every sentence for what only bob may see."""
    listed = {
        "both": [
            "SELECT cast(payload as int) / 0 FROM runs WHERE space = 'bob' OR payload LIKE '%bob%'",
            "SELECT * FROM keys WHERE digest = 'x'",
            "SELECT 1 FROM runs WHERE (SELECT digest FROM keys LIMIT 1) LIKE 't%'",
        ],
        "sqlite": [
            "SELECT json_extract(payload, 'x') FROM runs",
            "SELECT json(error) FROM runs WHERE error IS NOT NULL",
        ],
        "postgres": [
            "SELECT cast(error as int) FROM runs WHERE error IS NOT NULL",
            "SELECT cast(payload as date) FROM runs",
            "SELECT 1 / (CASE WHEN payload LIKE '%own%' THEN 0 ELSE 1 END) FROM runs",
        ],
    }
    for sql in (*listed["both"], *listed[room.kind]):
        assert await room.verdict(sql, space="ann") in {*STOPPED, "answered"}, sql
        fault = await told(room, sql)
        assert "anns-own-words" not in fault, sql
        assert room.digest not in fault


async def told(room, sql):
    try:
        await room.ask(sql, space="ann")
    except (SqlRefused, SqlFailed, SqlTimeout) as fault:
        return str(fault)
    return ""
