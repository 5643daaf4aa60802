"""The bare databases: the least that a durable queue must write, and no Python around it."""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import Any

import apsw
import asyncpg

from bench.kit import percentile, serve

BATCH = 500
SQLITE_TABLE = """
create table job (id integer primary key, queue text not null, run_at real not null,
  state integer not null default 0, holder text, payload text not null);
create index job_ready on job (queue, run_at, id) where state = 0;
"""
SQLITE_INSERT = "insert into job (queue, run_at, payload) values ('q', 0, ?)"
POSTGRES_TABLE = """
create table job (id bigint generated always as identity primary key, queue text not null,
  run_at timestamptz not null default now(), state smallint not null default 0, holder text,
  payload text not null);
create index job_ready on job (queue, run_at, id) where state = 0;
"""


def _sqlite(address: str) -> apsw.Connection:
    connection = apsw.Connection(address.removeprefix("sqlite:///"))
    connection.execute(
        "pragma journal_mode = wal; pragma synchronous = full; pragma cache_size = -65536"
    )
    connection.execute(SQLITE_TABLE)
    return connection


def drain_sqlite(address: str, n: int) -> dict[str, Any]:
    connection = _sqlite(address)
    with connection:
        connection.executemany(SQLITE_INSERT, ((str(i),) for i in range(n)))
    began, left = time.perf_counter(), n
    while left:
        rows = connection.execute(
            "update job set state = 1, holder = 'w' where id in (select id from job where queue = 'q'"
            " and run_at <= 1 and state = 0 order by run_at, id limit ?) returning id, payload",
            (BATCH,),
        ).fetchall()
        ids = json.dumps([row[0] for row in rows])
        connection.execute(
            "update job set state = 2 where id in (select value from json_each(?))", (ids,)
        )
        left -= len(rows)
    return {"rate": n / (time.perf_counter() - began)}


def bulk_sqlite(address: str, n: int, batch: int) -> dict[str, Any]:
    connection = _sqlite(address)
    began = time.perf_counter()
    for _ in range(0, n, batch):
        with connection:
            connection.executemany(SQLITE_INSERT, ((str(i),) for i in range(batch)))
    return {"rate": n / (time.perf_counter() - began)}


def single_sqlite(address: str, n: int) -> dict[str, Any]:
    connection = _sqlite(address)
    began = time.perf_counter()
    for number in range(n):
        connection.execute(SQLITE_INSERT, (str(number),))
    return {"rate": n / (time.perf_counter() - began)}


def drain_postgres(address: str, n: int) -> dict[str, Any]:
    return asyncio.run(_drain_postgres(address, n))


async def _drain_postgres(address: str, n: int) -> dict[str, Any]:
    connection = await asyncpg.connect(address)
    await connection.execute(POSTGRES_TABLE)
    await connection.execute(
        f"insert into job (queue, payload) select 'q', n::text from generate_series(1, {n}) n"
    )
    await connection.execute("vacuum analyze job")
    take = await connection.prepare(
        "update job set state = 1, holder = 'w' where id = any(array(select id from job where queue = 'q'"
        " and run_at <= now() and state = 0 order by run_at, id limit $1 for update skip locked))"
        " returning id, payload"
    )
    end = await connection.prepare("update job set state = 2 where id = any($1::bigint[])")
    began, left = time.perf_counter(), n
    while left:
        rows = await take.fetch(BATCH)
        await end.fetch([row[0] for row in rows])
        left -= len(rows)
    return {"rate": n / (time.perf_counter() - began)}


def bulk_postgres(address: str, n: int, batch: int) -> dict[str, Any]:
    return asyncio.run(_bulk_postgres(address, n, batch))


async def _bulk_postgres(address: str, n: int, batch: int) -> dict[str, Any]:
    connection = await asyncpg.connect(address)
    await connection.execute(POSTGRES_TABLE)
    insert = await connection.prepare(
        "insert into job (queue, payload) select 'q', unnest($1::text[]) returning id"
    )
    began = time.perf_counter()
    for _ in range(0, n, batch):
        await insert.fetch([str(i) for i in range(batch)])
    return {"rate": n / (time.perf_counter() - began)}


def single_postgres(address: str, n: int) -> dict[str, Any]:
    return asyncio.run(_single_postgres(address, n))


async def _single_postgres(address: str, n: int) -> dict[str, Any]:
    connection = await asyncpg.connect(address)
    await connection.execute(POSTGRES_TABLE)
    insert = await connection.prepare(
        "insert into job (queue, payload) values ('q', $1) returning id"
    )
    began = time.perf_counter()
    for number in range(n):
        await insert.fetchval(str(number))
    return {"rate": n / (time.perf_counter() - began)}


def fsync(path: str, n: int) -> dict[str, Any]:
    """How long the disk takes to say that 8 KiB are safe."""
    file, waits = os.open(path, os.O_WRONLY | os.O_CREAT), []
    try:
        for number in range(n):
            os.pwrite(file, bytes(8192), number % 16 * 8192)
            began = time.perf_counter()
            os.fdatasync(file)
            waits.append((time.perf_counter() - began) * 1e6)
    finally:
        os.close(file)
        Path(path).unlink()
    return {"us": percentile(waits, 50)}


if __name__ == "__main__":
    serve(
        drain_sqlite,
        bulk_sqlite,
        single_sqlite,
        drain_postgres,
        bulk_postgres,
        single_postgres,
        fsync,
    )
