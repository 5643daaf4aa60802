-- name: insert_keys
insert into rota.keys (space_id, name, prefix, digest, role, scopes, created_at, created_by,
  expires_at)
select w.space_id, w.name, w.prefix, w.digest, w.role, w.scopes, :now::bigint, w.created_by,
  w.expires_at
from jsonb_to_recordset(:rows::text::jsonb) as w(space_id bigint, name text, prefix text,
  digest text, role text, scopes text, created_by text, expires_at bigint);

-- name: find_key
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from rota.keys k join rota.spaces p on p.id = k.space_id where k.digest = :digest::text;

-- name: list_keys
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from rota.keys k join rota.spaces p on p.id = k.space_id
where :space_id::bigint is null or k.space_id = :space_id::bigint
order by k.id;

-- name: revoke_key
update rota.keys set revoked_at = coalesce(revoked_at, :now::bigint) where id = :id::bigint;

-- name: touch_keys
update rota.keys k set used_at = greatest(coalesce(k.used_at, 0), w.at)
from jsonb_to_recordset(:rows::text::jsonb) as w(id bigint, at bigint) where k.id = w.id;

-- name: insert_request
insert into rota.requests (at, caller, space, command, about, key, digest)
values (:now::bigint, :caller::text, :space::text, :command::text, :about::text, :key::text,
  :digest::text)
on conflict (caller, key) where key is not null do nothing
returning id;

-- name: insert_requests  without keys
insert into rota.requests (at, caller, space, command, about)
select :now::bigint, caller, space, command, about
from jsonb_to_recordset(:rows::text::jsonb)
  as w(caller text, space text, command text, about text);

-- name: lock_held  an attempt that goes on cannot end before this transaction does
select 1 as held from rota.runs
where id = :run_id::bigint and epoch = :epoch::int and state = 'running'
for no key update;

-- name: find_held
select r.id, r.epoch, r.task_id, t.name as task, coalesce(r.thread, t.thread) as thread,
  p.name as space
from rota.runs r join rota.tasks t on t.id = r.task_id join rota.spaces p on p.id = r.space_id
where r.id = :run_id::bigint and r.epoch = :epoch::int and r.state = 'running';

-- name: count_made  by attempts
select count(*) from rota.tasks
where space_id = :space_id::bigint and deleted_at is null and origin like 'attempt:%';

-- name: answer_request
update rota.requests set status = :status::int, answer = :answer::text
where id = :id::bigint and status is null;

-- name: find_request
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests where caller = :caller::text and key = :key::text;

-- name: requests_alike  of several callers, in the order they were made
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests
where caller = any(:callers::text[]) and key is not null and digest = :digest::text
order by id;

-- name: list_requests
select id, at, caller, space, command, about, key, digest, status, answer
from rota.requests
where id < :before::bigint and (:space::text is null or space = :space::text)
order by id desc limit :most::bigint;

-- name: prune_requests
delete from rota.requests
where id in (select id from rota.requests where at < :before::bigint order by id limit :most::bigint);

-- name: put_state
insert into rota.state (task_id, key, value, updated_at, updated_by)
values (:task_id::bigint, :key::text, :value::text, :now::bigint, :who::text)
on conflict (task_id, key) do update set value = excluded.value, updated_at = excluded.updated_at,
  updated_by = excluded.updated_by;

-- name: get_state
select key, value, updated_at, updated_by from rota.state
where task_id = :task_id::bigint and key = :key::text;

-- name: list_state
select key, value, updated_at, updated_by from rota.state
where task_id = :task_id::bigint and key > :after::text order by key limit :most::bigint;

-- name: drop_state
delete from rota.state where task_id = :task_id::bigint and key = :key::text returning key;

-- name: count_state
select count(*) from rota.state where task_id = :task_id::bigint;

-- name: mark_seen
insert into rota.seen (task_id, provider, item, data, first_at, last_at, count)
select :task_id::bigint, w.provider, w.item, w.data, :now::bigint, :now::bigint, 1
from jsonb_to_recordset(:rows::text::jsonb) as w(provider text, item text, data text)
on conflict (task_id, provider, item) do update set data = excluded.data,
  last_at = greatest(rota.seen.last_at, excluded.last_at), count = rota.seen.count + 1
returning provider, item, data, first_at, last_at, count;

-- name: get_seen
select provider, item, data, first_at, last_at, count from rota.seen
where task_id = :task_id::bigint and provider = :provider::text and item = :item::text;
