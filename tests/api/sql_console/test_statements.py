"""Attacks S1 to S4: other statements, other files, other programs."""

from __future__ import annotations


async def test_s01_no_other_database_no_setting_and_nothing_temporary(room, tmp_path):
    before = sorted(tmp_path.iterdir())
    await room.all_end_with(
        {
            "both": [
                "VACUUM",
                "CREATE TEMP TABLE x (a int)",
                "CREATE TEMP VIEW x AS SELECT 1",
                "DROP VIEW runs",
                "ALTER TABLE runs RENAME TO r",
                "ANALYZE",
                "REINDEX",
            ],
            "sqlite": [
                f"ATTACH '{tmp_path}/x.db' AS x",
                f"ATTACH '{tmp_path}/rota.db' AS x",
                "ATTACH ':memory:' AS x",
                "DETACH main",
                "DETACH temp",
                f"VACUUM INTO '{tmp_path}/copy.db'",
                f"VACUUM main INTO '{tmp_path}/copy.db'",
                "PRAGMA query_only = off",
                "PRAGMA query_only",
                "PRAGMA database_list",
                "PRAGMA writable_schema = on",
                "PRAGMA journal_mode = delete",
                "PRAGMA temp_store_directory = '/'",
                "PRAGMA hard_heap_limit = 0",
                "SELECT * FROM pragma_database_list",
                "SELECT count(*) FROM pragma_database_list",
                "SELECT * FROM pragma_table_info('runs')",
                "SELECT * FROM pragma_table_list",
                "SELECT * FROM pragma_function_list",
                "SELECT (SELECT file FROM pragma_database_list LIMIT 1)",
                "CREATE VIRTUAL TABLE temp.x USING fts5(a)",
                "CREATE TEMP TRIGGER x AFTER INSERT ON runs BEGIN SELECT 1; END",
            ],
            "postgres": [
                "CREATE DATABASE x",
                "CREATE SCHEMA x",
                "CREATE TABLE public.x (a int)",
                "SELECT 1 INTO x",
                "SELECT 1 AS a INTO TEMP x",
                "CREATE EXTENSION dblink",
                "SHOW data_directory",
                "SHOW ALL",
                "CHECKPOINT",
                "LISTEN rota",
                "NOTIFY rota",
                "CLUSTER",
                "DISCARD ALL",
            ],
        },
    )
    assert sorted(tmp_path.iterdir()) == before


async def test_s02_a_query_changes_nothing(room):
    before = await room.rows("select id, state, payload from runs order by id")
    await room.all_end_with(
        {
            "both": [
                "INSERT INTO tasks (name) VALUES ('x')",
                "UPDATE runs SET state = 'failed'",
                "DELETE FROM runs",
                "DELETE FROM runs RETURNING id",
                "UPDATE runs SET state = 'failed' RETURNING *",
                "EXPLAIN DELETE FROM runs",
                "EXPLAIN SELECT * FROM runs",
                "WITH x AS (SELECT 1) DELETE FROM runs",
                "WITH x AS (SELECT 1) INSERT INTO tasks (name) SELECT 'x'",
            ],
            "sqlite": [
                "DELETE FROM main.runs",
                "UPDATE main.runs SET state = 'failed'",
                "REPLACE INTO facts VALUES ('a', 'b')",
                "INSERT INTO facts VALUES ('a', 'b') RETURNING value",
                "EXPLAIN QUERY PLAN SELECT * FROM runs",
                "BEGIN IMMEDIATE",
                "SAVEPOINT x",
            ],
            "postgres": [
                "DELETE FROM rota.runs",
                "UPDATE rota.runs SET state = 'failed'",
                "WITH x AS (DELETE FROM rota.runs RETURNING *) SELECT * FROM x",
                "WITH x AS (DELETE FROM runs RETURNING *) SELECT * FROM x",
                "WITH x AS (UPDATE runs SET state = 'failed' RETURNING *) SELECT * FROM x",
                "WITH x AS (INSERT INTO tasks (name) VALUES ('x') RETURNING *) SELECT * FROM x",
                "EXPLAIN ANALYZE DELETE FROM runs",
                "EXPLAIN (ANALYZE) SELECT * FROM runs",
                "MERGE INTO runs USING tasks ON true WHEN MATCHED THEN DELETE",
                "TRUNCATE runs",
                "REFRESH MATERIALIZED VIEW runs",
            ],
        },
    )
    assert await room.rows("select id, state, payload from runs order by id") == before


async def test_s03_there_is_one_statement_and_it_is_a_query(room):
    await room.all_end_with(
        {
            "both": [
                "",
                " ",
                ";",
                "-- nothing",
                "SELECT 1; SELECT 2",
                "SELECT 1; DELETE FROM runs",
                "SELECT 1 /* ; */ ; SELECT 2",
                "SELECT ';'; SELECT 2",
                "SELECT 1 -- x\n; SELECT 2",
                "COMMIT; DELETE FROM runs",
                "COMMIT",
                "ROLLBACK; SELECT 1",
                "BEGIN; SELECT 1",
                "/* SELECT */ DELETE FROM runs",
                "-- SELECT\nDELETE FROM runs",
                "SELECT 1) SELECT (2",
                "SELECT 1) AS x, (SELECT 2",
                "SELECT 1\x00; DELETE FROM runs",
            ],
            "sqlite": ["SELECT 1; PRAGMA query_only = off", "RELEASE x", "END"],
            "postgres": [
                "BEGIN READ WRITE",
                "SET transaction_read_only = off",
                "SET TRANSACTION READ WRITE",
                "SET SESSION CHARACTERISTICS AS TRANSACTION READ WRITE",
                "RESET ALL",
                "DO $$ BEGIN DELETE FROM rota.runs; END $$",
                "DO 'BEGIN NULL; END'",
                "CALL nothing()",
                "PREPARE x AS SELECT 1",
                "EXECUTE x",
                "DEALLOCATE ALL",
                "DECLARE c CURSOR WITH HOLD FOR SELECT 1",
                "FETCH ALL FROM c",
                "SELECT $$a$$; SELECT 2",
                "SELECT $x$;$x$",
                "SELECT E'\\''; SELECT 2 --'",
                "SELECT U&'\\003b'",
                'SELECT U&"\\0070g_sleep"(1)',
                'SELECT * FROM U&"pg\\005fauthid"',
                "/* a /* b */ SELECT 1",
                "/* a /* b */ */ SELECT pg_sleep(1)",
                "SELECT 1 /* x",
                "SELECT 'x",
                'SELECT "x',
                "SELECT 1) SELECT row_to_json(asked.*) FROM asked --",
                "SELECT 1), more AS (DELETE FROM rota.runs RETURNING 1",
                "VALUES (1) RETURNING 1",
                "TABLE rota.keys",
            ],
        },
    )
    assert await room.rows("/* ; */ select ';' /* -- */", space="ann") == [(";",)]


async def test_s04_no_file_no_program_no_library_no_other_server(room, tmp_path):
    await room.all_end_with(
        {
            "sqlite": [
                "SELECT readfile('/etc/passwd')",
                "SELECT writefile('/tmp/x', 'x')",
                "SELECT load_extension('x')",
                "SELECT fts3_tokenizer('simple')",
                "SELECT fts3_tokenizer('x', x'00')",
                "SELECT edit('x')",
                "SELECT sqlite_compileoption_get(1)",
                "SELECT sqlite_version()",
                "SELECT sqlite_source_id()",
                "SELECT zeroblob(10)",
                "SELECT randomblob(10)",
                "SELECT * FROM dbstat",
                "SELECT count(*) FROM dbstat",
                "SELECT * FROM fsdir('/')",
                "SELECT * FROM csv('/etc/passwd')",
                "SELECT * FROM bytecode('select 1')",
                "SELECT last_insert_rowid()",
            ],
            "postgres": [
                "COPY (SELECT 1) TO PROGRAM 'id'",
                "COPY runs TO STDOUT",
                "COPY runs FROM '/etc/passwd'",
                "SELECT pg_read_file('/etc/passwd')",
                "SELECT pg_catalog.pg_read_file('/etc/passwd')",
                "SELECT \"pg_read_file\"('/etc/passwd')",
                "SELECT pg_read_binary_file('/etc/passwd')",
                "SELECT pg_ls_dir('/')",
                "SELECT * FROM pg_ls_dir('/')",
                "SELECT pg_stat_file('/etc/passwd')",
                "SELECT lo_import('/etc/passwd')",
                "SELECT lo_create(0)",
                "SELECT lo_from_bytea(0, 'x')",
                "SELECT lo_get(1)",
                "SELECT lo_unlink(1)",
                "SELECT dblink('', 'select 1')",
                "SELECT query_to_xml('select * from rota.keys', true, true, '')",
                "SELECT table_to_xml('rota.keys', true, true, '')",
                "SELECT database_to_xml(true, true, '')",
                "SELECT ts_stat('select 1')",
                "SELECT version()",
                "SELECT inet_server_addr()",
                "LOAD 'x'",
                "SELECT repeat('x', 1000000000)",
                "SELECT lpad('x', 1000000000)",
            ],
        },
    )
