-- name: insert_keys
insert into keys (space_id, name, prefix, digest, role, scopes, created_at, created_by, expires_at)
select value ->> 'space_id', value ->> 'name', value ->> 'prefix', value ->> 'digest',
  value ->> 'role', value ->> 'scopes', :now, value ->> 'created_by', value ->> 'expires_at'
from jsonb_each(:rows);

-- name: find_key
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from keys k join spaces p on p.id = k.space_id where k.digest = :digest;

-- name: list_keys
select k.id, k.space_id, p.name as space, k.name, k.prefix, k.role, k.scopes, k.created_at,
  k.created_by, k.expires_at, k.used_at, k.revoked_at
from keys k join spaces p on p.id = k.space_id
where :space_id is null or k.space_id = :space_id
order by k.id;

-- name: revoke_key
update keys set revoked_at = coalesce(revoked_at, :now) where id = :id;

-- name: touch_keys
update keys set used_at = max(coalesce(used_at, 0), w.value ->> 'at')
from jsonb_each(:rows) w where keys.id = w.value ->> 'id';

-- name: insert_request
insert into requests (at, caller, space, command, about, key, digest)
values (:now, :caller, :space, :command, :about, :key, :digest)
on conflict (caller, key) where key is not null do nothing
returning id;

-- name: insert_requests  without keys
insert into requests (at, caller, space, command, about)
select :now, value ->> 'caller', value ->> 'space', value ->> 'command', value ->> 'about'
from jsonb_each(:rows);

-- name: lock_held  an attempt that goes on cannot end before this transaction does
select 1 as held from runs where id = :run_id and epoch = :epoch and state = 'running';

-- name: find_held
select r.id, r.epoch, r.task_id, t.name as task, coalesce(r.thread, t.thread) as thread,
  p.name as space
from runs r join tasks t on t.id = r.task_id join spaces p on p.id = r.space_id
where r.id = :run_id and r.epoch = :epoch and r.state = 'running';

-- name: count_made  by attempts
select count(*) from tasks
where space_id = :space_id and deleted_at is null and origin like 'attempt:%';

-- name: answer_request
update requests set status = :status, answer = :answer where id = :id and status is null;

-- name: find_request
select id, at, caller, space, command, about, key, digest, status, answer
from requests where caller = :caller and key = :key;

-- name: requests_alike  of several callers, in the order they were made
select id, at, caller, space, command, about, key, digest, status, answer
from requests
where caller in (select value from json_each(:callers)) and key is not null and digest = :digest
order by id;

-- name: list_requests
select id, at, caller, space, command, about, key, digest, status, answer
from requests
where id < :before and (:space is null or space = :space)
order by id desc limit :most;

-- name: prune_requests
delete from requests where id in (select id from requests where at < :before order by id limit :most);

-- name: put_state
insert into state (task_id, key, value, updated_at, updated_by)
values (:task_id, :key, :value, :now, :who)
on conflict (task_id, key) do update set value = excluded.value, updated_at = excluded.updated_at,
  updated_by = excluded.updated_by;

-- name: get_state
select key, value, updated_at, updated_by from state where task_id = :task_id and key = :key;

-- name: list_state
select key, value, updated_at, updated_by from state
where task_id = :task_id and key > :after order by key limit :most;

-- name: drop_state
delete from state where task_id = :task_id and key = :key returning key;

-- name: count_state
select count(*) from state where task_id = :task_id;

-- name: mark_seen
insert into seen (task_id, provider, item, data, first_at, last_at, count)
select :task_id, value ->> 'provider', value ->> 'item', value ->> 'data', :now, :now, 1
from jsonb_each(:rows) where true
on conflict (task_id, provider, item) do update set data = excluded.data,
  last_at = max(seen.last_at, excluded.last_at), count = seen.count + 1
returning provider, item, data, first_at, last_at, count;

-- name: get_seen
select provider, item, data, first_at, last_at, count from seen
where task_id = :task_id and provider = :provider and item = :item;
