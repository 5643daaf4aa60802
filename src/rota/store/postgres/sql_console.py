"""The SQL console: its session, its lexer and its role.

Every question has a connection of its own, which is closed after it: whatever a query might leave
behind in a session, no other one finds it. The query stands inside one of Rota's own, so it can be
nothing but a SELECT; its transaction is read-only and never committed.

What a query may read is the business of its role, which sees the views and nothing else of Rota.
But everybody may call PostgreSQL's own functions and read its catalogs, and some of these wait,
lock, signal or tell about others. So every word that calls something has to be on a list, and
words that lead to the catalogs are refused. Where the two could read a query differently (escapes,
dollar quotes, nested comments) it is refused, and what is left over PostgreSQL must understand.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, TypeAlias

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement

from rota.errors import Invalid, SqlFailed, SqlRefused, SqlTimeout, Unavailable, shown
from rota.store.postgres.connection import CONNECT_SECONDS, connect, let_go
from rota.store.postgres.transactions import GONE, Connection, place_of, translate
from rota.store.sql_console import (
    FAILED,
    MAX_BYTES,
    MOST_ROWS,
    NOT_THERE,
    ONE_QUERY,
    SECONDS,
    TOO_LONG,
    VIEWS,
    ConcurrencyGate,
    SqlQuery,
    SqlResult,
    about,
    check_text,
    plain,
)

ROLE = "rota_sql"
SCHEMA = "rota_sql"
TOKEN = "rota.token"  # noqa: S105 - the name of a setting
MAX_NAME = 63
SETTINGS = {
    "default_transaction_read_only": "on",
    "statement_timeout": f"{SECONDS:.0f}s",
    "lock_timeout": "500ms",
    "idle_in_transaction_session_timeout": "5s",
    "work_mem": "4MB",
    "hash_mem_multiplier": "1",
    "temp_file_limit": "100MB",
    "max_parallel_workers_per_gather": "0",
    "jit": "off",
    "search_path": f"{SCHEMA}, pg_catalog",
    "timezone": "UTC",
    "standard_conforming_strings": "on",
}

_HEAD = """\
-- The role that answers `POST /v1/sql`. Run this as a superuser in Rota's database; running it
-- again brings everything up to date. Then give the role a password (\\password {role}) and set
--   sql_url = "postgresql://{role}@HOST/DATABASE"

begin;

do $$ begin
  if not exists (select from pg_catalog.pg_roles where rolname = '{role}') then
    create role "{role}";
  end if;
end $$;
alter role "{role}" login nosuperuser nocreatedb nocreaterole noreplication nobypassrls noinherit
  connection limit 8;
"""

_SPACE = """\
drop schema if exists {schema} cascade;
create schema {schema};

-- Whose rows a connection may see is signed by Rota, for this one connection: the role can read
-- and replace the signature, but not make one. 0 is everybody's; no valid signature, no rows.
insert into rota.metadata (name, value)
  values ('sql_key', gen_random_uuid()::text || gen_random_uuid()::text)
  on conflict (name) do nothing;

create function {schema}.space() returns bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select split_part(given.token, ':', 1)::bigint
  from (select current_setting('{token}', true) as token) given, rota.metadata f
  where f.name = 'sql_key' and given.token = split_part(given.token, ':', 1) || ':' ||
    encode(sha256(convert_to(f.value || ':' ||
      encode(sha256(convert_to(f.value || ':' || split_part(given.token, ':', 1) || ':' ||
        pg_backend_pid(), 'UTF8')), 'hex'), 'UTF8')), 'hex')
$$;
"""

_TAIL = """\
-- They belong to whom Rota's tables belong to, because they read them.
do $$ declare made record; owner name; begin
  select tableowner into owner from pg_catalog.pg_tables
    where schemaname = 'rota' and tablename = 'metadata';
  for made in select viewname from pg_catalog.pg_views where schemaname = '{schema}' loop
    execute format('alter view {schema}.%I owner to %I', made.viewname, owner);
  end loop;
  execute format('alter function {schema}.space() owner to %I', owner);
end $$;

revoke all on all functions in schema {schema} from public;
grant usage on schema {schema} to "{role}";
grant select on all tables in schema {schema} to "{role}";
grant execute on function {schema}.space() to "{role}";
comment on schema {schema} is '{mark}';

commit;
"""


def instant(micros: str) -> str:
    """Return the SQL of an instant in ISO 8601, to the microsecond."""
    shape = 'YYYY-MM-DD"T"HH24:MI:SS'
    seconds = f"to_char(to_timestamp({micros} / 1000000) at time zone 'UTC', '{shape}')"
    return f"{seconds} || '.' || lpad(({micros} % 1000000)::text, 6, '0') || 'Z'"


def role_ddl(role: str = ROLE) -> str:
    """Return what makes the role and everything it may see."""
    if not (0 < len(role) <= MAX_NAME and role.isascii() and role.isidentifier()):
        raise Invalid("role", role, "use letters, digits and underscores")
    settings = "\n".join(
        f'alter role "{role}" set {name} = {_value(value)};' for name, value in SETTINGS.items()
    )
    parts = [
        _HEAD.format(role=role),
        settings + "\n",
        _SPACE.format(schema=SCHEMA, token=TOKEN),
        _views(),
        _TAIL.format(role=role, schema=SCHEMA, mark=mark()),
    ]
    return "\n".join(parts)


def mark() -> str:
    """Return what tells these views from those of another version."""
    text = _SPACE + _views()
    return f"rota views {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def sign(key: str, space_id: int | None, pid: int) -> str:
    """Return what lets one connection see the rows of a space, or everybody's."""
    space = "0" if space_id is None else str(int(space_id))
    inner = _digest(f"{key}:{space}:{pid}")
    return f"{space}:{_digest(f'{key}:{inner}')}"


def _views() -> str:
    seen = f"(select {SCHEMA}.space()) in (0, {{}})"
    return "\n".join(
        f"create view {SCHEMA}.{view.name} with (security_barrier = true) as\n"
        f"  {view.select('rota', instant, seen)};\n"
        for view in VIEWS
    )


def _value(text: str) -> str:
    return text if text == SETTINGS["search_path"] else f"'{text}'"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


Prepared: TypeAlias = "PreparedStatement[asyncpg.Record]"

STEP = 8
"""Rows fetched at once; each is bounded by itself."""
MOST_COLUMNS = 100
PASSED_ON: tuple[type[BaseException], ...] = (asyncpg.QueryCanceledError, *GONE)
"""What ends a question, wherever in it."""
ROLE_WORDS = "run what `rota sql role` prints"
_READ_KEY = "select value from rota.metadata where name = 'sql_key'"
_STANDING = f"""
select pg_catalog.obj_description(pg_catalog.to_regnamespace('{SCHEMA}'), 'pg_namespace'),
  (select r.rolsuper or r.rolbypassrls or r.rolcreaterole from pg_catalog.pg_roles r
    where r.rolname = current_user)
  or pg_catalog.has_schema_privilege('rota', 'usage')
"""  # noqa: S608 - a constant
_SIGN = f"select pg_catalog.set_config('{TOKEN}', $1, true)"


class PostgresSqlConsole:
    """Asks as the role at `sql_url`, about the database at `address`."""

    def __init__(self, address: str, sql_url: str, turns: ConcurrencyGate | None = None) -> None:
        self._address = address
        self._sql_url = sql_url
        self._place = place_of(sql_url)
        self._turns = turns or ConcurrencyGate()
        self._key: str | None = None

    async def ask(self, inquiry: SqlQuery) -> SqlResult:
        """Return what a query finds."""
        sql = check_query(inquiry.sql)
        async with self._turns.turn(inquiry.space_id):
            key = self._key or await self._read_key()
            async with self._connected() as connection:
                try:
                    async with asyncio.timeout(SECONDS):
                        await connection.execute("begin read only")
                        await connection.execute(_SIGN, _token(key, inquiry, connection))
                        return await _answer(connection, sql, inquiry)
                except (TimeoutError, asyncpg.QueryCanceledError):
                    raise SqlTimeout(TOO_LONG) from None
                except GONE as fault:
                    message = f"the connection to the database {self._place} was lost: try again"
                    raise Unavailable(message) from fault

    async def close(self) -> None:
        """Nothing stays open between two questions."""

    async def _read_key(self) -> str:
        """Read the key that signs, as the owner of Rota's tables."""
        connection = await connect(self._address, place_of(self._address), look=True)
        try:
            self._key = await connection.fetchval(_READ_KEY)
        finally:
            await let_go(connection)
        if self._key is None:
            message = f"SQL is not set up in the database {self._place}: {ROLE_WORDS}"
            raise Unavailable(message)
        return self._key

    @asynccontextmanager
    async def _connected(self) -> AsyncIterator[Connection]:
        try:
            connection: Connection = await asyncpg.connect(
                self._sql_url,
                timeout=CONNECT_SECONDS,
                command_timeout=CONNECT_SECONDS,
                statement_cache_size=0,
                server_settings=_asked_for(),
            )
        except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError) as fault:
            error = translate(fault, self._place)
            message = f"cannot use the database {self._place}: check sql_url"
            raise (error or Unavailable(message)) from fault
        try:
            await self._check(connection)
            yield connection
        finally:
            connection.terminate()

    async def _check(self, connection: Connection) -> None:
        """Refuse a role that may do more, and views that are not this Rota's."""
        found = await connection.fetchrow(_STANDING)
        stands, mighty = (None, True) if found is None else found
        if mighty:
            message = f"the role of sql_url may do too much: {ROLE_WORDS} and use that role"
            raise Unavailable(message)
        if stands != mark():
            message = (
                f"the views in the database {self._place} are not this version's: {ROLE_WORDS}"
            )
            raise Unavailable(message)


def _asked_for() -> dict[str, str]:
    """Return what a role may set for itself; the rest it was given for good."""
    settings = {name: value for name, value in SETTINGS.items() if name != "temp_file_limit"}
    return {**settings, "application_name": "rota-sql"}


def _token(key: str, inquiry: SqlQuery, connection: Connection) -> str:
    return sign(key, inquiry.space_id, connection.get_server_pid())


async def _answer(connection: Connection, sql: str, inquiry: SqlQuery) -> SqlResult:
    names, prepared = await _prepared(connection, sql)
    numbered = [f"c{index}" for index in range(len(names))]
    rows: list[tuple[Any, ...]] = []
    size, truncated = 0, False
    try:
        cursor = await prepared.cursor(*inquiry.params)
        while not truncated and (found := await cursor.fetch(STEP)):
            for (text,) in found:
                size += MAX_BYTES + 1 if text is None else len(text.encode())
                if len(rows) == MOST_ROWS or size > MAX_BYTES:
                    truncated = True
                    break
                row = json.loads(text)
                rows.append(tuple(row[name] for name in numbered))
    except asyncpg.QueryCanceledError:
        raise
    except asyncpg.InsufficientPrivilegeError:
        raise SqlRefused(NOT_THERE) from None
    except (asyncpg.InterfaceError, TypeError, OverflowError) as fault:
        if connection.is_closed():
            raise
        raise SqlRefused(plain("its parameters do not fit, in number or in kind")) from fault
    except asyncpg.PostgresError as fault:
        if isinstance(fault, GONE):
            raise
        raise SqlFailed(FAILED) from None
    return SqlResult(columns=names, rows=tuple(rows), truncated=truncated)


async def _prepared(connection: Connection, sql: str) -> tuple[tuple[str, ...], Prepared]:
    """Return a query's columns, and the query that gives each row as one JSON text."""
    try:
        alone = await connection.prepare(sql)  # it must be whole by itself, and only one
        names = tuple(column.name for column in alone.get_attributes())
        if not 0 < len(names) <= MOST_COLUMNS:
            raise SqlRefused(plain(f"ask for 1 to {MOST_COLUMNS} columns"))
        return names, await connection.prepare(_within(sql, len(names)))
    except PASSED_ON:
        raise
    except asyncpg.InsufficientPrivilegeError:
        raise SqlRefused(NOT_THERE) from None
    except asyncpg.SyntaxOrAccessError as fault:
        # Nothing was read yet: the sentence can quote nothing but the query.
        raise SqlRefused(about(fault.message or NOT_THERE)) from None
    except asyncpg.DataError:
        raise SqlFailed(FAILED) from None
    except asyncpg.PostgresError:
        raise SqlRefused(NOT_THERE) from None


def _within(sql: str, count: int) -> str:
    columns = ", ".join(f"c{index}" for index in range(count))
    return (
        f"with asked({columns}) as (\n{sql}\n)"  # noqa: S608 - that is what it is for
        f" select case when octet_length(one.row) <= {MAX_BYTES} then one.row end"
        f" from (select row_to_json(asked.*)::text as row from asked limit {MOST_ROWS + 1}) one"
    )


_FUNCTIONS = """
    abs age array_agg array_length array_position array_to_string avg bool_and bool_or btrim cbrt
    ceil ceiling char_length coalesce concat concat_ws corr count cume_dist date_bin date_part
    date_trunc decode dense_rank div encode every exp extract first_value floor generate_series
    greatest initcap json_agg json_array_elements json_array_elements_text json_array_length
    json_build_array json_build_object json_each json_each_text json_extract_path
    json_extract_path_text json_object_agg json_object_keys json_strip_nulls json_typeof jsonb_agg
    jsonb_array_elements jsonb_array_elements_text jsonb_array_length jsonb_build_array
    jsonb_build_object jsonb_each jsonb_each_text jsonb_extract_path jsonb_extract_path_text
    jsonb_object_agg jsonb_object_keys jsonb_typeof justify_days justify_hours justify_interval lag
    last_value lead least left length ln log log10 lower ltrim make_date make_interval
    make_timestamp make_timestamptz max md5 min mod mode nth_value ntile nullif octet_length
    overlay percent_rank percentile_cont percentile_disc position power rank regexp_match
    regexp_replace replace reverse right round row_number row_to_json rtrim sign split_part sqrt
    starts_with stddev stddev_pop stddev_samp strpos string_agg string_to_array strip substr
    substring sum to_char to_date to_json to_jsonb to_number to_timestamp translate trim trunc
    unnest upper var_pop var_samp variance width_bucket
"""
FUNCTIONS = frozenset(_FUNCTIONS.split())
_KEYWORDS = """
    all and any array as asc between by case cast cross cube desc distinct else end except exists
    fetch filter from full group having ilike in inner intersect is isnull join lateral left like
    limit materialized natural not notnull null offset on or order outer over partition right
    rollup row rows select sets similar some symmetric then union using values when where window
    with within
"""
KEYWORDS = frozenset(_KEYWORDS.split())
"""Words that may stand before a parenthesis and call nothing."""
TYPES = frozenset(
    {"bit", "char", "decimal", "float", "interval", "numeric", "time", "timestamp", "varchar"}
)
NAMING = frozenset({"with", "recursive", "as"})
"""After these comes a name, and behind it its columns."""
_CLOSED = """
    information_schema public current_catalog current_role current_schema current_user session_user
    user regclass regcollation regconfig regdictionary regnamespace regoper regoperator regproc
    regprocedure regrole regtype
"""
CLOSED = frozenset(_CLOSED.split())
PREFIX = "pg_"

_TOKEN = re.compile(
    r"""
      (?P<space>\s+|--[^\n\r]*|/\*(?:(?!/\*).)*?\*/)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | (?P<param>\$[0-9]+)
    | (?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
    | (?P<sign>[][(),.:+*/<>=~!@\#%^&|?;-])
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


class SqlToken(NamedTuple):
    """A word, a name in quotes, a sign or a value."""

    kind: str
    text: str
    place: int

    @property
    def name(self) -> str:
        """What PostgreSQL takes a word or a quoted name for; empty for everything else."""
        if self.kind == "word":
            return self.text.lower()
        return self.text[1:-1].replace('""', '"') if self.kind == "quoted" else ""


_EDGE = SqlToken("edge", "", 0)


def check_query(sql: str) -> str:
    """Return a query up to its last semicolon, or refuse it."""
    check_text(sql)
    tokens = list(_tokens(sql))
    while tokens and tokens[-1].text == ";":
        sql = sql[: tokens.pop().place]
    if not tokens:
        raise SqlRefused(plain("it is empty"))
    if any(token.text == ";" for token in tokens if token.kind == "sign"):
        raise SqlRefused(ONE_QUERY)
    before = [_EDGE, *tokens]
    after = [*tokens[1:], _EDGE]
    for left, token, right in zip(before, tokens, after, strict=False):
        if token.name:
            _check(left, token, right)
    return sql


def _check(left: SqlToken, token: SqlToken, right: SqlToken) -> None:
    name = token.name
    if name in CLOSED or name.startswith(PREFIX):
        raise SqlRefused(NOT_THERE)
    if right.text != "(" or right.kind != "sign":
        return
    word = token.kind == "word"
    if left.kind == "word" and left.text.lower() in NAMING:
        return
    if word and name in KEYWORDS | TYPES and left.text != ".":
        return
    if name in FUNCTIONS and left.text != ".":
        return
    raise SqlRefused(plain(f"it may not call {shown(token.text)}"))


def _tokens(sql: str) -> Iterator[SqlToken]:
    place = 0
    last = _EDGE
    while place < len(sql):
        found = _TOKEN.match(sql, place)
        if found is None or found.lastgroup is None:
            raise SqlRefused(plain(f"what begins at {shown(sql[place : place + 20])}"))
        token = SqlToken(found.lastgroup, found.group(), place)
        # E'\'', U&'\0041' and their kind are read by rules of their own.
        if token.kind in {"string", "quoted"} and last.kind == "word":
            raise SqlRefused(plain("put a space before a quote, and write no escapes"))
        if token.kind in {"string", "quoted"} and sql[max(0, place - 2) : place].lower() == "u&":
            raise SqlRefused(plain("write no escapes"))
        place, last = found.end(), token
        if token.kind != "space":
            yield token
