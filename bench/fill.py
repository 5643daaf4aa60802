"""Rows that a long-lived Rota would have, written straight into its tables.

The statements follow the migrations in src/rota/store/*/migrations; both dialects have the same
columns; instants are microseconds and booleans 0 and 1.
"""

from __future__ import annotations

import time
from typing import Any

from rota.library.rota import Rota
from rota.model.events import EventName
from rota.model.spaces import SpaceRole
from rota.model.tasks import NewTask
from rota.store.tasks import add_space, find_space, put_task

PAST = "past"
ROUTE = "python:noop"
DAY = 86_400_000_000

RUN = (
    "insert into runs (space_id, task_id, state, place, pool, priority, available_at, route, grp, metered,"
    " source, epoch, cause, created_at, started_at, finished_at, payload)"
)
FINISHED = (
    RUN
    + " select {space}, {task}, 'succeeded', null, 'background', 0, {now} - n * 60000, '{route}', '',"
    " 1, 'enqueue', 1, 'first', {now} - n * 60000, {now} - n * 60000, {now} - n * 60000 + 500, 'null'"
    " from numbers",
    (
        "insert into attempts (run_id, number, cause, worker, started_at, ended_at, outcome)"
        " select id, 1, 'first', 'bench-0', started_at, finished_at, 'succeeded' from runs where task_id = {task}"
    ),
    (
        "insert into events (at, name, space_id, task_id, run_id, data)"
        " select finished_at, '{settled}', space_id, task_id, id, '{{\"state\": \"succeeded\"}}'"
        " from runs where task_id = {task} order by id"
    ),
)
FUTURE = (
    RUN
    + " select {space}, {task}, 'queued', 'later', 'background', 0, {now} + {day} + n, '{route}', '',"
    " 1, 'enqueue', 0, 'first', {now}, null, null, 'null' from numbers",
)
SPACES = (
    (
        "insert into spaces (name, role, timezone, created_at)"
        " select 'space-' || n, 'member', 'UTC', {now} from numbers"
    ),
    (
        "insert into tasks (space_id, name, title, kind, route, spec, policy, origin, enabled, enabled_since,"
        " created_at, updated_at)"
        " select id, 'noop', '', 'python', '{route}', '{{}}', '{{}}', 'bench', 1, {now}, {now}, {now}"
        " from spaces where name like 'space-%'"
    ),
)
QUEUED = (
    RUN + " select t.space_id, t.id, 'queued', 'ready', 'background', 0, {now} + n, '{route}',"
    " case n % 4 when 0 then 'mail' else '' end, 1, 'enqueue', 0, 'first', {now}, null, null, 'null'"
    " from numbers, tasks t where t.origin = 'bench' and t.name = 'noop'",
)


async def history(address: str, what: str, count: int) -> None:
    """Add `count` finished runs with their attempts and events, or `count` runs for tomorrow."""
    async with Rota(address) as rota:
        space = await rota.store.read(find_space, "main")
        task = await rota.store.write(
            put_task, NewTask(space_id=space.id, name=PAST, route=ROUTE, origin="bench"), None
        )
    statements = FINISHED if what == "finished" else FUTURE
    await _execute(address, statements, count, space=space.id, task=task.id)
    await vacuum(address)


async def spaces(address: str, count: int, queued_each: int) -> None:
    """Add spaces with a task each, and ready runs for every one of them."""
    async with Rota(address) as rota:
        await rota.store.write(add_space, "main", SpaceRole.MAIN, "UTC")
    await _execute(address, SPACES, count)
    await _execute(address, QUEUED, queued_each)
    await vacuum(address)


async def _execute(address: str, statements: tuple[str, ...], count: int, **names: Any) -> None:
    now = time.time_ns() // 1000
    names = {"now": now, "day": DAY, "route": ROUTE, "settled": EventName.SETTLED.value, **names}
    if address.startswith("sqlite:"):
        _sqlite(address, statements, count, names)
    else:
        await _postgres(address, statements, count, names)


def _sqlite(address: str, statements: tuple[str, ...], count: int, names: dict[str, Any]) -> None:
    import apsw

    connection = apsw.Connection(address.removeprefix("sqlite:///"))
    numbers = f"with recursive numbers(n) as (select 1 union all select n + 1 from numbers where n < {count}) "
    connection.execute("pragma synchronous = off; pragma cache_size = -200000; begin")
    for statement in statements:
        insert, select = statement.format(**names).split(") select ", 1)
        connection.execute(f"{insert}) {numbers if 'numbers' in select else ''}select {select}")
    connection.execute("commit; pragma wal_checkpoint(truncate)")
    connection.close()


async def _postgres(
    address: str, statements: tuple[str, ...], count: int, names: dict[str, Any]
) -> None:
    import asyncpg

    connection = await asyncpg.connect(address, server_settings={"search_path": "rota"})
    numbers = f"generate_series(1::bigint, {count}::bigint) numbers(n)"
    try:
        for statement in statements:
            written = statement.format(**names).replace("from numbers", f"from {numbers}")
            await connection.execute(written)
    finally:
        await connection.close()


async def vacuum(address: str) -> None:
    """Do what autovacuum would have done by now; Rota itself never analyses a SQLite file."""
    if not address.startswith("sqlite:"):
        import asyncpg

        connection = await asyncpg.connect(address)
        try:
            await connection.execute("vacuum analyze")
            await connection.execute("checkpoint")
        finally:
            await connection.close()
