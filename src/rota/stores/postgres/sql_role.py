"""The role that answers SQL on PostgreSQL: the DDL an administrator runs once."""

from __future__ import annotations

import hashlib

from rota.errors import Invalid
from rota.model.inquiries import SECONDS
from rota.stores.kit.sql_views import VIEWS

ROLE = "rota_sql"
SCHEMA = "rota_sql"
TOKEN = "rota.token"  # noqa: S105 - the name of a setting
LONGEST_NAME = 63
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
insert into rota.facts (name, value)
  values ('sql_key', gen_random_uuid()::text || gen_random_uuid()::text)
  on conflict (name) do nothing;

create function {schema}.space() returns bigint
  language sql stable security definer set search_path = pg_catalog, pg_temp as $$
  select split_part(given.token, ':', 1)::bigint
  from (select current_setting('{token}', true) as token) given, rota.facts f
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
    where schemaname = 'rota' and tablename = 'facts';
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
    if not (0 < len(role) <= LONGEST_NAME and role.isascii() and role.isidentifier()):
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
