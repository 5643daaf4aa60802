"""Two tenants with something to hide, on every store that can be asked in SQL."""

from __future__ import annotations

import json
import secrets

import pytest

from rota.errors import RotaError
from rota.model.attempts import Failed, Succeeded
from rota.model.keys import KeyScope, NewKey
from rota.model.spaces import SpaceRole
from rota.store.keys import add_key
from rota.store.sql_console import SqlQuery
from rota.store.sqlite.database import SqliteDatabase
from rota.store.sqlite.sql_console import SqliteSqlConsole
from rota.store.tasks import put_state
from tests.tools.store_bench import Bench

SECRET = "bobs-own-words"  # noqa: S105 - what nobody else may ever see
DIGEST = "the-digest-of-a-key"


class Room:
    """A store with two members in it, and what answers SQL about it."""

    secret = SECRET
    digest = DIGEST

    def __init__(self, kind, bench, inquirer):
        self.kind = kind
        self.bench = bench
        self.store = bench.store
        self.inquirer = inquirer
        self.ids = {}

    async def ask(self, sql, *params, space=None):
        asked = SqlQuery(sql=sql, params=params, space_id=self.ids.get(space))
        return await self.inquirer.ask(asked)

    async def rows(self, sql, *params, space=None):
        return list((await self.ask(sql, *params, space=space)).rows)

    async def verdict(self, sql, *params, space=None):
        """The code of the refusal, or `answered`; no sentence may tell what others wrote."""
        try:
            found = await self.ask(sql, *params, space=space)
        except RotaError as fault:
            assert SECRET not in str(fault)
            assert DIGEST not in str(fault)
            return fault.code
        if space == "ann":
            assert SECRET not in repr(found)
        return "answered"

    async def all_end_with(self, listed, codes=frozenset({"sql_refused"})):
        """Every attack on this store, by ann, is answered with one of these codes."""
        for sql in (*listed.get("both", ()), *listed.get(self.kind, ())):
            assert await self.verdict(sql, space="ann") in codes, sql

    async def fill(self):
        bench = self.bench
        await bench.worker("w1")
        for space in ("ann", "bob"):
            said = SECRET if space == "bob" else "anns-own-words"
            owner = await bench.space(space)
            self.ids[space] = owner.id
            task = await bench.task(f"{space}-task", space=space)
            await bench.planned(task, cron="0 7 * * *")
            await bench.enqueue(bench.batch(task, [{"said": said}] * 3))
            leases = await bench.claim(3)
            await bench.end(leases[0], Succeeded(result=json.dumps({"said": said})))
            await bench.end(leases[1], Failed(code="oops", message=said))
            await bench.ask(leases[2], said)
            await self.store.write(put_state, task.id, "k", f'"{said}"', "x")
            key = NewKey(
                space_id=owner.id,
                name=space,
                prefix=f"rota_{space}",
                digest=f"{DIGEST}-{space}",
                role=SpaceRole.MEMBER,
                scopes=frozenset({KeyScope.SQL}),
                created_by="x",
                expires_at=None,
            )
            await self.store.write(add_key, key)


@pytest.fixture(params=("sqlite", "postgres"))
def room(request, clock, tmp_path, runner):
    made = request.getfixturevalue(f"{request.param}_room")
    runner.run(made.fill())
    return made


@pytest.fixture
def sqlite_room(clock, tmp_path, runner):
    store = SqliteDatabase(str(tmp_path / "rota.db"), clock)
    runner.run(store.open())
    inquirer = SqliteSqlConsole(store.database.path)
    yield Room("sqlite", Bench(store, clock), inquirer)
    runner.run(inquirer.close())
    runner.run(store.close())


@pytest.fixture
def sql_role(postgres_address, runner):
    """A role of a test's own, because roles belong to all databases of a server."""
    import asyncpg

    from rota.store.postgres.sql_console import role_ddl

    role = f"rota_sql_{secrets.token_hex(4)}"

    async def run(sql):
        connection = await asyncpg.connect(postgres_address)
        await connection.execute(sql)
        await connection.close()

    runner.run(run(role_ddl(role)))
    yield role
    runner.run(run(f'drop owned by "{role}"; drop role "{role}"'))


@pytest.fixture
def sql_url(postgres_address, sql_role):
    before, _, after = postgres_address.partition("//")
    return f"{before}//{sql_role}@{after.partition('@')[2]}"


@pytest.fixture
def postgres_room(postgres_address, sql_url, clock, runner):
    from rota.store.postgres.database import PostgresDatabase
    from rota.store.postgres.sql_console import PostgresSqlConsole

    store = PostgresDatabase(postgres_address, clock, own_clock=True)
    runner.run(store.open())
    yield Room("postgres", Bench(store, clock), PostgresSqlConsole(postgres_address, sql_url))
    runner.run(store.close())
